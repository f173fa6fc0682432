"""Two runs of one recipe: what differed first, then whether it mattered, never more than the launches show."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pytest

from deep500 import cli
from deep500.compare import report
from deep500.compare.claims import run_claims
from deep500.compare.runs import InvalidComparison, compare_pairs, compare_runs
from deep500.measure.launch_comparison import Floor
from deep500.results.samples import SampleStore
from deep500.results.stats import declared_series
from deep500.results.verify import seal, write_stats

QUALITY = {"name": "test_accuracy", "kind": "quality", "direction": "higher", "unit": "%"}
BEGIN = datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.timezone.utc)


def make(folder, factor=1.0, n=400, launches=1, seed=0, recipe="job", each=64, spread=0.0, ranks=1, **changes):
    """A finished run whose launches lie ``spread`` apart; ``changes`` go into the manifest, or the recipe's keys."""
    folder.mkdir(parents=True)
    manifest = {
        "schema": "deep500-results-1",
        "recipe": recipe,
        "started": (BEGIN + datetime.timedelta(minutes=seed)).isoformat(),
        "resolved": {"recipe": {"batch_size": changes.pop("batch_size", 64)}, "metrics": [QUALITY]},
        "recipe_sha256": changes.pop("recipe_sha256", "0" * 64),
        "seeds": list(range(launches)),
        "series": declared_series(each),
        "environment": {"cpu": changes.pop("cpu", "made up"), "volatile": {"pid": seed}},
        "ranks": ranks,
        "processes": {"scheme": None if ranks == 1 else "ModelAverage", "each": [{"host": f"host{seed}"}]},
    }
    drift, busy, shared = changes.pop("drift", 0.0), changes.pop("busy", False), changes.pop("shared", False)
    values, word = changes.pop("values", [97.0] * launches), changes.pop("word", "PASSED")
    (folder / "manifest.json").write_text(json.dumps(manifest | changes))
    metric = {"name": "test_accuracy", "value": float(np.median(values)), "values": list(values), "verdict": word}
    metric["unit"] = "%"
    (folder / "summary.json").write_text(json.dumps({"metrics": [metric]}))
    rng, store = np.random.default_rng(seed), SampleStore(folder)
    for launch in range(launches):
        slower = factor * np.exp(spread * rng.standard_normal()) * np.linspace(1, 1 + drift, n)
        times = (1e6 * slower * np.exp(0.02 * rng.standard_normal(n))).astype(np.int64)
        store.append("step", launch, np.cumsum(times), times)
    if shared:
        clock = {"began": 0.0, "wall_seconds": 1.0, "steps": n, "process": "7-1"}
        lines = [json.dumps({"seed": launch, "epoch": 1, "clock": clock}) + "\n" for launch in range(launches)]
        (folder / "metrics.jsonl").write_text("".join(lines))
    if busy:  # of ten seconds on two processors, other processes took seventeen
        counters = dict.fromkeys(("steal", "pressure", "throttled", "thermal_events", "swapped_pages"), 0.0)
        load = {"seconds": 10.0, "cpus": 2, "busy": 19.0, "own": 2.0, **counters}
        line = {"seed": 0, "epoch": 1, "load": load}
        (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    write_stats(folder)
    seal(folder)
    return folder


def reported(folder):
    """The median that the figures of a run report."""
    return json.loads((folder / "stats.json").read_text())["series"]["step"]["estimates"][0]["value"]


@pytest.mark.parametrize(
    ("factor", "verdict", "code"), [(1.1, "slower", 1), (0.9, "faster", 0), (1.0, "equivalent", 0)]
)
def test_what_differed_and_whether_it_mattered(tmp_path, factor, verdict, code):
    first = make(tmp_path / "a", launches=12)
    second = make(tmp_path / "b", factor, launches=12, seed=1, batch_size=32)
    comparison = compare_runs(first, second)
    assert comparison.changed == {"resolved.recipe.batch_size": (64, 32)}
    (step,) = comparison.series
    assert (step.verdict, comparison.exit_code, step.basis) == (verdict, code, "over 12 launches")
    assert step.ratio.low <= factor * 1.01 and step.ratio.high >= factor * 0.99
    text = str(comparison)
    assert (
        text.index("test_accuracy: no loss shown, medians 97 -> 97 %")
        < text.index(verdict)
        < text.index("recipe: batch_size 64 -> 32")
    )


@pytest.mark.parametrize(
    ("values", "word", "code"),
    [
        ([45.0] * 12, "PASSED", 1),  # significantly worse, whatever the targets say
        ([97.0] * 11 + [90.0], "FAILED", 1),  # a target that the base reached
        ([97.0] * 11 + [96.5], "PASSED", 0),
        ([99.0] * 12, "PASSED", 0),
    ],
)
def test_quality_decides_before_speed(tmp_path, values, word, code):
    first = make(tmp_path / "a", launches=12)
    comparison = compare_runs(first, make(tmp_path / "b", 0.5, launches=12, seed=1, values=values, word=word))
    assert (comparison.series[0].verdict, comparison.exit_code) == ("faster", code)
    said = comparison.as_dict()
    (facts,), (step,) = said["qualities"], said["series"]
    assert json.loads(json.dumps(said)) == said
    assert step["test"] == "Mann and Whitney's, of launches" and 0.45 < step["ratio"] < 0.55 and step["p"] < 0.05
    assert step["times"]["unit"] == "s" and step["times"]["second"] / step["times"]["first"] == pytest.approx(
        step["ratio"]
    )
    assert said["metrics"]["test_accuracy"]["unit"] == "%" and said["metrics"]["test_accuracy"]["first"] == 97.0
    assert facts["unit"] == "%" and facts["low"] <= facts["difference"] <= facts["high"] and "12 pairs" in facts["test"]
    assert json.loads(json.dumps(facts)) == facts


def test_a_loss_that_few_seeds_cannot_show_is_not_green(tmp_path):
    first = make(tmp_path / "a", word="not judged")
    worse = make(tmp_path / "b", 0.5, seed=1, values=[45.0], word="not judged")
    assert compare_runs(first, worse, floor=Floor(0.01)).exit_code == 2
    assert compare_runs(worse, first, floor=Floor(0.01)).exit_code == 1  # better, and slower
    assert "not tested, 97 -> 45 %" in str(compare_runs(first, worse))
    faster = compare_runs(first, worse, floor=Floor(0.01))
    assert faster.series[0].verdict == "faster" and report._word(faster, faster.series[0]) == "unresolved"


def test_series_beside_the_steps_change_no_verdict_on_them(tmp_path):
    folders = [make(tmp_path / name, 1 + 0.1 * seed, launches=12, seed=seed) for seed, name in enumerate("ab")]
    (alone,) = compare_runs(*folders).series
    for folder in folders:
        times = (1e6 * np.random.default_rng(1).exponential(1, 20)).astype(np.int64)
        for series, launch in ((series, launch) for series in ("forward", "backward") for launch in range(12)):
            SampleStore(folder).append(series, launch, np.cumsum(times), times)
        write_stats(folder)
        seal(folder)
    beside = {series.series: series for series in compare_runs(*folders).series}
    assert len(beside) == 3 and 0 < alone.p < 1 and beside["step"].p == alone.p


@pytest.mark.parametrize(
    ("launches", "few"),
    [
        (1, "one launch each: repeat with --repeat 12"),
        (2, "2 launches each: repeat with --repeat 12"),
        (11, "11 launches each: repeat with --repeat 12"),
    ],
)
def test_few_launches_have_no_verdict_whatever_their_samples_say(tmp_path, launches, few):
    first, second = make(tmp_path / "a", launches=launches), make(tmp_path / "b", 1.5, launches=launches, seed=1)
    comparison = compare_runs(first, second)
    (step,) = comparison.series
    assert (step.verdict, step.p, step.ratio.low, comparison.exit_code) == ("unresolved", None, None, 2)
    assert f"step: unresolved ({few}, or take turns with --against), time ratio 1." in str(comparison)


def test_a_declared_floor_is_part_of_the_interval(tmp_path):
    first, second = make(tmp_path / "a"), make(tmp_path / "b", 1.05, seed=1)
    (step,) = compare_runs(first, second, floor=Floor(0.01)).series
    assert step.verdict == "slower" and step.basis == "over one launch, 1 % between launches, declared"
    assert step.ratio.low == pytest.approx(step.ratio.median * np.exp(-1.96 * 0.01 * 2**0.5), rel=0.002)
    (step,) = compare_runs(first, second, floor=Floor(0.02)).series
    assert step.verdict == "unresolved" and step.ratio.low < 1 < step.ratio.high and not step.reason


def test_launches_that_lie_farther_apart_than_declared_count(tmp_path):
    first, second = (make(tmp_path / name, launches=2, seed=seed, spread=0.3) for seed, name in enumerate("ab"))
    (step,) = compare_runs(first, second, floor=Floor(0.001)).series
    assert step.verdict == "unresolved" and step.basis == "over 2 launches, Student's t"


def test_earlier_runs_tell_how_far_runs_lie_apart(tmp_path):
    """Runs 5 % apart: two of them with eight launches each are unlike, until history says what that means."""
    rng = np.random.default_rng(0)
    first, second = (
        make(tmp_path / "a" / name, f, launches=12, seed=s) for s, (name, f) in enumerate({"x": 1, "y": 1.05}.items())
    )
    assert compare_runs(first, second).series[0].verdict == "slower"
    for seed in range(2, 6):
        make(tmp_path / "a" / str(seed), np.exp(0.05 * rng.standard_normal()), launches=12, seed=seed)
    (step,) = compare_runs(first, second).series
    assert step.verdict == "unresolved" and "% between 4 earlier runs" in step.basis
    few = [make(tmp_path / "a" / f"few{f}", f, seed=6) for f in (1, 3)]
    (step,) = compare_runs(*few).series
    assert step.verdict == "slower" and "% between 6 earlier runs" in step.basis  # these are earlier ones, too


@pytest.mark.parametrize("change", [{"cpu": "another"}, {"batch_size": 32}, {"dry_run": True}, {"recipe": "other"}])
def test_runs_that_are_not_alike_tell_nothing(tmp_path, change):
    first, second = (make(tmp_path / "a" / name, seed=seed) for seed, name in enumerate("xy"))
    alike = [make(tmp_path / "a" / str(seed), 1 + seed / 50, seed=seed) for seed in range(3)]
    make(tmp_path / "a" / "odd", seed=9, **change)
    assert compare_runs(first, second).series[0].reason.startswith("one launch each")
    make(tmp_path / "a" / "fourth", seed=3)
    assert "between 4 earlier runs" in compare_runs(first, second).series[0].basis
    (alike[0] / "stats.json").write_text("{}")  # altered: it does not count
    assert compare_runs(first, second).series[0].reason.startswith("one launch each")


@pytest.mark.parametrize("launches", [1, 2, 8])
def test_the_ratio_is_that_of_the_reported_medians(tmp_path, launches):
    """Also of series so dependent that few of their samples are worth anything, and where one is much longer."""
    first = make(tmp_path / "a", launches=launches, spread=0.1)
    second = make(tmp_path / "b", launches=launches, n=1300, seed=1, spread=0.1)
    for floor in (None, Floor(0.05)):
        (step,) = compare_runs(first, second, floor=floor).series
        assert step.ratio.median == reported(second) / reported(first)


def test_the_ratio_of_dependent_samples_is_that_of_their_medians(tmp_path):
    """Square waves: one sample in two periods is worth something, and their median may be any of the two levels."""
    folders = []
    for seed, period in enumerate((40, 60)):
        folder = make(tmp_path / str(seed), seed=seed)
        store = SampleStore(folder)
        levels = np.where(np.arange(4000) % period < period * 0.45, 2e6, 1e6) * (1 + 0.01 * seed)
        store.append("wave", 0, np.arange(4000), levels.astype(np.int64))
        write_stats(folder)
        seal(folder)
        folders.append(folder)
    waves = {one.series: one for one in compare_runs(*folders, floor=Floor(0.01)).series}["wave"]
    assert waves.ratio.median == pytest.approx(1.01)


@pytest.mark.parametrize("launches", [1, 8])
def test_what_is_not_steady_has_no_verdict(tmp_path, launches):
    first = make(tmp_path / "a", launches=launches)
    second = make(tmp_path / "b", 1.5, launches=launches, seed=1, drift=0.3)
    comparison = compare_runs(first, second, floor=Floor(0.001))
    (step,) = comparison.series
    assert (step.verdict, comparison.exit_code, step.ratio.low) == ("unresolved", 2, None)
    assert step.reason.startswith("the second is not steady: ")


def test_runs_that_were_taken_apart_say_so(tmp_path):
    first, second = (make(tmp_path / name, 1, launches=12, seed=90 * k, shared=True) for k, name in enumerate("ab"))
    (remark,) = compare_runs(first, second).remarks
    assert remark.startswith(
        "taken apart (begun 1:30:00 h apart): what the machine changed in between is in no interval"
    )
    assert "(the launches of a run share one)" in remark and remark.endswith("deep500 run A --against B sees it")
    assert remark in str(compare_runs(first, second))


def test_another_recipe_file_is_a_difference(tmp_path):
    first, second = make(tmp_path / "a"), make(tmp_path / "b", seed=1, recipe_sha256="1" * 64)
    assert compare_runs(first, second).changed == {"recipe_sha256": ("0" * 64, "1" * 64)}


def test_the_number_of_ranks_is_a_difference(tmp_path):
    comparison = compare_runs(make(tmp_path / "a"), make(tmp_path / "b", ranks=2, seed=1))
    assert comparison.changed == {"ranks": (1, 2), "processes.scheme": (None, "ModelAverage")}


def test_steps_of_different_batches_are_compared_by_sample(tmp_path):
    first, second = make(tmp_path / "a", launches=12), make(tmp_path / "b", 0.5, launches=12, seed=1, each=32)
    (step,) = compare_runs(first, second).series
    assert step.verdict == "equivalent" and step.basis == "over 12 launches, per sample of 64 and 32 a step"
    (said,) = compare_runs(first, second).as_dict()["series"]
    assert said["times"]["unit"] == "s per sample" and said["times"]["first"] == reported(first) / 64
    estimates = [
        json.loads((path / "stats.json").read_text())["series"]["step"]["estimates"][0] for path in (first, second)
    ]
    base = next(claim for claim in run_claims([step], {"step": estimates}) if claim["type"] == "speedup")
    assert base["base"]["seconds"] / base["value"] == pytest.approx(reported(second) / 32)


def test_launches_that_differ_among_themselves_resolve_nothing(tmp_path):
    """Eight launches of 400 samples are eight values, not 3200: their spread is what counts."""
    first = make(tmp_path / "a", launches=12, spread=0.2)
    second = make(tmp_path / "b", 1.05, launches=12, seed=1, spread=0.2)
    assert compare_runs(first, second).series[0].verdict == "unresolved"


def test_few_samples_resolve_nothing(tmp_path):
    comparison = compare_runs(make(tmp_path / "a", n=5), make(tmp_path / "b", 1.5, n=5, seed=1), floor=Floor(0.01))
    assert comparison.exit_code == 2 and comparison.series[0].reason == "too few samples within the launches"


def in_turns(folder, spread, factor, seed=0, pairs=12):
    """Two sides whose launches lie far apart, but together: what the machine does hits both of a turn."""
    levels = np.exp(spread * np.random.default_rng(seed).standard_normal(pairs))
    for side, slower in (("first", 1.0), ("second", factor)):
        run = make(folder / side, launches=pairs, seed=seed + (side == "second"), turns={"id": "t1", "side": side})
        (run / "samples" / "step.0.i64").unlink()
        (run / "journal.jsonl").unlink()
        rng, store = np.random.default_rng([seed, side == "second"]), SampleStore(run)
        for number, level in enumerate(levels):
            times = (1e6 * slower * level * np.exp(0.02 * rng.standard_normal(200))).astype(np.int64)
            store.append("step", number, np.cumsum(times), times)
        write_stats(run)
        seal(run)
    return folder / "first", folder / "second"


def test_sides_that_were_taken_in_turns_are_compared_launch_by_launch(tmp_path):
    first, second = in_turns(tmp_path, spread=0.2, factor=1.03)
    comparison = compare_runs(first, second)
    (step,) = comparison.series
    assert step.verdict == "slower" and step.basis == "over 12 pairs of launches in turns"
    (remark,) = comparison.remarks
    assert remark.startswith("step: pairs lie 0.") and "3% takes 14 pairs" in remark
    assert step.ratio.low < 1.03 < step.ratio.high and step.ratio.high - step.ratio.low < 0.01
    apart = [
        make(tmp_path / name, f, launches=12, seed=s, spread=0.2)
        for s, (name, f) in enumerate({"a": 1, "b": 1.03}.items())
    ]
    assert compare_runs(*apart).series[0].verdict == "unresolved"


def test_pairs_that_are_too_few_say_how_many_are_needed():
    times = {number: 1.0 for number in range(5)}
    (step,) = compare_pairs({"step": times}, {"step": {number: 2.0 for number in times}})
    assert (step.verdict, step.reason, step.ratio.median) == (
        "unresolved",
        "5 pairs: 12 tell whether they depend on each other",
        2.0,
    )


def test_what_the_control_is_off_by_is_no_difference():
    rng = np.random.default_rng(3)
    first, second, again = (
        {"step": dict(enumerate(f * np.exp(0.001 * rng.standard_normal(12))))} for f in (1.0, 1.03, 1.04)
    )
    assert compare_pairs(first, second)[0].verdict == "slower"
    (step,) = compare_pairs(first, second, control=again)
    assert step.verdict == "unresolved" and "A/A control 1.04" in step.basis


def test_the_command_line_has_four_answers(tmp_path, capsys):
    first, second = make(tmp_path / "a", launches=12), make(tmp_path / "b", 1.1, launches=12, seed=1)
    assert cli.main(["compare", str(first), str(second)]) == 1
    assert "slower, time ratio 1.1" in capsys.readouterr().out
    assert cli.main(["compare", str(first), str(second), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["series"][0]["verdict"] == "slower"
    other = make(tmp_path / "c", recipe="another")
    assert cli.main(["compare", str(first), str(other)]) == 3
    assert "expected two of one recipe" in capsys.readouterr().err
    single = make(tmp_path / "d", 1.1, seed=2)
    assert cli.main(["compare", str(first), str(single)]) == 2
    assert (
        "unresolved (12 launches and one launch: repeat with --repeat 12, or take turns with --against)"
        in capsys.readouterr().out
    )
    assert cli.main(["compare", str(first), str(single), "--launch-floor", "0.01"]) == 1
    assert cli.main(["compare", str(first), str(single), "--launch-floor", "2"]) == 2
    assert "between 0 and 1" in capsys.readouterr().err


def test_altered_and_unfinished_runs_are_not_compared(tmp_path):
    first, second = make(tmp_path / "a"), make(tmp_path / "b")
    (second / "summary.json").write_text("{}")
    with pytest.raises(InvalidComparison, match="was altered"):
        compare_runs(first, second)
    (second / "SHA256SUMS").unlink()
    with pytest.raises(InvalidComparison, match="finished run"):
        compare_runs(first, second)


def test_a_run_on_a_busy_machine_has_no_verdict(tmp_path):
    """Its neighbours may have made all of it slower."""
    first, second = make(tmp_path / "a", launches=12), make(tmp_path / "b", 1.5, launches=12, seed=1, busy=True)
    (estimate, *_) = json.loads((second / "stats.json").read_text())["series"]["step"]["estimates"]
    assert estimate["standing"] == "observation" and estimate["reason"].startswith("busy machine: other processes took")
    assert estimate["ci"]["low"] is None and estimate["target"]["reached"] is False
    comparison = compare_runs(first, second)
    (step,) = comparison.series
    assert (step.verdict, comparison.exit_code) == ("unresolved", 2) and step.ratio.low is None
    assert "the second was measured on a busy machine: other processes took" in str(comparison)
