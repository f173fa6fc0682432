"""A data set of one's own is one file, with its facts, its format and its name: here a made one and a published one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import DataError
from deep500.training.data import (
    BuiltIn,
    Layout,
    NumpyDataset,
    Published,
    StandInWarning,
    dataset_info,
    dataset_names,
    load_dataset,
    register_dataset,
)
from deep500.training.data.catalog import DATASETS
from deep500.training.data.dataset import check_labels
from deep500.training.data.rawfile import RawFile
from tests.recipes.common import quick


def stripes(seed: int = 0, noise: float = 0.3) -> tuple[NumpyDataset, NumpyDataset]:
    """Horizontal or vertical stripes of 8x8 pixels, in noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, 300)
    lines = np.broadcast_to(np.arange(8) % 2, (8, 8)).astype(np.float32)
    images = np.where(labels[:, None, None], lines, lines.T) + noise * rng.normal(size=(300, 8, 8))
    pixels = images[:, None].astype(np.float32)
    halves = (slice(0, 200), slice(200, None))
    train, test = (NumpyDataset(pixels[half], labels=labels[half], name="stripes", classes=2) for half in halves)
    return train, test


def read_text(
    files: Sequence[RawFile], images: tuple[int, int, int, int], classes: int
) -> tuple[np.ndarray, np.ndarray]:
    """One sample per line: its label, then its pixels."""
    (file,) = files
    table = np.array([line.split() for line in file.data.decode().splitlines()], np.int64)
    if table.shape != (images[0], 1 + int(np.prod(images[1:]))):
        raise file.error(f"a table of {table.shape}", f"{images[0]} samples")
    check_labels(table[:, 0], classes, file.where)
    return table[:, 1:].astype(np.uint8).reshape(images), table[:, 0]


STRIPES = BuiltIn("stripes", 2, (1, 8, 8), (200, 100), "stripes that lie or stand", make=stripes)
TABLE = Published(
    "table", 2, (1, 2, 2), (2, 1), "a table of pixels", (Layout(read_text, ("train.txt",), ("test.txt",), ("table",)),)
)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """A file of a user's registers when it is imported; here the names go again after each test."""
    for info in (STRIPES, TABLE):
        register_dataset(info)
    yield
    for info in (STRIPES, TABLE):
        del DATASETS[info.name]


def test_a_recipe_trains_on_it_by_name(tmp_path):
    fixed, mutable, _ = quick("reference", dataset="stripes", augmentation=None)
    result = d5.run_recipe(fixed, mutable, [(d5.TestAccuracy(), 95.0)], ["--quiet", "--out", str(tmp_path)])
    assert result, result["test_accuracy"].value


def test_it_is_listed_and_takes_its_own_options(capsys):
    from deep500.cli import main

    assert {"stripes", "table"} < set(dataset_names()) and dataset_info("stripes").built_in
    assert main(["list"]) == 0 and "stripes that lie or stand" in capsys.readouterr().out
    train, test = load_dataset("stripes", noise=0.0)
    assert (len(train), len(test)) == STRIPES.counts and set(np.unique(train[:]["input"])) == {0, 1}
    with pytest.raises(DataError, match="did you mean 'noise'"):
        load_dataset("stripes", noize=1.0)


def test_files_are_found_checked_and_replaced_by_a_stand_in_as_those_of_other_sets(tmp_path):
    folder = tmp_path / "table"
    folder.mkdir()
    (folder / "train.txt").write_text("0 0 0 255 255\n1 0 255 0 255\n")
    (folder / "test.txt").write_text("1 255 0 255 0\n")
    train, test = load_dataset("table", root=tmp_path)
    assert train[1]["input"].tolist() == [[[0, 1], [0, 1]]] and test[0]["label"] == 1 and len(train) == 2
    (folder / "test.txt").write_text("2 255 0 255 0\n")
    with pytest.raises(DataError, match="label 2"):
        load_dataset("table", root=tmp_path)
    with pytest.warns(StandInWarning, match="table: not found"):
        assert load_dataset("table", root=tmp_path / "elsewhere", stand_in=True)[0].shape == (1, 2, 2)


def test_a_name_is_taken_once():
    with pytest.raises(DataError, match="second data set 'digits'"):
        register_dataset(BuiltIn("digits", 2, (1, 8, 8), (200, 100), "another", make=stripes))
