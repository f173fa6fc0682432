"""The plan of a measurement: which quantiles, how precisely, at what cost. Part of a recipe, so frozen."""

from __future__ import annotations

from dataclasses import dataclass, field

from deep500.errors import InputError


@dataclass(frozen=True)
class Target:
    """Quantile ``q`` shall be known to ``rel`` of its value, with confidence ``level``."""

    q: float = 0.5
    level: float = 0.99
    rel: float = 0.05

    def __post_init__(self) -> None:
        if not (0 < self.q < 1 and 0 < self.level < 1 and self.rel > 0):
            raise InputError(f"got {self}; expected q and level between 0 and 1 and a positive rel")


@dataclass(frozen=True)
class Budget:
    """The rule for stopping.

    Args:
        min_n: samples before the first look; the following looks are at 1.3 times as many each.
        max_n: most samples of one launch.
        max_s: most seconds of one launch, warm-up included.
        min_neff: fewest independent samples that a result may rest on, where it rests on samples of few launches.
        launches: how often to begin anew, with a warm-up each; with 6 (8 for 99 %) intervals hold over launches.
        fresh: whether each of several launches is a process of its own; False: they share this process.
    """

    min_n: int = 30
    max_n: int = 20_000
    max_s: float = 120.0
    min_neff: float = 50.0
    launches: int = 1
    fresh: bool = True

    def __post_init__(self) -> None:
        if not (1 <= self.min_n <= self.max_n and self.max_s > 0 and self.min_neff >= 0 and self.launches >= 1):
            raise InputError(f"got {self}; expected 1 <= min_n <= max_n, a positive max_s and at least one launch")


@dataclass(frozen=True)
class Plan:
    """The settings for measuring one function.

    Args:
        targets: all of them must be met; the first is the headline.
        budget: samples and seconds of one launch, and how many launches.
        alpha: level of the test for drift.
        max_fraction: at most this part of a launch may be warm-up.
        cold_bytes: if not 0, that many bytes are written before every sample, so that caches are cold.

    Example:
        >>> Plan(targets=(Target(0.5, rel=0.02), Target(0.99, level=0.95, rel=0.1))).targets[0].rel
        0.02
    """

    targets: tuple[Target, ...] = (Target(),)
    budget: Budget = field(default_factory=Budget)
    alpha: float = 0.001
    max_fraction: float = 0.5
    cold_bytes: int = 0

    def __post_init__(self) -> None:
        if not self.targets:
            raise InputError("got no targets; expected at least one: give Target()")
