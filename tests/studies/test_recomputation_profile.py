"""The checkpointing recipe: its networks are what it says, its tables hold what was measured, faults are seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.measure.statistics import Interval
from deep500.results.recomputation import MEASURED, Choice, RecomputationRecord
from deep500.transformations.recomputation import find_regions, load_plan
from deep500.transformations.recomputation.region_tree import Region
from recipes.studies.recomputation_profile import __main__ as recipe
from recipes.studies.recomputation_profile import profiling
from recipes.studies.recomputation_profile.measuring import StepRunner, equal, time_in_turns
from recipes.studies.recomputation_profile.printing import guided_line, profile_table, ways_table
from recipes.studies.recomputation_profile.profiling import Bench, ProfileSettings
from recipes.studies.recomputation_profile.subjects import FULL, SMALL
from tests.conftest import load_backend

pytestmark = pytest.mark.slow

TINY = {
    "mixed_resnet": {"width": 2, "blocks": (1, 1, 1, 1), "shape": (3, 8, 8)},
    "unet": {"width": 2, "levels": 1, "shape": (3, 8, 8)},
    "transformer": {"width": 8, "vocabulary": 9, "layers": 2, "shape": (8,)},
    "nested_resnet": {"width": 2, "counts": (2, 2, 2), "shape": (3, 8, 8)},
}
FEW = ProfileSettings(
    "pytorch", (0.9, 0.7), (0.8,), (), rounds=2, passes=1, options={"recompute": "explicit", "recognise": False}
)


def tiny(name: str) -> Any:
    subject = next(small for small in SMALL if small.name == name)
    return replace(subject, options=TINY[subject.model], batch=32)


def depth(region: Region) -> int:
    return 1 + max((depth(child) for child in region.children), default=0)


def test_networks_are_what_they_are_called() -> None:
    """20 blocks in a chain; more than 100 regions, three deep."""
    regions = {s.name: find_regions(s.network(), s.batch, crossing=s.crossing) for s in FULL}
    chain = [region for region in regions["chain"].root.walk() if not region.children]
    assert len(chain) == 20 and len({region.full_tape for region in chain}) > 5
    nested = regions["nested"].root
    assert len(list(nested.walk())) - 1 == 129 and depth(nested) - 1 == 3
    assert len([region for region in regions["unet"].root.walk() if not region.children]) > 10
    assert [s.name for s in SMALL] == list(recipe.NAMES)


@pytest.mark.parametrize("name", recipe.NAMES)
def test_predictions_hold_and_no_bit_changes(name: str) -> None:
    load_backend("pytorch")
    profiled = Bench(tiny(name), FEW).run()
    assert profiled.wrong == []
    record = profiled.record
    assert record.source == MEASURED and record.backend == "pytorch" and record.time_unit == "s"
    ran = [choice for choice in record.choices if not choice.note.startswith("not run")]
    assert {"none", "planned", "every", "sqrt(n)"} <= {choice.family for choice in ran}
    for choice in ran:
        assert choice.measured_peak == pytest.approx(choice.predicted_peak, rel=0.02), choice.label
        assert choice.measured_time is not None and choice.ratio is not None and choice.ratio.n == 2
    assert set(profiled.plans) == {choice.label for choice in ran} - {"no recomputation"}
    if name in ("unet", "nested"):
        everything = next(choice for choice in ran if choice.label == "everything")
        assert everything.regions == sum(row.candidate for row in record.regions)
        free = next(choice for choice in ran if choice.label.startswith("greedy, no more"))
        assert free.predicted_peak <= everything.predicted_peak and free.predicted_time < everything.predicted_time
        assert "times as measured" in guided_line(record)


@pytest.mark.long
def test_pytorchs_own_planner_takes_part() -> None:
    load_backend("pytorch")
    profiled = Bench(tiny("transformer"), replace(FEW, torch=(1.0, 0.3))).run()
    full, less = (c for c in profiled.record.choices if c.family == "torch")
    base, ours = profiled.record.choices[0], profiled.record.choices[-1]
    assert less.measured_peak < full.measured_peak == pytest.approx(base.measured_peak, rel=0.02)
    assert full.predicted_peak is None and full.measured_time is not None
    assert ours.label == "planned, torch's best peak" and ours.predicted_peak <= less.measured_peak


def test_dry_run_without_pytorch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables, files and page, which say what the reference cannot measure."""
    monkeypatch.setattr(recipe, "SMALL", [tiny(name) for name in recipe.NAMES])
    words = ["--dry-run", "--backend", "reference", "--network", "chain", "--network", "nested", "--out", str(tmp_path)]
    assert recipe.main(words) == 0
    out = capsys.readouterr().out
    assert out.count("no recomputation") == 2 and "2 rounds in turns" in out and "for context only" in out
    folder = tmp_path / "recomputation_profile"
    record = RecomputationRecord.read(folder / "nested")
    assert record is not None and record.backend == "reference" and (folder / "nested" / "profile.json").exists()
    assert (folder / "recomputation.html").read_text().count('id="part-') >= 2
    plans = sorted((folder / "chain").glob("plan-*.json"))
    assert len(plans) >= 3
    network = tiny("chain").network()
    for path in plans:  # any backend takes a plan that was made on another
        load_backend("reference").from_model(network).set_checkpointing(load_plan(path))


