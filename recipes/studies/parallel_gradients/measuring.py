"""Both proxies in all forms: checked on small problems, then timed in turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deep500.measure.statistics import Interval, median_interval, paired_ratio
from recipes.studies.parallel_gradients.launching import FormPoint, answer_of

AGREE, DOT, DIFFERENCES = 1e-10, 1e-12, 1e-7
"""Most relative errors: gradients of two forms, gradient against forward mode, gradient against central differences."""
WORST_PUBLISHED = 11.7
"""Largest gradient/primal in Moses et al., Scalable Automatic Differentiation of Multiple Parallel Paradigms through
Compiler Augmentation (SC 2022), abstract: 1.0 to 11.7 on 64 threads or nodes."""
STRONG, WEAK = "strong", "weak"
CHECKED = {
    "hydro": {"shape": [6, 6, 6], "steps": 6, "blocks": 8},
    "docking": {"poses": 64, "proteins": 32, "blocks": 8},
}
"""Small: finite differences must not cross a kink."""
TIMED = {
    "hydro": {"shape": [16, 16, 16], "steps": 10, "blocks": 16},
    "docking": {"poses": 1024, "proteins": 256, "blocks": 16},
}
QUICK = {"hydro": {"shape": [4, 4, 4], "steps": 2, "blocks": 4}, "docking": {"poses": 32, "proteins": 16, "blocks": 4}}
Parts = ("primal", "gradient")
ALL, BUSIEST = "_processor", "_busiest"
"""Clocks beside the wall's: CPU time of all threads, and of the one that worked most."""


@dataclass(frozen=True)
class Checked:
    """Relative errors of a gradient: against the serial one; against forward mode along a direction (the serial form's
    where a form has none: Enzyme's stops at OpenMP's regions); against central differences along it.
    """

    proxy: str
    point: FormPoint
    difference: float
    dot: float
    finite_difference: float
    is_unchanged: bool

    @property
    def wrong(self) -> list[str]:
        """Say what is wrong."""
        bounds = (
            (self.difference, AGREE, "differs from the serial gradient"),
            (self.dot, DOT, "is off forward mode"),
            (self.finite_difference, DIFFERENCES, "is off central differences"),
        )
        where = f"{self.proxy}, {self.point.title}"
        problems = [f"{where}: {what} by {error:.1e}" for error, bound, what in bounds if not error <= bound]
        return problems + ([] if self.is_unchanged else [f"{where}: changes what is constant"])


@dataclass
class TimedPoint:
    """Seconds of a point, one median a round; ``gradient_processor`` and so on: of all ranks and threads together;
    ``gradient_busiest``: of the one that worked most.
    """

    proxy: str
    mode: str
    point: FormPoint
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def interval(self, part: str) -> Interval:
        """Milliseconds."""
        return median_interval([1e3 * s for s in self.seconds[part]])

    def overhead(self, clock: str = "") -> Interval:
        """Gradient over primal, launch by launch."""
        return paired_ratio(self.seconds["gradient" + clock], self.seconds["primal" + clock])


def check(proxy: str, points: Sequence[FormPoint], problem: dict[str, Any] | None = None) -> list[Checked]:
    """Gradients of all points against the serial one."""
    problem = problem or CHECKED[proxy]
    serial = answer_of(proxy, FormPoint("serial"), problem)
    names = [name for name in serial if name.startswith("gradient") and name != "gradient"]
    checked = []
    for point in points:
        answer = serial if point == FormPoint("serial") else answer_of(proxy, point, problem)
        difference = max(_relative(answer[name], serial[name]) for name in names)
        along, tangent = float(answer["gradient"]), float(answer["tangent"])
        tangent = float(serial["tangent"]) if np.isnan(tangent) else tangent
        checked.append(
            Checked(
                proxy,
                point,
                difference,
                abs(tangent - along) / abs(along),
                abs(float(answer["differences"]) - along) / abs(along),
                bool(answer["unchanged"]),
            )
        )
    return checked


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    error = float(np.abs(a - b).max() / np.abs(b).max())
    return error if np.isfinite(error) else float("inf")


def checked_points(most: int) -> list[FormPoint]:
    """Of 1, 2, 4, 8 ranks and 1, 2, 4 threads those that are not more than ``most`` of either."""
    counts = [n for n in (1, 2, 4, 8) if n <= most]
    threads = [n for n in (1, 2, 4) if n <= most]
    return [
        FormPoint("serial"),
        *(FormPoint(form, 1, n) for form in ("openmp", "raja") for n in threads),
        *(FormPoint("mpi", n) for n in counts),
        *(FormPoint("hybrid", n, min(n, 4)) for n in counts[1:]),
    ]


def timed_points(cores: int) -> list[FormPoint]:
    """One worker, as many as there are cores, and powers of two between."""
    counts = sorted({cores, *(2**n for n in range(8) if 2**n <= cores)})
    return [
        FormPoint("serial"),
        *(FormPoint(form, 1, n) for form in ("openmp", "raja") for n in counts),
        *(FormPoint("mpi", n) for n in counts),
        *(FormPoint("hybrid", r, t) for r, t in ((1, 1), (1, 2), (2, 1), (2, 2), (4, 2), (2, 4)) if r * t <= cores),
    ]


def grown(proxy: str, problem: dict[str, Any], workers: int) -> dict[str, Any]:
    """A problem that has as much work for each of the workers as the given one for one."""
    if proxy == "docking":
        return {**problem, "poses": problem["poses"] * workers}
    shape = list(problem["shape"])
    return {**problem, "shape": [*shape[:2], shape[2] * workers]}


def time_all(
    proxy: str,
    points: Sequence[FormPoint],
    problem: dict[str, Any],
    rounds: int,
    samples: int,
    progress: Callable[[], None] = lambda: None,
) -> list[TimedPoint]:
    """Every point once a round, in random order; weak scaling has the points with more than one worker besides."""
    todo = [TimedPoint(proxy, STRONG, point) for point in points]
    todo += [TimedPoint(proxy, WEAK, point) for point in points if point.workers > 1]
    shuffle = random.Random(0).shuffle
    for _ in range(rounds):
        order = list(todo)
        shuffle(order)
        for timed in order:
            here = grown(proxy, problem, timed.point.workers) if timed.mode == WEAK else problem
            for name, seconds in answer_of(proxy, timed.point, here, samples).items():
                timed.seconds.setdefault(name, []).append(float(np.median(seconds)))
            progress()
    return todo


def efficiency(timed: TimedPoint, base: TimedPoint, part: str, clock: str = "") -> list[float]:
    """Of a point over the same form with one worker, round by round.

    With the CPUs' clock: how much of all work one worker would have had to do as well. With the busiest one's:
    what the wall's would be if nothing else ran, and waiting cost nothing.
    """
    workers = timed.point.workers if timed.mode == WEAK else 1
    if clock != ALL:
        workers /= timed.point.workers
    first, here = (np.array(t.seconds[part + clock]) for t in (base, timed))
    return list(workers * first / here)


def base_of(timed: TimedPoint, every: Sequence[TimedPoint]) -> TimedPoint:
    """The same form with one worker."""
    return next(
        t for t in every if (t.proxy, t.point) == (timed.proxy, FormPoint(timed.point.form)) and t.mode == STRONG
    )
