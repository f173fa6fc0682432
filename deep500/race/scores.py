"""The score of a race: pure functions of who reached which target when.

A study is a few trials with different settings and one seed, and counts its fastest one; a submission's time on a
workload is the median over its studies; who does not reach the target never does (infinite). The performance profile
rho(tau) is the share of workloads on which a submission is at most tau times slower than the fastest one (Dolan and
More 2002), and its score is the mean of rho from 1 to :data:`R_MAX`, as AlgoPerf has it (Dahl et al. 2023).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deep500.errors import InputError

R_MAX = 4.0
"""Times beyond this many times the best are misses."""


@dataclass(frozen=True)
class TrialTime:
    """The outcome of a trial.

    Attributes:
        submission, workload: their names.
        study, trial: their numbers; equal studies of all submissions share seeds.
        seconds, steps: until the target; infinite for a miss.
        spent: seconds of training that it took, whatever came of it.
        reason: why it is a miss, in words.
    """

    submission: str
    workload: str
    study: int
    trial: int
    seconds: float
    steps: float = np.inf
    spent: float = 0.0
    reason: str = ""


@dataclass(frozen=True)
class StudyTable:
    """The times of all studies.

    Attributes:
        submissions, workloads: names of the first two axes.
        times: (submission, workload, study): that of the fastest trial, infinite for a miss, NaN for a study that was
            not made.
    """

    submissions: tuple[str, ...]
    workloads: tuple[str, ...]
    times: np.ndarray

    def only(self, submissions: Sequence[str] = (), workloads: Sequence[str] = ()) -> StudyTable:
        """Return the part of some submissions and workloads; all of them where none are named."""
        rows = [self.submissions.index(name) for name in submissions or self.submissions]
        columns = [self.workloads.index(name) for name in workloads or self.workloads]
        names = tuple(submissions or self.submissions), tuple(workloads or self.workloads)
        return StudyTable(*names, self.times[np.ix_(rows, columns)])

    def medians(self) -> np.ndarray:
        """Return (submission, workload): the median over studies, infinite without any."""
        return median_of_studies(self.times)

    def capped(self, r_max: float = R_MAX) -> StudyTable:
        """Return the table in which a study beyond ``r_max`` times the best median is a miss, as its trials stop there.

        Example:
            >>> fastest(_example()).capped().times[:, 0].tolist()
            [[1.0, 2.0, 1.5], [3.0, inf, 3.0]]
        """
        best = self.medians().min(axis=0)
        return replace(self, times=np.where(self.times > r_max * best[None, :, None], np.inf, self.times))


def fastest(
    trials: Iterable[TrialTime], by: str = "seconds", field: tuple[Sequence[str], Sequence[str], int] | None = None
) -> StudyTable:
    """Put the fastest trial of every study into a table.

    Args:
        trials: of any number of submissions and workloads.
        by: ``"seconds"``, or ``"steps"``: those of the trial that was fastest in seconds.
        field: names of submissions and workloads, and the number of studies; as the trials come if None.

    Raises:
        InputError: neither trials nor a field.
    """
    trials = list(trials)
    if field is None:
        if not trials:
            raise InputError("got no trials; expected the outcomes of a race: run it first")
        names = [list(dict.fromkeys(getattr(trial, key) for trial in trials)) for key in ("submission", "workload")]
        field = names[0], names[1], 1 + max(trial.study for trial in trials)
    submissions, workloads, studies = tuple(field[0]), tuple(field[1]), field[2]
    times = np.full((len(submissions), len(workloads), studies), np.nan)
    chosen = times.copy()
    for trial in trials:
        place = submissions.index(trial.submission), workloads.index(trial.workload), trial.study
        if np.isnan(times[place]) or trial.seconds < times[place]:
            times[place], chosen[place] = trial.seconds, getattr(trial, by)
    return StudyTable(submissions, workloads, chosen)


def median_of_studies(times: np.ndarray) -> np.ndarray:
    """Return the median over the last axis; studies that were not made (NaN) do not count, and none are a miss.

    Example:
        >>> median_of_studies(np.array([[1.0, 3.0, np.inf], [np.nan] * 3, [1.0, np.nan, 2.0]])).tolist()
        [3.0, inf, 1.5]
    """
    absent = np.isnan(times)
    ordered = np.sort(np.where(absent, np.inf, times), axis=-1)
    count = times.shape[-1] - absent.sum(axis=-1)
    ends = [np.maximum(place, 0) for place in ((count - 1) // 2, count // 2 - (count == 0))]
    low, high = (np.take_along_axis(ordered, end[..., None], axis=-1)[..., 0] for end in ends)
    return np.where(count > 0, (low + high) / 2, np.inf)


def ratios(medians: np.ndarray, r_max: float = R_MAX) -> np.ndarray:
    """Return times over the best on each workload (last axis), infinite for misses and beyond ``r_max``.

    Args:
        medians: (..., submission, workload) seconds.
        r_max: what counts at most.
    """
    best = medians.min(axis=-2, keepdims=True)
    with np.errstate(invalid="ignore"):
        ratio = np.where(np.isfinite(medians), medians / best, np.inf)
    return np.where(ratio <= r_max, ratio, np.inf)


def profile(ratio: np.ndarray, taus: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return (..., submission, tau): the share of workloads whose ratio is at most tau.

    Example:
        >>> profile(np.array([[1.0, 2.0], [1.5, 1.0]]), [1, 1.5, 2]).tolist()
        [[0.5, 0.5, 1.0], [0.5, 1.0, 1.0]]
    """
    return (ratio[..., None] <= np.asarray(taus, np.float64)).mean(axis=-2)


