"""Detection: the task on scenes, matching and suppression, pictures in the report, and the detectors of the zoo."""

from __future__ import annotations

import numpy as np
import pytest

import deep500.networks as d5nt
from deep500.errors import InputError, NetworkError
from deep500.frameworks import reference
from deep500.networks import Network
from deep500.results.exhibits import write_exhibits
from deep500.tasks import Detection
from deep500.tasks.boxes import anchor_grid, decode, encode, intersection_over_union, match, suppress, suppress_by_class
from deep500.training.data import load_dataset
from tests.conftest import load_backend
from tests.tolerances import as_numpy, assert_close

CONV = 9  # weights of a 3x3 window


def task(**more):
    return Detection((64, 64), 10, 4, [[13.0, 20.0]], [1.45], output="output", **more)


@pytest.fixture(scope="module")
def batch():
    return load_dataset("digit_scenes", train=8, test=1)[0][:]


def perfect(made, batch):
    """Outputs of a network that knows everything: each anchor's targets."""
    targets = made.targets(batch)
    boxes = targets["anchor_box"] if made.box_loss != "giou" else encode(targets["anchor_box"], made.anchors)
    scores = np.where(np.arange(10) == targets["anchor_label"][..., None], 8.0, -8.0)
    return {"output": np.concatenate([boxes, scores], axis=-1).astype(np.float32)}


@pytest.mark.parametrize("box_loss", ["giou", "smooth_l1"])
def test_who_knows_the_targets_is_right(batch, box_loss):
    made = task(box_loss=box_loss)
    sums = made.judge(batch, perfect(made, batch))
    found = made.measure(sums, None)
    assert found["map"] > 0.99 and found["map50"] > 0.99
    assert sums["objects"].sum() == (batch["box_label"] >= 0).sum()
    shown = made.decode(batch, perfect(made, batch))
    for picture, labels in zip(shown, batch["box_label"], strict=True):
        assert sorted(one["class"] for one in picture) == sorted(str(label) for label in labels[labels >= 0])


def test_who_knows_nothing_is_not(batch):
    made = task()
    nothing = {"output": np.full((8, len(made.anchors), 14), -9.0, np.float32)}
    assert made.measure(made.judge(batch, nothing), None) == {"map": 0.0, "map50": 0.0}
    assert made.measure(made.zero(), None) == {"map": None, "map50": None}


def test_targets_are_what_the_network_reads(batch):
    made = task()
    targets = made.targets(batch)
    assert set(targets) == {"input", "anchor_label", "anchor_box"}
    network = made.add_loss(d5nt.create("ssd", stride=4, width=4, anchors=2))
    assert set(network.inputs) == set(targets) and network.outputs == ["output", "loss"]
    there = targets["anchor_label"] >= 0
    assert (there.sum(axis=1) >= (batch["box_label"] >= 0).sum(axis=1)).all()


def test_the_gallery_shows_pictures_with_both_kinds_of_boxes(batch, tmp_path):
    made = task()
    gallery = made.gallery()
    (exhibit,) = gallery.exhibits(gallery.judge(batch, perfect(made, batch)))
    assert exhibit["kind"] == "pictures" and len(exhibit["pictures"]) == 8
    first = exhibit["pictures"][0]
    assert (first["height"], first["width"]) == (64, 64) and {box["wanted"] for box in first["boxes"]} == {True, False}
    write_exhibits(tmp_path, made.name, 0, [exhibit])  # refuses what the report cannot show
    assert gallery.exhibits(gallery.zero()) == []


def test_anchors_of_several_maps_stand_one_after_the_other():
    made = Detection((64, 32), 3, 8, [[10.0], [20.0, 30.0]], [0.5, 2.0])
    assert len(made.anchors) == 8 * 4 * 2 + 4 * 2 * 4
    size = made.anchors[:, 2:] - made.anchors[:, :2]
    np.testing.assert_allclose(np.sqrt(size.prod(axis=1)), [10] * 64 + [20, 20, 30, 30] * 8, rtol=1e-5)
    np.testing.assert_allclose(size[0, 1] / size[0, 0], 0.5, rtol=1e-5)
    with pytest.raises(InputError, match="negative <= positive"):
        Detection((8, 8), 2, 8, [[8.0]], positive=0.3)


def test_offsets_lead_back():
    rng = np.random.default_rng(0)
    anchors = anchor_grid((32, 32), 8, [9.0, 14.0])
    boxes = anchors + rng.uniform(-2, 2, anchors.shape)
    np.testing.assert_allclose(decode(encode(boxes, anchors).astype(np.float64), anchors), boxes, atol=1e-4)
    far = decode(np.full((len(anchors), 4), 1e4), anchors)
    assert np.isfinite(far).all()


def test_every_object_is_answered_for():
    rng = np.random.default_rng(1)
    low = rng.uniform(0, 40, (6, 3, 2))
    boxes = np.concatenate([low, low + rng.uniform(3, 20, low.shape)], axis=-1)
    there = np.arange(3) < np.arange(6)[:, None] % 4
    anchors = anchor_grid((64, 64), 16, [16.0])
    found = match(boxes, there, anchors)
    for picture in range(6):
        overlap = intersection_over_union(anchors, boxes[picture])
        wanted = {number for number in range(3) if there[picture, number]}
        best = {int(overlap[:, number].argmax()) for number in wanted}
        assert set(found[picture][found[picture] >= 0]) <= wanted and all(found[picture, at] >= 0 for at in best)


