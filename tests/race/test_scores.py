"""Scores against AlgoPerf's published table, against plain sums, and profiles at their corners."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.race.judging import judge, noise
from deep500.race.scores import (
    StudyTable,
    TrialTime,
    area,
    fastest,
    first_again,
    leave_one_out,
    median_of_studies,
    profile,
    ratios,
    resampled_scores,
    scores,
)

HELD_OUT = {
    "criteo1tb": "criteo1tb_embed_init",
    "fastmri": "fastmri_tanh",
    "imagenet_resnet": "imagenet_resnet_large_bn_init",
    "librispeech_conformer": "librispeech_conformer_layernorm",
    "ogbg": "ogbg_model_size",
    "wmt": "wmt_glu_tanh",
}
PUBLISHED = {  # the leaderboard of AlgoPerf v0.5, external tuning
    "shampoo_submission": 0.7784,
    "schedule_free_adamw": 0.7077,
    "generalized_adam": 0.6383,
    "cyclic_lr": 0.6301,
    "nadamp": 0.5909,
    "baseline": 0.5707,
    "amos": 0.4918,
    "caspr_adaptive": 0.4722,
    "lawa_queue": 0.3699,
    "lawa_ema": 0.3384,
    "schedule_free_prodigy": 0.0,
}


@pytest.fixture(scope="module")
def algoperf() -> StudyTable:
    lines = Path(__file__).with_name("algoperf_v05.csv").read_text(encoding="utf-8").splitlines()
    rows = csv.DictReader(line for line in lines if not line.startswith("#"))
    table = fastest(
        TrialTime(row["submission"], row["workload"], int(row["study"]), 0, float(row["seconds"] or "inf"))
        for row in rows
    )
    assert table.times.shape == (11, 14, 5)
    return table


@pytest.fixture
def scored(algoperf) -> StudyTable:
    return algoperf.only(workloads=[name for name in algoperf.workloads if name not in HELD_OUT.values()])


def test_the_published_scores_of_algoperf(algoperf) -> None:
    found = scores(algoperf, HELD_OUT)
    assert sorted(found, key=lambda name: -found[name]) == list(PUBLISHED)
    assert found == pytest.approx(PUBLISHED, abs=0.005)
    without = scores(algoperf.only(workloads=[*HELD_OUT, "imagenet_vit", "librispeech_deepspeech"]))
    assert without["schedule_free_adamw"] == pytest.approx(0.773, abs=5e-4)


def test_what_nobody_printed_beside_them(scored) -> None:
    """Shampoo and Schedule-Free are not told apart; Schedule-Free and the baseline are, for these workloads only."""
    pairs = {frozenset((pair.here.first, pair.here.second)): pair for pair in judge(scored)}
    first = pairs[frozenset(("shampoo_submission", "schedule_free_adamw"))]
    assert (first.here.verdict, first.elsewhere.verdict) == ("unresolved", "unresolved")
    other = pairs[frozenset(("baseline", "schedule_free_adamw"))]
    assert (other.here.verdict, other.elsewhere.verdict) == ("slower", "unresolved") and other.censored
    without = leave_one_out(scored)["ogbg"]
    assert without["schedule_free_adamw"] > without["shampoo_submission"]
    again = first_again(scored, np.random.default_rng(0), 500)
    assert 0.6 < again["shampoo_submission"] < 0.8 and again["baseline"] == 0
    assert first_again(scored, np.random.default_rng(0), 500, workloads=True)["shampoo_submission"] < 0.55
    assert 0.08 < noise(scored) < 0.11


def test_area_is_the_integral_of_the_profile(scored) -> None:
    ratio = ratios(scored.medians())
    taus = np.linspace(1, 4, 100_001)
    assert area(ratio) == pytest.approx(np.trapezoid(profile(ratio, taus), taus) / 3, abs=1e-4)
    assert profile(np.array([[1.0, 2.0], [1.5, 1.0]]), [1, 1.5, 2]).tolist() == [[0.5, 0.5, 1], [0.5, 1, 1]]
    assert area(np.array([[1.0, np.inf], [4.0, 1.0]])).tolist() == [0.5, 0.5]


def test_fastest_of_a_study_median_over_studies_misses_infinite() -> None:
    trials = [
        TrialTime("a", "w", 0, 0, np.inf, np.inf, reason="nan"),
        TrialTime("a", "w", 0, 1, 3.0, 30),
        TrialTime("a", "w", 0, 2, 2.0, 40),
        TrialTime("a", "w", 1, 0, 5.0, 10),
        TrialTime("a", "w", 2, 0, np.inf),
        TrialTime("b", "w", 0, 0, np.inf),
    ]
    table = fastest(trials)
    assert table.times[0, 0].tolist() == [2, 5, np.inf] and np.isnan(table.times[1, 0, 1:]).all()
    assert fastest(trials, "steps").times[0, 0].tolist() == [40, 10, np.inf], "of the trial that was fastest"
    assert table.medians().tolist() == [[5], [np.inf]]
    assert scores(table) == {"a": 1, "b": 0}
    assert scores(table.only(["b"])) == {"b": 0}, "a workload that nobody reached is worth nothing"
    rng = np.random.default_rng(0)
    times = rng.uniform(1, 2, (3, 4, 5))
    assert np.array_equal(median_of_studies(times), np.median(times, axis=2))
    with pytest.raises(InputError, match="got no trials"):
        fastest([])
    with pytest.raises(InputError, match="held-out 'v'"):
        scores(table, {"w": "v"})


def test_beyond_four_times_the_best_is_a_miss() -> None:
    table = StudyTable(("a", "b", "c"), ("w",), np.array([[[1.0, 1, 1]], [[3.9, 4.1, 3.9]], [[4.1, 4.1, 4.1]]]))
    assert table.capped().times[1:, 0].tolist() == [[3.9, np.inf, 3.9], [np.inf] * 3]
    assert scores(table) == pytest.approx({"a": 1, "b": 0.1 / 3, "c": 0})
    assert scores(table) == scores(table.capped())


def test_resampled_scores_keep_pairs_together() -> None:
    """Seeds that are hard for all submissions are drawn for all: the order cannot change."""
    seeds = np.array([1.0, 2.0, 9.0])
    table = StudyTable(("a", "b"), ("v", "w"), np.stack([np.stack([seeds, seeds]), 1.1 * np.stack([seeds, seeds])]))
    drawn = resampled_scores(table, np.random.default_rng(0), 300)
    assert drawn.shape == (300, 2) and (drawn[:, 0] == 1).all() and drawn[:, 1] == pytest.approx(2.9 / 3)
    same = StudyTable(("a", "b"), ("w",), np.ones((2, 1, 3)))
    assert first_again(same, np.random.default_rng(0), 10) == {"a": 0.5, "b": 0.5}
