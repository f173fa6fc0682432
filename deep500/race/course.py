"""The course of a race: which trials there are, in which order, and until when each can still count.

A study counts its fastest trial, so the others may stop at its time; nothing beyond :data:`~deep500.race.scores.R_MAX`
times the best median counts, so nothing has to run longer than that many times the best median known so far, which only
falls. So no score and no verdict depends on what is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from deep500.race.scores import R_MAX, TrialTime, fastest
from deep500.race.submissions import LONGER, Submission
from deep500.race.workloads import Workload


@dataclass(frozen=True)
class Heat:
    """A trial that is to be run, by its place in the race."""

    submission: str
    workload: str
    study: int
    trial: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.workload}-{self.study}-{self.trial}-{self.submission}"


def course(
    submissions: Sequence[Submission], workloads: Sequence[Workload], studies: int, trials: int, seed: int
) -> list[Heat]:
    """Return all trials of a race in the order in which they run.

    Trials of the same workload, study and number form a group. Groups run in random order, and so do the trials within
    a group: a machine that drifts favours no submission, and both trials of a pair see nearly the same machine.

    Example:
        >>> adam, sgd = (Submission(name, name, {"lr": 0.1}) for name in ("adam", "sgd"))
        >>> [entry.name for entry in course([adam, sgd], [Workload("digits_lenet", 90, 1, 10, 1)], 1, 1, seed=0)]
        ['digits_lenet-0-0-adam', 'digits_lenet-0-0-sgd']
    """
    rng = np.random.default_rng(seed)
    groups = [(w.title, s, t) for w in workloads for s in range(studies) for t in range(trials)]
    order: list[Heat] = []
    for place in rng.permutation(len(groups)):
        workload, study, trial = groups[place]
        drawn = [submissions[number] for number in rng.permutation(len(submissions))]
        order += [Heat(s.name, workload, study, trial) for s in drawn if trial < s.trials(trials)]
    return order


def budget(submission: Submission, workload: Workload) -> tuple[float, int]:
    """Return the seconds and steps that a trial may take, longer for a self-tuning submission."""
    longer = LONGER if submission.self_tuning else 1.0
    return longer * workload.seconds, round(longer * workload.steps)


def limit(entry: Heat, done: Iterable[TrialTime], seconds: float, studies: int, r_max: float = R_MAX) -> float:
    """Return the seconds at which a trial can no longer count.

    Args:
        entry: the trial.
        done: those that have ended, of this workload at least.
        seconds: its budget.
        studies: of the race.
        r_max: times the best median.

    Example:
        >>> done = [TrialTime("a", "w", study, 0, 1.0 + study) for study in range(3)]
        >>> limit(Heat("a", "w", 2, 1), done, 60, studies=3), limit(Heat("b", "w", 2, 0), done, 60, studies=3)
        (3.0, 8.0)
    """
    here = [trial for trial in done if trial.workload == entry.workload]
    if not here:
        return seconds
    times = fastest(here, field=([*{t.submission: 0 for t in here}], [entry.workload], studies)).times
    # A study without a time counts as infinite: when it ends, the median can only fall.
    best = float(np.median(np.where(np.isnan(times), np.inf, times), axis=2).min())
    fellows = [t.seconds for t in here if (t.submission, t.study) == (entry.submission, entry.study)]
    return min([seconds, r_max * best, *fellows])
