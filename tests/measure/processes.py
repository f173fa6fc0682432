"""Twelve kinds of time series with known quantiles, to hold intervals against; two of them have none."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.signal import lfilter
from scipy.stats import norm

Draw = Callable[[np.random.Generator, int], np.ndarray]
STAY, GAP, HALF, LOAD, SIGMA = 60, 1.3, 25, 0.7, 0.1
"""Mean stay in each of two states, ratio of their levels, half a period of the square wave, load of the queue, s.d."""

LONG = 2_000_000
"""Samples of the series that stand for the truth where there is no closed form."""


def noise(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    """Stationary AR(1) with normal marginals of variance 1."""
    scale = math.sqrt(1 - phi * phi)
    return np.asarray(lfilter([scale], [1, -phi], rng.standard_normal(n), zi=[phi * rng.standard_normal()])[0])


def bimodal(rng: np.random.Generator, n: int) -> np.ndarray:
    """60 % of the samples around 1.0, 40 % around 1.5."""
    return np.where(rng.random(n) < 0.6, rng.normal(1, 0.05, n), rng.normal(1.5, 0.05, n))


def spiky(rng: np.random.Generator, n: int, phi: float = 0.7) -> np.ndarray:
    """AR(1) on logarithms with 5 % of Pareto spikes."""
    return np.exp(0.3 * noise(rng, n, phi)) * (1 + (rng.random(n) < 0.05) * rng.pareto(1.5, n))


def levels(rng: np.random.Generator, state: np.ndarray) -> np.ndarray:
    """Two speeds with noise of 2 %."""
    return np.where(state % 2, GAP, 1.0) * np.exp(0.02 * rng.standard_normal(state.size))


def two_states(rng: np.random.Generator, n: int) -> np.ndarray:
    """A chain that leaves its state with probability 1/60."""
    return levels(rng, np.cumsum(rng.random(n) < 1 / STAY) + rng.integers(2))


def square_wave(rng: np.random.Generator, n: int) -> np.ndarray:
    """25 samples at either speed, beginning anywhere."""
    return levels(rng, (np.arange(n) + rng.integers(2 * HALF)) // HALF)


def queue(rng: np.random.Generator, n: int) -> np.ndarray:
    """Times in an M/M/1 system of load .7, stationary from the first on; Lindley's recursion in closed form."""
    service, gaps = rng.exponential(1, n), rng.exponential(1 / LOAD, n)
    waits = rng.exponential(1 / (1 - LOAD)) * (rng.random() < LOAD)
    walk = np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[1:])])
    return walk - np.minimum.accumulate(np.concatenate([[-waits], walk[1:]])) + service


def walk(rng: np.random.Generator, n: int) -> np.ndarray:
    """A random walk on logarithms, 2 % a step."""
    return np.exp(0.02 * np.cumsum(rng.standard_normal(n)))


def moving(rng: np.random.Generator, n: int) -> np.ndarray:
    """10 % more at the end: by a drift or by a step at half; noise of 2 to 5 %."""
    shape = np.linspace(0, 1, n) if rng.integers(2) else np.arange(n) >= n // 2
    return (1 + 0.1 * shape) * np.exp(rng.uniform(0.02, 0.05) * rng.standard_normal(n))


def _autoregressive(phi: float) -> Draw:
    return lambda rng, n: np.exp(SIGMA * noise(rng, n, phi))


PROCESSES: dict[str, Draw] = {
    "lognormal": lambda rng, n: rng.lognormal(0, 1, n),
    "Pareto 1.5": lambda rng, n: rng.pareto(1.5, n) + 1,
    "bimodal": bimodal,
    "AR(.5)": _autoregressive(0.5),
    "AR(.9)": _autoregressive(0.9),
    "AR(.98)": _autoregressive(0.98),
    "AR(.7), spikes": spiky,
    "two states": two_states,
    "square wave": square_wave,
    "M/M/1": queue,
    "random walk": walk,
    "drift or step": moving,
}
WITHOUT_TRUTH = ("random walk", "drift or step")


@cache
def truth(name: str, q: float) -> float:
    """The quantile of a process; NaN where it has none, so that no interval holds it."""
    if name in WITHOUT_TRUTH:
        return math.nan
    closed = {
        "lognormal": lambda: math.exp(norm.ppf(q)),
        "Pareto 1.5": lambda: (1 - q) ** (-1 / 1.5),
        "M/M/1": lambda: -math.log(1 - q) / (1 - LOAD),
        **dict.fromkeys(("AR(.5)", "AR(.9)", "AR(.98)"), lambda: math.exp(SIGMA * norm.ppf(q))),
    }
    return float(closed[name]() if name in closed else np.quantile(_long(name), q))


@cache
def _long(name: str) -> np.ndarray:
    """Many samples with the marginal distribution of a process, without its dependence."""
    rng = np.random.default_rng(99)
    if name == "bimodal":
        return bimodal(rng, LONG)
    return spiky(rng, LONG, 0.0) if name == "AR(.7), spikes" else levels(rng, np.arange(LONG))
