"""Derivatives by differences, with an estimate of how far they can be trusted.

Central differences at several step sizes, each pair extrapolated (Richardson 1911), as in Ridders (1982), "Accurate
computation of F'(x) and F'(x)F''(x)": large steps err by curvature, small ones by rounding, and for every entry the
step is taken at which neighbours agree best. So one procedure serves float64 and float32, smooth functions and kinks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Evaluate = Callable[[Sequence[np.ndarray]], np.ndarray]
"""From inputs to all floating outputs in one float64 vector."""

TRUST = 8.0
"""A difference may be off by this multiple of its estimated uncertainty."""
BLURRED = 0.05
"""It can judge if what noise allows is below this share of the largest entry of its tensor."""
LEVELS = 6
RATIO = 4.0
FIRST = 2.0**-5
"""The steps, relative to an input's size: 3e-2, 8e-3, ... 3e-5; float32 is best at the first, float64 at the fourth."""


@dataclass(frozen=True)
class Derivative:
    """A derivative by differences, arrays of one shape.

    Attributes:
        value: the derivative.
        uncertainty: how far it may be off, by curvature and rounding together.
        rounding: the part of rounding in it.
        jump: the distance of the two one-sided derivatives where there is a kink, else 0.
    """

    value: np.ndarray
    uncertainty: np.ndarray
    rounding: np.ndarray
    jump: np.ndarray


@dataclass(frozen=True)
class Samples:
    """Differences along one direction: ``central`` and ``bend`` have a row per level.

    ``central`` is (f(x+h) - f(x-h)) / 2h, ``bend`` (f(x+h) + f(x-h) - 2 f(x)) / 2h; one-sided ones are their sum and
    difference. ``moved`` has, per level, by what the input really moved, over 2h: float32 rounds it.
    """

    central: np.ndarray
    bend: np.ndarray
    moved: list[np.ndarray]


def is_floating(dtype: Any) -> bool:
    """Return whether values of this dtype can have a gradient; NumPy calls bfloat16 no kind of float."""
    return np.dtype(dtype).kind == "f" or "float" in np.dtype(dtype).name


def epsilon(dtype: Any) -> float:
    """Distance from 1 to the next number of a floating dtype, those that NumPy does not know included.

    Example:
        >>> epsilon("float32")
        1.1920928955078125e-07
    """
    step, unit = 1.0, np.ones((), dtype)
    while np.asarray(1.0 + step / 2).astype(unit.dtype) != unit:
        step /= 2
    return step


def sizes(x: np.ndarray) -> np.ndarray:
    """By what steps at each element are scaled: its magnitude, or a tenth of what is usual in the array."""
    wide = np.abs(x.astype(np.float64))
    usual = float(np.sqrt(np.mean(wide**2))) if wide.size else 0.0
    return np.maximum(wide, 0.1 * usual if usual else 1.0)


def sample(
    evaluate: Evaluate,
    inputs: Sequence[np.ndarray],
    middle: np.ndarray,
    i: int,
    direction: np.ndarray,
    weights: np.ndarray | None = None,
) -> Samples:
    """Differences along a direction in one input.

    Args:
        evaluate, inputs: the function and the point.
        middle: its value there.
        i, direction: which input moves, and what one unit of step adds to it.
        weights: take the weighted sum of the outputs instead of all of them.
    """
    central, bend, moved = [], [], []
    x = inputs[i].astype(np.float64)
    for level in range(LEVELS):
        step = FIRST / RATIO**level
        up, down = ((x + sign * step * direction).astype(inputs[i].dtype) for sign in (1, -1))
        above, below = (evaluate([*inputs[:i], point, *inputs[i + 1 :]]) - middle for point in (up, down))
        if weights is not None:
            above, below = (np.array([weights @ side]) for side in (above, below))
        central.append((above - below) / (2 * step))
        bend.append((above + below) / (2 * step))
        moved.append((up.astype(np.float64) - down.astype(np.float64)) / (2 * step))
    return Samples(np.stack(central), np.stack(bend), moved)


def derivative(
    central: np.ndarray, bend: np.ndarray, rounding: np.ndarray | float, groups: np.ndarray | None = None
) -> Derivative:
    """The best derivatives that samples give.

    Args:
        central, bend: as in :class:`Samples`, levels first; then probes, then outputs.
        rounding: how far the function's values may be off (absolute), per output.
        groups: numbers which outputs lose digits alike, such as the elements of one tensor; None: all.
    """
    # Richardson: two neighbouring steps cancel the error of second order in `better`, that of first order in `kink`.
    # Smaller steps have less of it and more rounding, so the level is taken where both together are least.
    steps = FIRST / RATIO ** np.arange(len(central)).reshape(-1, 1, 1)
    with np.errstate(invalid="ignore"):  # inf - inf, where a step left the function's domain
        better = (RATIO**2 * central[1:] - central[:-1]) / (RATIO**2 - 1)
        kink = (RATIO * bend[1:] - bend[:-1]) / (RATIO - 1)
        gap = np.abs(np.diff(better, axis=0))
        last = np.abs(central[-1] - central[-2])
    noise = np.maximum(rounding, _usual(last, groups) * steps[-1, 0])
    floor = np.broadcast_to(2 * noise / steps[1:-1], gap.shape)
    error = np.where(np.isfinite(gap), gap, np.inf) + floor
    best = np.argmin(error, axis=0)[None]
    value, off, small, jump = (
        np.take_along_axis(a, best, 0)[0] for a in (better[:-1], error, floor, np.abs(kink[:-1]))
    )
    return Derivative(value, off, small, np.where(jump > 8 * off, 2 * jump, 0.0))


def _usual(gap: np.ndarray, groups: np.ndarray | None) -> np.ndarray:
    """Per output, the usual disagreement of the smallest steps: what a forward that rounds inside shows."""
    groups = np.zeros(gap.shape[1], int) if groups is None else groups
    usual = np.zeros(gap.shape[1])
    for group in np.unique(groups):
        gaps = gap[:, groups == group]
        real = gaps[(gaps > 0) & np.isfinite(gaps)]
        usual[groups == group] = np.median(real) if real.size else 0.0
    return usual
