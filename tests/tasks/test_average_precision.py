"""Mean average precision against pycocotools, on random detections with ties, misses and doubles."""

from __future__ import annotations

import contextlib
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep500.errors import InputError
from deep500.tasks.average_precision import average_precision, detection_rows, mean_over_classes

CLASSES = 3


def scenes(seed, count=12):
    """Objects, and detections near them, twice, elsewhere, with scores that are sometimes equal."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        objects = int(rng.integers(0, 5))
        low = rng.uniform(0, 40, (objects, 2))
        true = np.concatenate([low, low + rng.uniform(4, 20, (objects, 2))], axis=1)
        true_labels = rng.integers(0, CLASSES, objects)
        near = np.repeat(true, 2, axis=0) + rng.normal(0, 1.2, (2 * objects, 4))
        extra = rng.uniform(0, 40, (int(rng.integers(0, 4)), 4))
        extra[:, 2:] = extra[:, :2] + 6
        boxes = np.concatenate([near, extra])
        labels = np.concatenate([np.repeat(true_labels, 2), rng.integers(0, CLASSES, len(extra))])
        scores = np.round(rng.uniform(0, 1, len(boxes)), 1)
        made.append((boxes, scores, labels, true, true_labels))
    return made


def pycocotools_says(made):
    pytest.importorskip("pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def xywh(box):
        return [float(box[0]), float(box[1]), float(box[2] - box[0]), float(box[3] - box[1])]

    images = [{"id": number} for number in range(len(made))]
    categories = [{"id": number} for number in range(CLASSES)]
    truth, found = [], []
    for number, (boxes, scores, labels, true, true_labels) in enumerate(made):
        for box, label in zip(true, true_labels, strict=True):
            width, height = xywh(box)[2:]
            truth.append(
                {"id": len(truth) + 1, "image_id": number, "category_id": int(label), "bbox": xywh(box), "iscrowd": 0}
            )
            truth[-1]["area"] = width * height
        found += [
            {"image_id": number, "category_id": int(label), "bbox": xywh(box), "score": float(score)}
            for box, score, label in zip(boxes, scores, labels, strict=True)
        ]
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {"images": images, "categories": categories, "annotations": truth}
        coco.createIndex()
        judge = COCOeval(coco, coco.loadRes(found), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return judge.stats[0], judge.stats[1]


def ours(made):
    rows = [detection_rows(number, *scene) for number, scene in enumerate(made)]
    objects = np.bincount(np.concatenate([scene[4] for scene in made]).astype(int), minlength=CLASSES)
    return rows, objects


@pytest.mark.parametrize("seed", range(8))
def test_equals_pycocotools(seed):
    made = scenes(seed)
    rows, objects = ours(made)
    table = average_precision(np.concatenate(rows), objects)
    wanted = pycocotools_says(made)
    assert mean_over_classes(table) == pytest.approx(wanted[0], abs=1e-12)
    assert mean_over_classes(table[:, 0]) == pytest.approx(wanted[1], abs=1e-12) and 0 < wanted[0] < 1


@given(seed=st.integers(0, 10_000), order=st.permutations(range(12)))
@settings(max_examples=20, deadline=None)
def test_the_order_of_pictures_does_not_matter(seed, order):
    rows, objects = ours(scenes(seed))
    whole = average_precision(np.concatenate(rows), objects)
    moved = average_precision(np.concatenate([rows[place] for place in order]), objects)
    assert np.array_equal(moved, whole, equal_nan=True)


def test_what_is_wrong_is_named():
    box = np.array([[0.0, 0.0, 1.0, 1.0]])
    assert mean_over_classes(average_precision(np.zeros((0, 13)), np.zeros(2))) is None
    with pytest.raises(InputError, match="as many of each kind"):
        detection_rows(0, box, np.ones(2), np.array([0]), box, np.array([0]))
    with pytest.raises(InputError, match="not finite"):
        detection_rows(0, box, np.array([np.nan]), np.array([0]), box, np.array([0]))
