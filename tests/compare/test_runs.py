"""Two runs of one recipe: what differed first, then whether it mattered, never more than the samples show."""

from __future__ import annotations

import json

import numpy as np
import pytest

from deep500 import cli
from deep500.compare.runs import InvalidComparison, _comparable, _mann_whitney, _one, compare_runs
from deep500.recipe.recording import declared_series
from deep500.results.samples import SampleStore
from deep500.results.verify import seal, write_stats


def make(folder, factor=1.0, n=400, launches=1, seed=0, recipe="job", each=64, spread=0.0, ranks=1, **resolved):
    folder.mkdir()
    resolved = {"recipe": {"batch_size": 64, **resolved}}
    environment = {"cpu": "made up", "volatile": {"pid": seed}}
    manifest = {
        "schema": "deep500-results-1",
        "recipe": recipe,
        "resolved": resolved,
        "series": declared_series(each),
        "environment": environment,
        "ranks": ranks,
        "processes": {"scheme": None if ranks == 1 else "ModelAverage", "each": [seed]},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    metric = {"name": "test_accuracy", "value": 97.0}
    (folder / "summary.json").write_text(json.dumps({"metrics": [metric]}))
    rng, store = np.random.default_rng(seed), SampleStore(folder)
    for launch in range(launches):
        slower = factor * np.exp(spread * rng.standard_normal())
        times = (1e6 * slower * np.exp(0.02 * rng.standard_normal(n))).astype(np.int64)
        store.append("step", launch, np.cumsum(times), times)
    write_stats(folder)
    seal(folder)
    return folder


@pytest.mark.parametrize(
    ("factor", "verdict", "code"), [(1.1, "slower", 1), (0.9, "faster", 0), (1.0, "equivalent", 0)]
)
@pytest.mark.parametrize("launches", [1, 8])
def test_what_differed_and_whether_it_mattered(tmp_path, factor, verdict, code, launches):
    first = make(tmp_path / "a", launches=launches)
    second = make(tmp_path / "b", factor, launches=launches, seed=1, batch_size=32)
    comparison = compare_runs(first, second)
    assert comparison.changed == {"resolved.recipe.batch_size": (64, 32)}
    (step,) = comparison.series
    assert (step.verdict, comparison.exit_code) == (verdict, code)
    assert step.ratio.low <= factor * 1.01 and step.ratio.high >= factor * 0.99
    assert step.basis == ("over 8 launches" if launches == 8 else "within one launch")
    text = str(comparison)
    assert text.index("batch_size: 64 -> 32") < text.index(verdict) and "test_accuracy: 97.0 -> 97.0" in text


def test_the_number_of_ranks_is_a_difference(tmp_path):
    comparison = compare_runs(make(tmp_path / "a"), make(tmp_path / "b", ranks=2, seed=1))
    assert comparison.changed == {"ranks": (1, 2), "processes.scheme": (None, "ModelAverage")}


def test_steps_of_different_batches_are_compared_by_sample(tmp_path):
    first, second = make(tmp_path / "a"), make(tmp_path / "b", 0.5, seed=1, each=32)
    (step,) = compare_runs(first, second).series
    assert step.verdict == "equivalent" and step.basis == "within one launch, per sample of 64 and 32 a step"


def test_launches_that_differ_among_themselves_resolve_nothing(tmp_path):
    """Eight launches of 400 samples are eight values, not 3200: their spread is what counts."""
    first = make(tmp_path / "a", launches=8, spread=0.2)
    second = make(tmp_path / "b", 1.05, launches=8, seed=1, spread=0.2)
    assert compare_runs(first, second).series[0].verdict == "unresolved"


def test_few_launches_that_differ_are_not_pooled(tmp_path):
    """Three launches 20 % apart among themselves say nothing of runs 10 % apart, however many samples they have."""
    first = make(tmp_path / "a", launches=3, spread=0.2)
    second = make(tmp_path / "b", 1.5, launches=3, seed=1, spread=0.2)
    (step,) = compare_runs(first, second).series
    assert step.verdict == "unresolved" and step.ratio.low > 1 and step.p < 1e-9
    assert step.basis.startswith("within 3 launches: launches of one run differ (Kruskal-Wallis p ")
    assert step.basis.endswith(", 7 of each are needed")
    alike = compare_runs(make(tmp_path / "c", launches=3), make(tmp_path / "d", 1.5, launches=3, seed=1)).series[0]
    assert (alike.verdict, alike.basis) == ("slower", "within 3 launches")


def verdicts(launches, effect, trials=150, spread=0.05):
    """What is said of runs whose launches lie 5 % apart, by launches and by all samples together."""
    rng, said = np.random.default_rng(launches), {"by launches": [], "all together": []}
    for _ in range(trials):
        levels = np.exp(spread * rng.standard_normal((2, launches, 1))) * np.array([1, 1 + effect])[:, None, None]
        sides = [list(side) for side in levels * np.exp(0.02 * rng.standard_normal((2, launches, 60)))]
        values, basis, sound = _comparable(sides)
        said["by launches"].append(_one("step", values, _mann_whitney(*values), basis, sound, 0.02).verdict)
        pooled = [np.concatenate(side) for side in sides]
        said["all together"].append(_one("step", pooled, _mann_whitney(*pooled), "", True, 0.02).verdict)
    return {how: np.mean([word in ("faster", "slower") for word in words]) for how, words in said.items()}


@pytest.mark.parametrize("launches", [3, 8])
def test_no_false_verdicts_where_launches_differ(launches):
    false = verdicts(launches, 0.0)
    assert false["by launches"] <= 0.06 and false["all together"] > 0.5, "the test does not bite"


def test_an_effect_larger_than_the_spread_of_launches_is_found():
    assert verdicts(16, 0.3)["by launches"] >= 0.95


def test_few_samples_resolve_nothing(tmp_path):
    comparison = compare_runs(make(tmp_path / "a", n=5), make(tmp_path / "b", 1.5, n=5, seed=1))
    assert comparison.exit_code == 2 and comparison.series[0].verdict == "unresolved"


def test_the_command_line_has_four_answers(tmp_path, capsys):
    first, second = make(tmp_path / "a"), make(tmp_path / "b", 1.1, seed=1)
    assert cli.main(["compare", str(first), str(second)]) == 1
    assert "slower, time ratio 1.1" in capsys.readouterr().out
    assert cli.main(["compare", str(first), str(second), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["series"][0]["verdict"] == "slower"
    other = make(tmp_path / "c", recipe="another")
    assert cli.main(["compare", str(first), str(other)]) == 3
    assert "expected two of one recipe" in capsys.readouterr().err


def test_altered_and_unfinished_runs_are_not_compared(tmp_path):
    first, second = make(tmp_path / "a"), make(tmp_path / "b")
    (second / "summary.json").write_text("{}")
    with pytest.raises(InvalidComparison, match="was altered"):
        compare_runs(first, second)
    (second / "SHA256SUMS").unlink()
    with pytest.raises(InvalidComparison, match="finished run"):
        compare_runs(first, second)
