"""Suites, the project's and the user's; each bad one is an error of one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from deep500.errors import RecipeError
from deep500.race.workloads import SUITES, Workload, find_suite, quality_of
from deep500.tasks.task import Quality
from deep500.training.data import dataset_info

GOOD = '[[workload]]\nrecipe = "digits_lenet"\ntarget = 90\nseconds = 1\nsteps = 100\nevery = 10\n'


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.backend("pytorch")
def test_suites_need_no_download(name: str) -> None:
    recipes = [workload.plan().values["dataset"] for workload in find_suite(name)]
    assert all(dataset_info(recipe).built_in for recipe in recipes)
    assert len({workload.recipe for workload in SUITES["small"]}) >= 5


def test_a_file_of_the_users(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(GOOD + 'words = ["batch_size=64"]\n' + GOOD + 'name = "again"\nquality = "accuracy"\n')
    first, second = find_suite(str(file))
    assert first == Workload("digits_lenet", 90, 1, 100, 10, ("batch_size=64",))
    assert (first.title, second.title, second.quality) == ("digits_lenet", "again", "accuracy")
    assert first.facts()["sha256"] and first.facts() != second.facts()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD.replace("digits_lenet", "digits_lanet"), "got recipe 'digits_lanet'.*did you mean 'digits_lenet'"),
        (GOOD + GOOD, "got two workloads 'digits_lenet'"),
        (GOOD + 'name = "../up"\n', r"got workload '\.\./up'"),
        (GOOD.replace("steps = 100\n", ""), "workload 1: got no steps"),
        (GOOD + "colour = 3\n", "workload 1: got colour: 3|workload 1: got colour"),
        (GOOD.replace("target = 90", 'target = "high"'), "expected a number"),
        (GOOD.replace("seconds = 1", "seconds = 0"), "expected positive numbers"),
        (GOOD.replace("every = 10", "every = 1000"), "an evaluation within the steps"),
        ("[[workload]", "expected TOML"),
        ("a = 1\n", "got no workload"),
        ("", "got no workload"),
    ],
)
def test_bad_suites(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(RecipeError, match=says) as error:
        find_suite(str(file))
    assert "\n" not in str(error.value)


def test_unknown_suites_and_qualities() -> None:
    with pytest.raises(RecipeError, match="did you mean 'small'"):
        find_suite("smal")
    workload, qualities = Workload("digits_lenet", 1, 1, 1, 1), (Quality("error", direction="lower"), Quality("map"))
    assert quality_of(workload, qualities) == ("error", False)
    with pytest.raises(RecipeError, match="got quality 'mop'"):
        quality_of(Workload("digits_lenet", 1, 1, 1, 1, quality="mop"), qualities)
