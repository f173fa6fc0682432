"""Runs held against reference runs: how often the flag is false and finds, straight lines between sizes, curves."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from deep500.errors import ResultsError
from deep500.results.convergence import compare_convergence, judge_convergence, reference_samples


def drawn(rng, mean, count=5, spread=0.1):
    return mean * np.exp(spread * rng.standard_normal(count))


def test_at_one_batch_size_it_is_scipys_test():
    rng = np.random.default_rng(0)
    a, b = drawn(rng, 900), drawn(rng, 1000, 8)
    _, p, sizes = judge_convergence(a, {64: b}, 64)
    theirs = stats.ttest_ind(np.log(a), np.log(b), equal_var=False, alternative="less")
    assert p == pytest.approx(theirs.pvalue) and sizes == (64,)


@pytest.mark.parametrize("batch_size", [32, 48, 64])
def test_it_is_wrong_as_rarely_as_it_says_and_finds_a_quarter(batch_size):
    """References on a straight line of logarithms, by batch size; five seeds 10 % apart."""
    rng, false, found = np.random.default_rng(batch_size), 0, 0
    for _ in range(600):
        references = {32: drawn(rng, 1000, 6), 64: drawn(rng, 1200, 6)}
        mean = 1000 * 1.2 ** ((batch_size - 32) / 32)
        false += judge_convergence(drawn(rng, mean), references, batch_size)[1] < 0.05
        found += judge_convergence(drawn(rng, 0.75 * mean), references, batch_size)[1] < 0.05
    assert stats.binomtest(false, 600).proportion_ci(0.99).low <= 0.05 and found > 0.9 * 600


def test_what_cannot_be_judged_says_why():
    with pytest.raises(ResultsError, match="known: 32, 64"):
        judge_convergence([1.0] * 3, {32: [1.0] * 3, 64: [2.0] * 3}, 128)
    with pytest.raises(ResultsError, match="got 2 seeds of references of 32"):
        judge_convergence([1.0] * 3, {32: [1.0] * 2}, 32)
    with pytest.raises(ResultsError, match="references that miss the target"):
        judge_convergence([1.0] * 3, {32: [1.0, 2.0, np.inf]}, 32)
    assert judge_convergence([1.0, 1.0, np.inf], {32: [5.0, 5.1, 5.2]}, 32)[1] == 1.0


def run(folder, batch_size, crossings, recipe="job", target=90.0):
    """A folder whose seeds cross the target after so many samples, between two evaluations."""
    folder.mkdir()
    metric = {"name": "test_accuracy", "kind": "quality", "direction": "higher", "target": target}
    resolved = {"recipe": {"batch_size": batch_size}, "metrics": [metric]}
    manifest = {"recipe": recipe, "seeds": list(range(len(crossings))), "resolved": resolved}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    lines = []
    for seed, samples in enumerate(crossings):
        for epoch in range(1, 6):
            value = 90 + 0.01 * (1000 * epoch - samples)  # a straight line through the target at this many samples
            lines.append({"seed": seed, "epoch": epoch, "train_samples": 1000, "test_accuracy": value})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_other_recipes_and_runs_without_targets_are_refused(tmp_path):
    first = run(tmp_path / "a", 32, [3000, 3100, 3200])
    with pytest.raises(ResultsError, match="of another recipe"):
        compare_convergence(first, [run(tmp_path / "b", 32, [3000] * 3, recipe="other")])
    with pytest.raises(ResultsError, match="no metric of quality with a target"):
        compare_convergence(run(tmp_path / "c", 32, [3000] * 3, target=None), [first])


def test_references_are_taken_from_a_run_as_a_recipe_carries_them(tmp_path):
    taken = run(tmp_path / "a", 32, [3000, 3100, 3250])
    assert reference_samples(taken) == reference_samples(str(taken)) == {32: [3000.0, 3100.0, 3250.0]}