def test_faults_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    """A plan that holds too much, and one that changes a bit."""
    real = profiling.runner_of

    def broken(executor: Any, arrays: Any) -> Any:
        runner, answer = real(executor, arrays)
        if executor.checkpointing is not None:
            name = next(iter(answer))
            answer[name] = np.nextafter(answer[name], np.float32(9))
            runner.peak = 10**9
        return runner, answer

    monkeypatch.setattr(profiling, "runner_of", broken)
    monkeypatch.setattr(recipe, "SMALL", [tiny("chain")])
    assert recipe.main(["--dry-run", "--backend", "reference", "--network", "chain", "--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "WRONG: chain: planned, 90 %: gradients or running statistics differ" in out
    assert "got a measured peak of 1,000,000,000 bytes; expected" in out


def test_tables_cut_what_is_long_and_say_what_was_not_run() -> None:
    profiled = Bench(tiny("chain"), replace(FEW, backend="reference", options={}, budgets=(0.9, 0.01), guided=())).run()
    record = profiled.record
    text = ways_table(record)
    assert "planned, 1 %: not run: got a budget of" in text and "not measured" in text
    assert guided_line(record) == ""
    assert "lines more, in recomputation.json" in profile_table(record, most=1)
    assert "lines more" not in profile_table(record, most=100)


def test_guided_line_divides_by_hand() -> None:
    record = Bench(tiny("chain"), replace(FEW, backend="reference", options={}, guided=())).run().record
    ways = [("everything", 6.0, 3.0), ("greedy, no more than everything", 4.0, 2.5), ("greedy, 10 % more", 3.0, 2.0)]
    choices = tuple(Choice(n, "", predicted_time=p, measured_time=Interval(m, None, None, 2)) for n, p, m in ways)
    line = guided_line(replace(record, choices=choices))
    assert "1.50 times as fast as predicted, 1.20 times" in line and "2.00 times as fast as predicted, 1.50" in line


def test_turns_and_bits() -> None:
    calls: list[int] = []
    runners = [
        StepRunner(lambda which=which: calls.append(which) or (sum(range(20_000)) and None)) for which in range(3)
    ]  # type: ignore[misc, func-returns-value]
    timed = time_in_turns(runners, 4, True)
    assert len(calls) == 3 + 3 * 4 and all(sorted(calls[i : i + 3]) == [0, 1, 2] for i in range(0, 15, 3))
    assert timed[0].ratio.median == 1 and timed[1].seconds.n == 4
    arrays = {"a": np.array([1.0, np.nan]), "b": np.zeros(2, "float32")}
    assert equal(arrays, {name: value.copy() for name, value in arrays.items()})
    assert not equal(arrays, {**arrays, "b": -np.zeros(2, "float32")}) and not equal(arrays, {"a": arrays["a"]})


@pytest.mark.parametrize(
    "words",
    [
        ["--budgets", "0.5,2"],
        ["--budgets", "half"],
        ["--budgets", "0"],
        ["--rounds", "0"],
        ["--network", "alexnet"],
        ["--backend", "caffe"],
    ],
)
def test_bad_words(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        recipe.options(words)
    assert end.value.code == 2 and words[0] in capsys.readouterr().err
