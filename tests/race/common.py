"""Races without training: curves that are known stand in for processes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from deep500.race.running import Race, RaceOptions
from deep500.race.submissions import Submission
from deep500.race.trial import Request
from deep500.race.worker import Limits, TrialProcess
from deep500.race.workloads import Workload

WORKLOADS = tuple(Workload("digits_lenet", 90.0, 20.0, 400, 10, name=name) for name in ("v", "w", "x"))
SUBMISSIONS = [Submission(name, "AdamOptimizer", {"lr": 0.1}) for name in ("a", "b", "c")]


class Curves:
    """Stands in for :func:`run_isolated`: the time to the target is a function of the trial alone."""

    def __init__(self, seed: int = 0, gains: dict[str, float] | None = None, missing: float = 0.1) -> None:
        self.seed, self.gains, self.missing = seed, gains or {}, missing
        self.spent, self.calls = 0.0, 0

    def seconds(self, request: Request) -> float:
        """Lognormal around what settings of this number take, or never."""
        name = request.workload["name"]
        rng = np.random.default_rng([self.seed, ord(request.submission), *map(ord, name), request.index])
        lognormal = math.exp(rng.normal(0.3 * request.trial, 0.6)) / self.gains.get(request.submission, 1)
        return math.inf if rng.random() < self.missing else 3 * lognormal

    def __call__(self, request: Request, limits: Limits, stopped) -> TrialProcess:
        """As a process would, with evaluations every half second."""
        self.calls += 1
        at = self.seconds(request)
        hit = at <= request.limit
        spent = 0.5 * math.ceil((at if hit else request.limit) / 0.5)
        self.spent += spent
        outcome = {"seconds": at if hit else None, "steps": 10 * at if hit else None, "spent": spent, "best": 1.0}
        return TrialProcess(
            {**outcome, "reason": "" if hit else "not within a limit", "warnings": ["no GPU here"]}, [], 10**8
        )


def race(path: Path, submissions=None, workloads=WORKLOADS, **options) -> Race:
    """A race of submissions whose processes are stood in for."""
    (path / "trials").mkdir(parents=True, exist_ok=True)
    words = RaceOptions("smoke", ("a", "b", "c"), **{"studies": 3, "trials": 4, **options})
    return Race(path, words, workloads, SUBMISSIONS if submissions is None else submissions)