def area(ratio: np.ndarray, r_max: float = R_MAX) -> np.ndarray:
    """Return the score (..., submission): the mean of the performance profile from 1 to ``r_max``.

    The integral of a stair function is exact: a workload that was reached at ratio r counts (r_max - r) / (r_max - 1).

    Example:
        >>> area(np.array([[1.0, 1.0], [2.5, np.inf]])).tolist()
        [1.0, 0.25]
    """
    return np.maximum(r_max - ratio, 0).mean(axis=-1) / (r_max - 1)


def scores(table: StudyTable, held_out: Mapping[str, str] | None = None, r_max: float = R_MAX) -> dict[str, float]:
    """Return every submission's score.

    Args:
        table: of all submissions; the fastest of them is the measure, so another field gives other scores.
        held_out: workloads, and the variant of each that must be reached as well, within ``r_max`` times the best, for
            it to count; variants have no score of their own.
        r_max: the end of the integral.

    Raises:
        InputError: a variant or its workload is not in the table.

    Example:
        >>> scores(fastest(_example()))
        {'a': 1.0, 'b': 0.6666666666666666}
    """
    return dict(zip(table.submissions, area(_judged(table, held_out or {}, r_max), r_max).tolist(), strict=True))


def _judged(table: StudyTable, held_out: Mapping[str, str], r_max: float) -> np.ndarray:
    """Ratios of the workloads that have a score, (submission, workload)."""
    unknown = sorted({*held_out, *held_out.values()} - set(table.workloads))
    if unknown:
        raise InputError(f"got held-out {unknown[0]!r}; expected workloads of the table: {', '.join(table.workloads)}")
    medians, place = table.medians(), {name: number for number, name in enumerate(table.workloads)}
    for base, variant in held_out.items():  # who misses the base has no time on its variant either
        medians[~np.isfinite(medians[:, place[base]]), place[variant]] = np.inf
    ratio = ratios(medians, r_max)
    for base, variant in held_out.items():
        medians[~np.isfinite(ratio[:, place[variant]]), place[base]] = np.inf
    scored = [place[name] for name in table.workloads if name not in held_out.values()]
    return ratios(np.where(np.isfinite(ratio), medians, np.inf)[:, scored], r_max)


def leave_one_out(table: StudyTable, r_max: float = R_MAX) -> dict[str, dict[str, float]]:
    """Return the scores without each workload in turn: does the order hang on one of them?"""
    rest = {name: [other for other in table.workloads if other != name] for name in table.workloads}
    return {name: scores(table.only(workloads=others), r_max=r_max) for name, others in rest.items() if others}


def resampled_scores(
    table: StudyTable, rng: np.random.Generator, draws: int = 2000, workloads: bool = False
) -> np.ndarray:
    """Return (draw, submission): scores had other seeds been drawn.

    Studies are drawn anew within each workload, the same ones for all submissions, since these share seeds. A range of
    these scores is no confidence interval: of three studies or five workloads it is too narrow.

    Args:
        table: of a race.
        rng: draws.
        draws: how many.
        workloads: draw workloads anew as well.
    """
    _, count, studies = table.times.shape
    drawn = rng.integers(studies, size=(draws, 1, count, studies))
    medians = median_of_studies(np.take_along_axis(table.times[None], drawn, axis=3))
    if workloads:
        medians = np.take_along_axis(medians, rng.integers(count, size=(draws, 1, count)), axis=2)
    return area(ratios(medians))


def first_again(
    table: StudyTable, rng: np.random.Generator, draws: int = 2000, workloads: bool = False
) -> dict[str, float]:
    """Return how often each submission would be first had other seeds been drawn; equal scores share a place, and where
    none reaches a target nobody is first.

    Example:
        >>> first_again(fastest(_example()), np.random.default_rng(0))
        {'a': 1.0, 'b': 0.0}
    """
    values = resampled_scores(table, rng, draws, workloads)
    best = (values == values.max(axis=1, keepdims=True)) & (values > 0)
    shares = (best / np.maximum(best.sum(axis=1, keepdims=True), 1)).mean(axis=0)
    return dict(zip(table.submissions, shares.tolist(), strict=True))


def _example() -> list[TrialTime]:
    """Two submissions on one workload, three studies each; in the second study ``b`` misses."""
    times = {"a": [1.0, 2.0, 1.5], "b": [3.0, 7.0, 3.0]}
    return [TrialTime(name, "w", study, 0, t) for name, values in times.items() for study, t in enumerate(values)]
