"""Submissions: a training algorithm and the settings among which it may be tuned, the same on every workload.

Optimizer, schedule and regularisation belong to a submission; model, loss, data and evaluation belong to the workload.
A setting is a keyword of the optimizer, one of the recipe's keys in :data:`KEYS_OF_SUBMISSIONS`, or one of
:data:`OF_SCHEDULE`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import RecipeError, nearest
from deep500.recipe.describing import describe, source_of
from deep500.recipe.names import is_own_name, own_object, resolve_name
from deep500.recipe.schema import BASES
from deep500.training.schedules import CosineSchedule, WarmUp

KEYS_OF_SUBMISSIONS = (
    "batch_size", "accumulate", "ema", "groups", "no_decay", "gradient_modifier", "gradient_transform"
)  # fmt: skip
OF_SCHEDULE = {"horizon": 1.0, "warmup": 0.05}
"""Settings of the schedule, with their defaults: the share of the workload's steps after which a cosine reaches 0, and
the share of that horizon in which the learning rate rises."""

LABEL = re.compile(r"\w[\w.+-]*")
"""Names of submissions and workloads: results have files of these names."""

LONGER = 1.5
"""Times the workload's budget: what a self-tuning submission may take for its only trial."""


@dataclass(frozen=True)
class Span:
    """Numbers between two: of a search space or a sweep.

    Attributes:
        low, high: both included.
        log: their logarithms are spread evenly.
        whole: only whole numbers are meant, such as of a batch size.

    Raises:
        RecipeError: nothing lies between them.
    """

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low <= self.high):
            raise RecipeError(f"got numbers from {self.low} to {self.high}; expected a finite range: exchange its ends")
        if self.log and self.low <= 0:
            raise RecipeError(f"got logarithms from {self.low} on; expected a positive number: begin above 0")

    def at(self, share: float) -> float:
        """Return the number at a share of the way, 0 to 1.

        Example:
            >>> Span(1e-4, 1e-2, log=True).at(0.5), Span(0, 10).at(0.25)
            (0.001, 2.5)
            >>> Span(4, 64, log=True, whole=True).at(0.3)
            9
        """
        value = self.low + share * (self.high - self.low)
        if self.log:
            value = math.exp(math.log(self.low) + share * math.log(self.high / self.low))
        return round(value) if self.whole else float(f"{value:.6g}")


@dataclass(frozen=True)
class Choices:
    """One of several values; raises RecipeError where there are none."""

    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        if not self.values:
            raise RecipeError("got choices without a value; expected one at least: give some")

    def at(self, share: float) -> Any:
        """Return the value at a share of the way, 0 to 1."""
        return self.values[min(int(share * len(self.values)), len(self.values) - 1)]


def loguniform(low: float, high: float) -> Span:
    """Numbers whose logarithms are spread evenly between two."""
    return Span(low, high, log=True)


def uniform(low: float, high: float) -> Span:
    """Numbers that are spread evenly between two."""
    return Span(low, high)


def choices(*values: Any) -> Choices:
    """One of some values."""
    return Choices(values)


