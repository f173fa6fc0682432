"""The scaling recipe: what it measures, its base, its quality column; real ranks in one short run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deep500.errors import InputError
from deep500.measure.statistics import Interval
from deep500.results.ranks import Ranks
from deep500.results.scaling import STRONG, WEAK, Scaling, ScalingBase, ScalingPoint
from deep500.scaling.rig import SchemeChoice
from recipes.studies.scaling import __main__ as scaling
from tests.distributed import ranks as driver

STEPS = 5


def answer(job: dict[str, Any], ranks: int) -> dict[str, Any]:
    """Steps of 10 ms alone, of 8 ms over the ranks and 1 ms of exchange under a scheme."""
    seconds = 0.008 / ranks + 0.001
    return {
        "seconds": [seconds] * job["blocks"],
        "workers": ranks,
        "steps_per_block": STEPS,
        "compute": [0.01] * (ranks * STEPS * job["blocks"]),
        "ranks": {
            "sync": "barrier",
            "summary": "max",
            "imbalance": 0.1,
            "rank_p": 0.5,
            "offsets": [0.0] * ranks,
            "errors": [1e-6] * ranks,
            "waiting": [0.2] * ranks,
            "sent": [100.0] * ranks,
            "seconds": [[seconds] * 8] * ranks,
        },
    }


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, dict[str, Any]]]:
    """What would have been launched."""
    seen: list[tuple[int, dict[str, Any]]] = []

    def on_ranks(ranks: int, job: dict[str, Any]) -> dict[str, Any]:
        seen.append((ranks, job))
        return answer(job, ranks)

    monkeypatch.setattr(scaling, "on_ranks", on_ranks)
    return seen


def run(tmp_path: Path, *words: str) -> int:
    return scaling.main(["--framework", "reference", "--out", str(tmp_path), *words])


def test_tables_have_their_base_intervals_and_ranks(launches: list[Any], tmp_path: Path, capsys: Any) -> None:
    assert run(tmp_path, "--ranks", "2,4", "--seeds", "0", "--rounds", "6", "--blocks", "3") == 0
    said = capsys.readouterr().out
    folder = tmp_path / "scaling" / "digits_lenet"
    strong, weak = Scaling.read(folder / STRONG), Scaling.read(folder / WEAK)
    assert strong is not None and weak is not None
    assert strong.base.kind == "serial-best" and strong.base.seconds.median == pytest.approx(0.01)
    assert [(e.ranks, e.global_batch) for e in strong.entries] == [(1, 32), (2, 32), (4, 32)]
    assert [(e.ranks, e.global_batch) for e in weak.entries] == [(1, 32), (2, 64), (4, 128)]
    two = strong.entries[1]
    assert two.seconds.median == pytest.approx(0.005) and two.seconds.low is not None and two.quality is None
    assert strong.efficiency(two).median == pytest.approx(1.0) and "without a scheme" in said
    assert len(launches) == 6 * 6 and {job["global_batch"] for _, job in launches} == {32, 64, 128}
    assert [ranks for ranks, _ in launches] != sorted(ranks for ranks, _ in launches)  # they take turns
    ranks = Ranks.read(folder / STRONG)
    assert ranks is not None and len(ranks.ranks) == 4 and ranks.ranks[0].waiting == 0.2
    assert (folder / "scaling.html").read_text(encoding="utf-8").count('class="plot"') == 4


def test_a_fall_in_accuracy_is_an_exit_code(
    launches: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(scaling, "quality", lambda chosen, scheme, ranks, whole: (98.0 - ranks, None))
    assert run(tmp_path, "--ranks", "2", "--mode", "strong", "--rounds", "1") == 0
    assert run(tmp_path, "--ranks", "4", "--mode", "strong", "--rounds", "1") == 1
    assert "accuracy falls: strong, ConsistentDecentralized on 4 ranks: 94, was 97" in capsys.readouterr().out
    base = ScalingBase("x", "serial-best", 32, Interval(1.0, None, None, 1))
    lone = Scaling(base, (ScalingPoint(4, 32, "A", Interval(1.0, None, None, 1), quality=1.0),))
    assert scaling.fallen([lone], 1.0) == []


@pytest.mark.mpi
def test_quality_is_that_of_whole_trainings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if driver.missing():
        pytest.skip(str(driver.missing()))
    recipe = tmp_path / "quick.py"
    recipe.write_text(
        "import deep500 as d5\nimport deep500.frameworks.reference as d5fw\n"
        'FIXED = {"model": "mlp", "model_kwargs": {"hidden": (8,)}, "dataset": "digits", "epochs": 1}\n'
        'MUTABLE = {"batch_size": 64, "executor": d5fw.from_model, "optimizer": d5fw.GradientDescent}\n'
        "METRICS = [(d5.TestAccuracy(), 1.0)]\n"
    )
    chosen = scaling.options(["--recipe", str(recipe), "--framework", "reference"])
    alone, low = scaling.quality(chosen, SchemeChoice.parse("LocalSGD(every=2)"), 1, 64)
    together, _ = scaling.quality(chosen, SchemeChoice.parse("ConsistentDecentralized"), 2, 64)
    assert alone is not None and together is not None and low is None
    assert 5 < alone <= 100 and abs(alone - together) < 30


@pytest.mark.mpi
@pytest.mark.slow
def test_a_dry_run_measures_two_ranks(tmp_path: Path, capsys: Any) -> None:
    if driver.missing():
        pytest.skip(str(driver.missing()))
    assert run(tmp_path, "--dry-run") == 0
    table = Scaling.read(tmp_path / "scaling" / "digits_lenet" / STRONG)
    assert table is not None and [e.ranks for e in table.entries] == [1, 2]
    assert all(e.seconds.median > 0 for e in table.entries)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ranks", "2,x"], "got --ranks 2,x"),
        (["--ranks", "0"], "got --ranks 0"),
        (["--rounds", "0"], "--rounds 0"),
        (["--seeds", "-1"], "--seeds -1"),
    ],
)
def test_numbers_that_are_none_are_refused(words: list[str], message: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        scaling.options(words)
    assert message in capsys.readouterr().err


def test_what_cannot_be_measured_is_said(launches: list[Any], tmp_path: Path, capsys: Any) -> None:
    assert run(tmp_path, "--schemes", "InconsistentParameterServer", "--ranks", "1") == 2
    assert "expected more ranks" in capsys.readouterr().err
    assert run(tmp_path, "--schemes", "InconsistentParameterServer", "--ranks", "2") == 2
    assert "none of which runs on one rank" in capsys.readouterr().err
    with pytest.raises(InputError, match="expected more ranks"):
        scaling.points(scaling.options(["--mode", "strong", "--ranks", "64"]), 0)
