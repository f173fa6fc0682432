"""Order and pruning: every trial once, pairs beside each other, and nothing that counts is left out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deep500.race.course import Heat, budget, course, limit
from deep500.race.judging import judge, noise
from deep500.race.scores import TrialTime, fastest, scores
from deep500.race.standing import standing_of
from deep500.race.submissions import Submission
from tests.race.common import SUBMISSIONS, WORKLOADS, Curves, race


def test_every_trial_once_and_pairs_beside_each_other() -> None:
    order = course(SUBMISSIONS, WORKLOADS, studies=3, trials=2, seed=1)
    assert len(order) == len(set(order)) == 3 * 3 * 3 * 2
    groups = [order[place : place + 3] for place in range(0, len(order), 3)]
    assert all(len({(e.workload, e.study, e.trial) for e in group}) == 1 for group in groups)
    assert len({tuple(e.submission for e in group) for group in groups}) > 3, "the order within a group is drawn"
    assert order == course(SUBMISSIONS, WORKLOADS, 3, 2, 1) != course(SUBMISSIONS, WORKLOADS, 3, 2, 2)


def test_lists_and_self_tuning_have_their_own_number_of_trials() -> None:
    listed = Submission("l", "AdamOptimizer", [{"lr": 0.1}, {"lr": 0.2}])
    tuned = Submission("t", "AdamOptimizer", self_tuning=True)
    order = course([SUBMISSIONS[0], listed, tuned], WORKLOADS[:1], studies=2, trials=3, seed=0)
    assert {name: sum(e.submission == name for e in order) for name in "alt"} == {"a": 6, "l": 4, "t": 2}
    assert budget(tuned, WORKLOADS[0]) == (30.0, 600) and budget(listed, WORKLOADS[0]) == (20.0, 400)


def test_limits() -> None:
    done = [TrialTime("a", "w", study, 0, seconds) for study, seconds in enumerate([2.0, math.inf, 1.0])]
    assert limit(Heat("a", "w", 0, 1), done, 60, 3) == 2, "the study's fastest"
    assert limit(Heat("a", "w", 1, 1), done, 60, 3) == 8, "four times the median"
    assert limit(Heat("b", "w", 0, 0), done, 60, 5) == 60, "two of five studies have no median yet"
    assert limit(Heat("b", "v", 0, 0), done, 60, 3) == 60, "another workload"


@pytest.mark.parametrize("seed", range(3))
def test_pruning_is_lossless(tmp_path, seed) -> None:
    """Scores, words, p values and fastest times beside the race in which every trial runs to its end."""
    outcomes, standings = {}, {}
    for prune in (True, False):
        curves, one = Curves(seed, {"b": 1.5, "c": 0.4}), race(tmp_path / str(prune), prune=prune, seed=seed)
        one.run(lambda line: None, curves)
        standings[prune] = {**standing_of(one), "spent_seconds": 0, "misses": 0, "remarks": 0}
        for row in standings[prune]["scores"]:
            del row["spent_seconds"], row["misses"]
        names = [s.name for s in SUBMISSIONS], [w.title for w in WORKLOADS]
        table = fastest(one.done.values()).only(*names)
        steps = fastest(one.done.values(), "steps").only(*names)
        outcomes[prune] = table.capped(), scores(table), judge(table), noise(table.capped()), curves.spent, steps
    assert standings[True] == standings[False], "nothing that the page says depends on it"
    pruned, whole = outcomes[True], outcomes[False]
    assert np.array_equal(pruned[0].times, whole[0].times) and pruned[1:4] == whole[1:4]
    finite = np.isfinite(whole[0].times)
    assert np.array_equal(pruned[5].times[finite], whole[5].times[finite]) and finite.any() and not finite.all()
    assert pruned[4] < 0.8 * whole[4], "and it is worth it"
