"""Folders that break rules in ways of their own, sealed anew, are flagged by who should; honest ones raise no alarm."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from deep500.metrics import RoofShare, TestAccuracy, Throughput, TimingBreakdown, TrainingTime
from deep500.recipe import run_recipe
from deep500.report.command import examine_with_page
from deep500.results.rules import FLAGGED, check
from deep500.results.verify import examine, seal
from tests.recipes.common import quick
from tests.results.broken_folders import OWN, REVIEWERS, Folder, resealed

METRICS = [
    (TestAccuracy(), 20.0),
    *((metric, None) for metric in (TrainingTime(), Throughput(), TimingBreakdown(), RoofShare())),
]


def honest_run(out):
    """A real run of three seeds and three epochs."""
    argv = ["--repeat", "3", "--quiet", "--out", str(out)]
    return Path(run_recipe(*quick("reference", epochs=3, metrics=METRICS), argv=argv).path)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    """The run that all others are copies of."""
    return honest_run(tmp_path_factory.mktemp("honest"))


def flags(path, page=False):
    """Ids of the rules that flag a folder, and what ``verify`` says of it."""
    problems = (examine_with_page if page else examine)(path).problems
    return [name for name, found in check(path).items() if found.status in FLAGGED], list(problems)


def test_an_honest_run_raises_no_alarm(honest):
    assert flags(honest, page=True) == ([], [])


def test_the_message_says_what_was_checked_and_what_is_sealed_only(honest, tmp_path):
    text = str(examine_with_page(honest))
    assert "checked anew: statistics from samples, values of seeds from the curve" in text and "NOT" not in text
    assert "report from all files; sealed only: raw samples" in text
    folder = Folder(honest, tmp_path / "copy")
    (folder.path.parent / "ledger.jsonl").unlink()
    assert "NOT checked, files are missing: run against the ledger beside it" in str(examine(folder.path))


def test_a_seed_without_its_checkpoints_is_said_to_be_unchecked(honest, tmp_path):
    folder = Folder(honest, tmp_path / "copy")
    for file in (folder.path / "checkpoints" / "seed-1").glob("*"):
        file.unlink()
    seal(folder.path)
    assert examine(folder.path).absent == ("curve against checkpoints of seed 1",)
    assert [problem for problem in examine(folder.path).problems if problem.startswith("checkpoints: of seed 1 (none)")]
    shutil.rmtree(folder.path / "checkpoints")
    seal(folder.path)
    assert examine(folder.path).absent == ("curve against checkpoints",)


def test_there_are_enough_of_them():
    assert len(REVIEWERS) == 34 and len(OWN) >= 40


@pytest.mark.parametrize("kind", [*REVIEWERS, *OWN])
def test_a_broken_folder_is_flagged_by_who_should(kind, honest, tmp_path):
    change, noticed_by = {**REVIEWERS, **OWN}[kind]
    folder = Folder(honest, tmp_path / "copy")
    change(folder)
    rules, problems = flags(resealed(folder), page=kind == "page that says more")
    named = noticed_by in rules or any(noticed_by in problem for problem in problems)
    assert named, f"expected {noticed_by!r}; rules {rules}, verify {problems}"
