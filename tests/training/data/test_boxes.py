"""Pictures with boxes: generated scenes, COCO's and Pascal VOC's files, and what is wrong in them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from deep500.errors import DataError
from deep500.training.data import load_dataset
from deep500.training.data.boxes import BoxDataset, read_coco, read_pascal_voc
from deep500.training.data.sets.digits import split


@pytest.fixture(scope="module")
def scenes():
    return load_dataset("digit_scenes", train=30, test=10)


def test_scenes_hold_digits_within_their_boxes(scenes):
    train, test = scenes
    assert (len(train), len(test), train.shape) == (30, 10, (1, 64, 64))
    batch = train[[3, 4]]
    assert batch["input"].dtype == np.float32 and 0 <= batch["input"].min() <= batch["input"].max() <= 1
    assert batch["picture"].tolist() == [3, 4] and train[3]["boxes"].shape == (5, 4)
    counts = (train.labels >= 0).sum(axis=1)
    assert counts.min() >= 1 and counts.max() <= 5 and len(np.unique(counts)) > 2
    inside, outside = [], []
    for image, boxes, labels in zip(train.images[:, 0], train.boxes, train.labels, strict=True):
        mask = np.zeros(image.shape, bool)
        for x1, y1, x2, y2 in boxes[labels >= 0].astype(int):
            mask[y1:y2, x1:x2] = True
        inside.append(image[mask].max())
        outside.append(image[~mask].max())
    assert min(inside) > 150 and max(outside) < 110  # ink is in boxes; backgrounds and ink's faint edge are not


def test_scenes_are_the_same_for_a_seed_and_share_no_scan(scenes):
    again = load_dataset("digit_scenes", train=30, test=10)
    other = load_dataset("digit_scenes", train=30, test=10, seed=1)
    assert again[0].digest() == scenes[0].digest() != other[0].digest() != scenes[1].digest()
    train, test = split()
    assert not set(train) & set(test)


def arrays():
    boxes = np.array([[[0, 0, 2, 2], [1, 1, 4, 3]], [[0, 0, 0, 0], [0, 0, 0, 0]]], np.float32)
    return np.zeros((2, 1, 3, 4), np.float32), boxes, np.array([[0, 1], [-1, -1]])


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("boxes", 0, 1, 2), 5.0, "outside of its picture of 4x3 pixels: box 1 of picture 0"),
        (("boxes", 0, 0, 0), -1.0, "outside of its picture"),
        (("boxes", 0, 0, 2), 0.0, "without area"),
        (("labels", 0, 0), 2, "none of 2 classes"),
        (("boxes", 0, 0, 0), np.nan, "without area"),
    ],
)
def test_a_wrong_box_is_named(place, value, words):
    images, boxes, labels = arrays()
    {"boxes": boxes, "labels": labels}[place[0]][place[1:]] = value
    with pytest.raises(DataError, match=words):
        BoxDataset(images, boxes, labels, classes=2)


def test_padding_is_not_judged():
    data = BoxDataset(*arrays(), classes=2)
    assert len(data) == 2 and data[1]["box_label"].tolist() == [-1, -1]
    with pytest.raises(DataError, match="one label for each box"):
        BoxDataset(arrays()[0], arrays()[1][:, :1], arrays()[2], classes=2)


def coco(folder, **changes):
    (folder / "pictures").mkdir(exist_ok=True)
    Image.new("RGB", (8, 4), (255, 0, 0)).save(folder / "pictures" / "b.png")
    Image.new("L", (4, 4), 128).save(folder / "pictures" / "a.png")
    content = {
        "images": [
            {"id": 9, "file_name": "a.png", "width": 4, "height": 4},
            {"id": 7, "file_name": "b.png", "width": 8, "height": 4},
        ],
        "categories": [{"id": 50, "name": "dog"}, {"id": 3, "name": "cat"}],
        "annotations": [
            {"id": 1, "image_id": 7, "category_id": 50, "bbox": [2, 1, 4, 2], "iscrowd": 0},
            {"id": 2, "image_id": 7, "category_id": 3, "bbox": [0, 0, 8, 4], "iscrowd": 1},
            {"id": 3, "image_id": 9, "category_id": 3, "bbox": [1, 1, 0, 2]},
        ],
    }
    content.update(changes)
    (folder / "instances.json").write_text(json.dumps(content))
    return read_coco(folder / "instances.json", folder / "pictures", (3, 8, 8))


def test_coco(tmp_path):
    data = coco(tmp_path)
    assert data.class_names == ["cat", "dog"] and "2 annotations of crowds or without area" in data.provenance
    first = data[0]
    assert first["box_label"].tolist() == [1] and first["boxes"].tolist() == [[2, 2, 6, 6]]  # 8x4 became 8x8
    assert first["input"].shape == (3, 8, 8) and first["input"][:, 0, 0].tolist() == [1, 0, 0]
    assert data[[1]]["box_label"].tolist() == [[-1]] and data[:0]["input"].shape == (0, 3, 8, 8)
    assert len(data.digest()) == 64


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"annotations": [{"image_id": 1, "category_id": 3, "bbox": [0, 0, 1, 1]}]}, "image_id 1"),
        ({"annotations": [{"image_id": 7, "category_id": 4, "bbox": [0, 0, 1, 1]}]}, "category_id 4"),
        ({"annotations": [{"image_id": 7, "category_id": 3, "bbox": [0, 0, 1]}]}, "cannot be read"),
        ({"annotations": [{"image_id": 7, "category_id": 3, "bbox": [9, 0, 1, 1]}]}, "without area"),
        ({"images": [{"id": 7, "file_name": "../instances.json", "width": 1, "height": 1}]}, "leads out of"),
        ({"images": 5}, "without 'images'"),
    ],
)
def test_wrong_annotations_of_coco_are_one_error(tmp_path, changes, words):
    if words == "leads out of":
        changes["annotations"] = []
    with pytest.raises(DataError, match=words):
        coco(tmp_path, **changes)


def test_pictures_that_cannot_be_read(tmp_path):
    data = coco(tmp_path)
    (tmp_path / "pictures" / "b.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"b\.png"):
        data[0]
    (tmp_path / "instances.json").write_text("{")
    with pytest.raises(DataError, match="no JSON"):
        read_coco(tmp_path / "instances.json", tmp_path / "pictures", (3, 8, 8))


VOC = """<annotation><size><width>10</width><height>5</height><depth>3</depth></size>
<object><name>cat</name><difficult>0</difficult>
<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>10</xmax><ymax>5</ymax></bndbox></object>
<object><name>dog</name><difficult>1</difficult>
<bndbox><xmin>2</xmin><ymin>2</ymin><xmax>3</xmax><ymax>3</ymax></bndbox></object></annotation>"""


def test_pascal_voc(tmp_path):
    for name in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ImageSets" / "Main" / "trainval.txt").write_text("000005\n")
    (tmp_path / "Annotations" / "000005.xml").write_text(VOC)
    Image.new("RGB", (10, 5)).save(tmp_path / "JPEGImages" / "000005.jpg")
    data = read_pascal_voc(tmp_path, "trainval", (3, 10, 10), ["dog", "cat"])
    assert data[0]["boxes"].tolist() == [[0, 0, 10, 10]] and data[0]["box_label"].tolist() == [1]
    assert "1 difficult" in data.provenance and data[0]["input"].shape == (3, 10, 10)
    for wrong, words in ((VOC.replace("cat", "cow"), "of the classes dog, cat"), (VOC[:50], "cannot be read")):
        (tmp_path / "Annotations" / "000005.xml").write_text(wrong)
        with pytest.raises(DataError, match=words):
            read_pascal_voc(tmp_path, "trainval", (3, 10, 10), ["dog", "cat"])
    with pytest.raises(DataError, match="no list of pictures"):
        read_pascal_voc(tmp_path, "test", (3, 10, 10), ["dog", "cat"])


def test_published_sets_are_taken_where_they_lie(tmp_path):
    with pytest.raises(DataError, match="expected coco as its publisher packs it"):
        load_dataset("coco", root=tmp_path)
    place = tmp_path / "coco"
    place.mkdir()
    coco(place)
    (place / "annotations").mkdir()
    for part in ("train2017", "val2017"):
        (place / "annotations" / f"instances_{part}.json").write_text((place / "instances.json").read_text())
        (place / part).mkdir()
        for picture in (place / "pictures").iterdir():
            (place / part / picture.name).write_bytes(picture.read_bytes())
    train, test = load_dataset("coco", root=tmp_path, size=16)
    assert len(train) == len(test) == 2 and train[0]["input"].shape == (3, 16, 16)
