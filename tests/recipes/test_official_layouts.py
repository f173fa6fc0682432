"""Recipes take the large data sets as their publishers pack them: two batches of tiny files in exactly that layout."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from deep500.errors import DataError
from deep500.recipe import run_recipe
from deep500.training.data import load_dataset

pytestmark = pytest.mark.backend("pytorch")
DETECTOR = ["dataset_kwargs={'size': 64}"]
DETECTOR += ["task_kwargs={'image': (64, 64), 'stride': 4, 'sizes': [[13.0, 20.0]], 'ratios': [1.45]}"]


def picture(file: Path, number: int, mode: str = "RGB") -> None:
    pixels = np.random.default_rng(number).integers(0, 255, (48, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).convert(mode).save(file, "JPEG")


def librispeech(root: Path) -> None:
    """``LibriSpeech/PART/SPEAKER/CHAPTER/SPEAKER-CHAPTER-NUMBER.flac`` and ``SPEAKER-CHAPTER.trans.txt``."""
    soundfile = pytest.importorskip("soundfile")
    for part, speaker in (("train-clean-100", 103), ("test-clean", 61)):
        chapter = root / "LibriSpeech" / part / str(speaker) / "1240"
        chapter.mkdir(parents=True)
        names = [f"{speaker}-1240-{number:04d}" for number in range(10)]
        for number, name in enumerate(names):
            soundfile.write(chapter / f"{name}.flac", np.random.default_rng(number).normal(0, 0.1, 8000), 16000)
        text = "".join(f"{name} IT'S {'ABC'[number % 3]}\n" for number, name in enumerate(names))
        (chapter / f"{speaker}-1240.trans.txt").write_text(text)


def wmt(root: Path) -> None:
    """``train.en`` beside ``train.de``, and ``newstest2014``."""
    (root / "wmt").mkdir()
    for part, count in (("train", 40), ("newstest2014", 6)):
        for language, text in (("en", "the house is {} years old ."), ("de", "das Haus ist {} Jahre alt .")):
            lines = [text.format(number % 7) for number in range(count)]
            (root / "wmt" / f"{part}.{language}").write_text("\n".join(lines) + "\n")
        with (root / "wmt" / f"{part}.en").open("a") as source, (root / "wmt" / f"{part}.de").open("a") as target:
            source.write("too long, " * 20 + "\n")
            target.write("zu lang\n")


def coco(root: Path) -> None:
    """``coco/annotations/instances_PART.json`` and ``coco/PART``; ids of classes have gaps, and there are 80."""
    (root / "coco" / "annotations").mkdir(parents=True)
    classes = [{"supercategory": "thing", "id": n + (n > 11), "name": f"thing {n}"} for n in range(1, 81)]
    for part in ("train2017", "val2017"):
        (root / "coco" / part).mkdir()
        images, found = [], []
        for number in range(9, 19):
            name = f"{number:012d}.jpg"
            picture(root / "coco" / part / name, number)
            images.append({"license": 1, "file_name": name, "coco_url": "", "height": 48, "width": 64, "id": number})
            box = {
                "bbox": [5.5, 4.25, 20.0, 30.1],
                "area": 602.0,
                "iscrowd": 0,
                "segmentation": [[5.5, 4.25, 9, 9, 5, 9]],
            }
            found.append({**box, "image_id": number, "category_id": classes[number]["id"], "id": number})
        whole = {"info": {}, "licenses": [], "images": images, "annotations": found, "categories": classes}
        (root / "coco" / "annotations" / f"instances_{part}.json").write_text(json.dumps(whole))


def voc(root: Path) -> None:
    """``VOCdevkit/VOC2007``; persons have parts with boxes of their own, and lists of classes lie beside the whole."""
    place = root / "VOCdevkit" / "VOC2007"
    for name in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (place / name).mkdir(parents=True)
    box = "<bndbox><xmin>{}</xmin><ymin>5</ymin><xmax>40</xmax><ymax>44</ymax></bndbox>"
    for half, numbers in (("trainval", range(10)), ("test", range(10, 16))):
        (place / "ImageSets" / "Main" / f"{half}.txt").write_text("".join(f"{n:06d}\n" for n in numbers))
        (place / "ImageSets" / "Main" / f"chair_{half}.txt").write_text("".join(f"{n:06d} -1\n" for n in numbers))
        for number in numbers:
            picture(place / "JPEGImages" / f"{number:06d}.jpg", number)
            (place / "Annotations" / f"{number:06d}.xml").write_text(
                f"<annotation><folder>VOC2007</folder><filename>{number:06d}.jpg</filename>"
                "<size><width>64</width><height>48</height><depth>3</depth></size><segmented>0</segmented>"
                "<object><name>person</name><pose>Left</pose><truncated>1</truncated><difficult>0</difficult>"
                f"{box.format(10)}<part><name>head</name>{box.format(12)}</part></object></annotation>"
            )


def imagenet(root: Path) -> None:
    """``train`` and ``val``, a folder a class named by its synset; some pictures are grey."""
    for part in ("train", "val"):
        for number, synset in enumerate(("n01440764", "n01443537")):
            (root / "imagenet" / part / synset).mkdir(parents=True)
            for n in range(6):
                name = f"{synset}_{n}.JPEG" if part == "train" else f"ILSVRC2012_val_{6 * number + n + 1:08d}.JPEG"
                picture(root / "imagenet" / part / synset / name, n, "RGB" if n else "L")


@pytest.mark.parametrize(
    ("layout", "recipe", "words"),
    [
        (librispeech, "connected_digits_ctc", ["dataset=librispeech"]),
        (
            wmt,
            "number_translation",
            [
                "dataset=wmt",
                "dataset_kwargs={'longest': 40}",
                "model_kwargs.source=29",
                "model_kwargs.target_length=41",
            ],
        ),
        (coco, "digit_scenes_ssd", ["dataset=coco", *DETECTOR]),
        (voc, "digit_scenes_ssd", ["dataset=voc2007", *DETECTOR]),
        (imagenet, "digits32_resnet20", ["dataset=imagefolder:ROOT/imagenet", "dataset_kwargs={'shape': (3, 32, 32)}"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_two_batches_of_an_official_layout(layout, recipe, words, tmp_path):
    (tmp_path / "data").mkdir()
    layout(tmp_path / "data")
    made = importlib.import_module(f"recipes.{recipe}")
    words = [word.replace("ROOT", str(tmp_path / "data")) for word in words]
    where = ["--data", str(tmp_path / "data"), "--out", str(tmp_path / "out"), "--quiet"]
    run = run_recipe(made.FIXED, made.MUTABLE, made.METRICS, ["--open", "--dry-run", *where, "batch_size=4", *words])
    metrics = [metric for metric in run.metrics if metric.name == made.METRICS[0][0].name]
    assert metrics and metrics[0].value is not None


def test_long_pairs_are_left_out_and_counted(tmp_path):
    wmt(tmp_path)
    train, test = load_dataset("wmt", root=tmp_path, tokens="words", longest=10)
    assert (len(train), len(test)) == (40, 6) and "(1 pairs of more than 10 tokens left out)" in train.provenance
    assert train.target.decode(train[0]["label"]) == "das Haus ist 0 Jahre alt ."
    for options, message in (
        ({"tokens": "bytes"}, "got tokens='bytes'"),
        ({"test": "newstest2013"}, "newstest2013.en"),
    ):
        with pytest.raises(DataError, match=message):
            load_dataset("wmt", root=tmp_path, **options)
    with pytest.raises(DataError, match="no data set 'wmt': no "):
        load_dataset("wmt", root=tmp_path / "wmt")