Space = Mapping[str, Any] | Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Submission:
    """A training algorithm with its search space.

    Attributes:
        name: of the submission, once per race.
        optimizer: a class's name, as on the command line of a recipe, or ``callable(executor, "loss", **settings)``.
        space: setting -> :func:`loguniform`, :func:`uniform`, :func:`choices` or a value; or a list of settings, of
            which a study tries the first ones.
        schedule: ``"cosine"`` after a warm-up, ``"constant"``, or callable(steps, settings) -> a schedule.
        self_tuning: it has one trial with a longer budget (:data:`LONGER`) instead of a search.

    Raises:
        RecipeError: an empty space, or a setting that belongs to the workload.

    Example:
        >>> sgd = Submission("sgd", "MomentumOptimizer", {"lr": loguniform(1e-3, 1), "momentum": 0.9})
        >>> sgd.settings(0, seed=0) == sgd.settings(0, seed=0) != sgd.settings(1, seed=0)
        True
    """

    name: str
    optimizer: str | Callable[..., Any]
    space: Space = field(default_factory=dict)
    schedule: str | Callable[[int, Mapping[str, Any]], Any] = "cosine"
    self_tuning: bool = False

    def __post_init__(self) -> None:
        if not LABEL.fullmatch(self.name):
            raise RecipeError(f"got submission {self.name!r}; expected a name of letters, digits, _ . + -: rename it")
        entries = [self.space] if isinstance(self.space, Mapping) else list(self.space)
        if not self.space and not self.self_tuning:
            raise RecipeError(
                f"submission {self.name!r}: got an empty space; expected settings to try: give it some, or self_tuning"
            )
        if self.schedule not in ("cosine", "constant") and not callable(self.schedule):
            raise RecipeError(f"submission {self.name!r}: got schedule {self.schedule!r}; expected cosine or constant")
        for key in (key for entry in entries for key in entry):
            if key in BASES and key not in KEYS_OF_SUBMISSIONS:
                raise RecipeError(
                    f"submission {self.name!r}: got a change of {key!r}, which belongs to the workload; expected "
                    f"keywords of its optimizer, {', '.join([*OF_SCHEDULE, *KEYS_OF_SUBMISSIONS])}: leave it out"
                )

    def trials(self, most: int) -> int:
        """Return the number of trials of a study: no more than a list of settings has."""
        if self.self_tuning:
            return 1
        return most if isinstance(self.space, Mapping) else min(most, len(self.space))

    def settings(self, index: int, seed: int, trial: int = 0) -> dict[str, Any]:
        """Return the settings of a trial.

        Args:
            index: of the point, from 0: the same index and seed give the same point, in any order.
            seed: of the scrambled Halton sequence.
            trial: of the study, which takes that entry of a list.
        """
        if not isinstance(self.space, Mapping):
            return dict(self.space[trial % len(self.space)])
        free = sorted(key for key, value in self.space.items() if isinstance(value, (Span, Choices)))
        shares = dict(zip(free, point(index, len(free), seed), strict=True))
        return {key: value.at(shares[key]) if key in shares else value for key, value in self.space.items()}

    def put_into(self, values: dict[str, Any], settings: Mapping[str, Any], steps: int, folder: Path | None) -> None:
        """Make a recipe's values those of a trial.

        Args:
            values: of a plan; changed.
            settings: of :meth:`settings`.
            steps: the budget of the workload.
            folder: where files are looked for that the optimizer's name names.
        """
        for key in ("optimizer_args", "optimizer_kwargs", *KEYS_OF_SUBMISSIONS[1:]):
            values[key] = DEFAULTS.get(key)
        optimizer = self.optimizer
        if isinstance(optimizer, str):
            optimizer = resolve_name("optimizer", optimizer, values["executor"], folder)
        values["optimizer"] = optimizer
        values.update({key: value for key, value in settings.items() if key in KEYS_OF_SUBMISSIONS})
        others = {key: value for key, value in settings.items() if key not in (*KEYS_OF_SUBMISSIONS, *OF_SCHEDULE)}
        values["optimizer_kwargs"] = others
        values["schedule"] = self._schedule(steps, {**OF_SCHEDULE, **settings})

    def _schedule(self, steps: int, settings: Mapping[str, Any]) -> Any:
        if callable(self.schedule):
            return self.schedule(steps, settings)
        horizon = max(1, round(settings["horizon"] * steps))
        cosine = CosineSchedule(horizon, unit="step") if self.schedule == "cosine" else None
        rise = round(settings["warmup"] * horizon)
        return WarmUp(rise, cosine) if rise else cosine

    def facts(self) -> dict[str, Any]:
        """Return what it is, as JSON that tells two submissions apart."""
        sources = [source_of("optimizer", self.optimizer)] if callable(self.optimizer) else []
        return {
            "name": self.name,
            "optimizer": describe(self.optimizer),
            "space": describe(self.space),
            "schedule": describe(self.schedule),
            "self_tuning": self.self_tuning,
            "sources": [source for source in sources if source is not None],
        }