def test_an_object_beside_all_anchors_takes_none():
    """The upper left corner's is the first of many that do not overlap it; it has an object of its own."""
    anchors = anchor_grid((32, 32), 8, [9.0])
    boxes = np.array([[anchors[0], [100.0, 100, 110, 110]]])
    assert match(boxes, np.ones((1, 2), bool), anchors)[0, 0] == 0


@pytest.mark.parametrize("parts", [[3, 5], [1, 1, 6], [4, 2, 2]])
def test_losses_of_parts_are_the_loss_of_the_whole(parts):
    """By their weights, also where the pictures of a part, or some of them, are empty."""
    rng = np.random.default_rng(3)
    task = Detection(image=(16, 16), classes=2, stride=4, sizes=[[6.0]])
    low = rng.uniform(0, 8, (8, 3, 2))
    labels = np.where(rng.random((8, 3)) < 0.5, rng.integers(0, 2, (8, 3)), -1)
    labels[:4] = -1
    batch = {"input": rng.normal(size=(8, 16, 6)), "boxes": np.concatenate([low, low + 6], 2), "box_label": labels}
    network = Network()
    network.add_input("input", ("N", 16, 6), "float64")
    network.add_node("Identity", ["input"], ["output"])
    network.add_output("output")
    executor = reference.from_model(task.add_loss(network))
    ends = np.cumsum(parts)
    pieces = [{n: a[e - size : e] for n, a in batch.items()} for e, size in zip(ends, parts, strict=True)]

    def weighed(piece):
        feeds = task.complete(piece)
        feeds = {n: a.astype("float64") if a.dtype == np.float32 else a for n, a in feeds.items()}
        return task.weight(feeds), float(executor.inference(feeds, ["loss"])["loss"])

    weight, loss = weighed(batch)
    weights, losses = zip(*map(weighed, pieces), strict=True)
    assert sum(weights) == weight and loss == pytest.approx(np.average(losses, weights=weights), rel=1e-12)


def slow_suppression(boxes, scores, threshold):
    """The definition."""
    kept = []
    for number in sorted(range(len(scores)), key=lambda n: (-scores[n], n)):
        if all(intersection_over_union(boxes[[number]], boxes[[other]])[0, 0] <= threshold for other in kept):
            kept.append(number)
    return kept


@pytest.mark.parametrize("seed", range(5))
def test_suppression_is_its_definition(seed):
    rng = np.random.default_rng(seed)
    low = rng.uniform(0, 20, (40, 2))
    boxes, scores = np.concatenate([low, low + rng.uniform(4, 12, (40, 2))], axis=1), np.round(rng.uniform(0, 1, 40), 1)
    assert suppress(boxes, scores, 0.4).tolist() == slow_suppression(boxes, scores, 0.4)
    labels = rng.integers(0, 3, 40)
    each = [
        n
        for label in range(3)
        for n in np.flatnonzero(labels == label)[slow_suppression(boxes[labels == label], scores[labels == label], 0.4)]
    ]
    assert sorted(suppress_by_class(boxes, scores, labels, 0.4)) == sorted(each)
    assert suppress(boxes, scores, 0.4, most=2).tolist() == slow_suppression(boxes, scores, 0.4)[:2]
    with pytest.raises(InputError, match="40 scores"):
        suppress(boxes[:3], scores)


@pytest.mark.parametrize(("levels", "rows"), [(1, 16 * 16 * 2), (2, 16 * 16 * 2 + 8 * 8 * 2)])
def test_ssd_has_the_parameters_of_its_formula(levels, rows):
    width, classes, out = 4, 5, 2 * (4 + 5)
    network = d5nt.create("ssd", classes=classes, stride=4, width=width, depth=1, anchors=2, levels=levels)
    wide = [width, 2 * width, 4 * width][: levels + 1]
    stages = sum(CONV * a * b + 2 * b for a, b in zip([1, *wide], wide, strict=False))
    heads = wide[1:] if levels == 1 else [wide[1]] * levels
    pyramid = 0 if levels == 1 else sum(c * wide[1] + wide[1] + CONV * wide[1] ** 2 + wide[1] for c in wide[1:])
    wanted = stages + pyramid + sum(CONV * c * c + 2 * c + CONV * c * out + out for c in heads)
    count = sum(p.value.size for p in network.parameters.values() if p.trainable)
    assert count == wanted and network.descriptors()["output"].shape == ("N", rows, 4 + classes)


@pytest.mark.slow
def test_a_pyramid_learns_in_every_backend(backend, batch):
    small = {name: values[:2] for name, values in batch.items()}
    made = Detection((64, 64), 10, 8, [[13.0], [20.0]], [1.45], output="output")
    network = made.add_loss(d5nt.create("ssd", stride=8, levels=2, width=4, depth=1, anchors=1))
    executor = backend.from_model(network, "cpu")
    optimizer, targets = backend.GradientDescent(executor, lr=0.02), made.targets(small)
    losses = [float(as_numpy(optimizer.step(targets)["loss"])) for _ in range(4)]
    assert losses[-1] < 0.95 * losses[0]
    wanted = made.predict(executor, small, ["output", "loss"])
    reference = load_backend("reference").Executor(executor.network.copy())
    assert_close(as_numpy(wanted["output"]), reference.inference(targets, ["output"])["output"], "forward")


def test_what_a_detector_cannot_be_is_refused():
    for keywords, words in [
        (dict(shape=(1, 60, 64)), "multiples of 8"),
        (dict(stride=3), "a power of two as stride"),
        (dict(shape=(5,)), "channels, height, width"),
    ]:
        with pytest.raises(NetworkError, match=words):
            d5nt.create("ssd", **keywords)