DEFAULTS: dict[str, Any] = {"optimizer_args": (), "optimizer_kwargs": {}, "accumulate": 1, "groups": ()}


def point(index: int, dimensions: int, seed: int) -> list[float]:
    """Return a point of a scrambled Halton sequence in the unit cube.

    Example:
        >>> point(3, 2, seed=1) == point(3, 2, seed=1), point(0, 0, seed=1)
        (True, [])
    """
    if not dimensions:
        return []
    from scipy.stats import qmc

    values: np.ndarray = qmc.Halton(dimensions, scramble=True, seed=seed).random(index + 1)[-1]
    return [float(value) for value in values]


# fmt: off
BUILT_IN = {
    submission.name: submission
    for submission in (
        Submission("nesterov", "MomentumOptimizer", {
            "lr": loguniform(1e-2, 0.3), "momentum": choices(0.8, 0.9, 0.95), "nesterov": True,
            "weight_decay": loguniform(1e-5, 1e-3), "horizon": uniform(0.5, 1.0)}),
        Submission("momentum", "MomentumOptimizer", {
            "lr": loguniform(1e-2, 0.3), "momentum": choices(0.8, 0.9, 0.95),
            "weight_decay": loguniform(1e-5, 1e-3), "horizon": uniform(0.5, 1.0)}),
        Submission("adam", "AdamOptimizer", {
            "lr": loguniform(3e-4, 3e-2), "betas": choices((0.8, 0.999), (0.9, 0.999), (0.95, 0.999)),
            "horizon": uniform(0.5, 1.0)}),
        Submission("adamw", "AdamWOptimizer", {
            "lr": loguniform(3e-4, 3e-2), "betas": choices((0.8, 0.999), (0.9, 0.999), (0.95, 0.999)),
            "weight_decay": loguniform(1e-3, 1e-1), "horizon": uniform(0.5, 1.0)}),
        Submission("nadamw", "NAdamWOptimizer", {
            "lr": loguniform(3e-4, 3e-2), "betas": choices((0.8, 0.999), (0.9, 0.999), (0.95, 0.999)),
            "weight_decay": loguniform(1e-3, 1e-1), "horizon": uniform(0.5, 1.0)}),
        Submission("schedule_free_adamw", "ScheduleFreeAdamWOptimizer", {
            "lr": loguniform(1e-3, 1e-1), "betas": choices((0.9, 0.999), (0.95, 0.999), (0.98, 0.999)),
            "weight_decay": loguniform(1e-3, 1e-1)}, schedule="constant"),
        Submission("rmsprop", "RMSPropOptimizer", {
            "lr": loguniform(1e-4, 1e-2), "horizon": uniform(0.5, 1.0)}),
    )
}
# fmt: on
"""Submissions that the command knows by name."""


def find_submissions(words: Sequence[str]) -> list[Submission]:
    """Look up submissions by name, or load those of ``path.py:Name`` (a Submission or several).

    Raises:
        RecipeError: there is no such submission, fewer than two, or two of one name.
    """
    chosen: list[Submission] = []
    for word in words:
        if word in BUILT_IN:
            chosen.append(BUILT_IN[word])
            continue
        if not is_own_name("submissions", word):
            raise RecipeError(f"got submission {word!r}; expected path.py:Name or a name: {nearest(word, BUILT_IN)}")
        loaded = own_object("submissions", word)
        several = list(loaded) if isinstance(loaded, (list, tuple)) else [loaded]
        if not several or not all(isinstance(entry, Submission) for entry in several):
            raise RecipeError(f"got {word!r}, {type(loaded).__name__}; expected deep500.race.Submission: make one")
        chosen += several
    names = [submission.name for submission in chosen]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RecipeError(f"got two submissions {twice!r}; expected every name once: rename one of them")
    if len(chosen) < 2:
        raise RecipeError(f"got {len(chosen)} submissions; expected two at least: name another, as in adamw,nesterov")
    return chosen
