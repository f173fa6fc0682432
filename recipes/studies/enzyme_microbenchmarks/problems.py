"""The inputs of the seven benchmarks, made from a seed: every benchmark is a function of three flat arrays.

``x`` is what is differentiated for, ``c`` holds constants and ``n`` whole numbers; the headers beside this file say
what stands where. The published experiment's data files are not used: numbers are random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Problem:
    """One benchmark's arrays at one size.

    Attributes:
        name: of the C++ function.
        size: how large it is, in words.
        amount: how large it is on the axis of a plot.
        x, c: float64.
        n: int64.
    """

    name: str
    size: str
    amount: float
    x: np.ndarray
    c: np.ndarray
    n: np.ndarray


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, or another style of one.

    Attributes:
        title: for people.
        make: a problem from a name and one of the sizes.
        sizes: what is measured, small ones first.
        quick: small enough to check gradients in a moment.
        axis: what ``Problem.amount`` counts.
        benchmark: the one that it is a style of; empty for a benchmark.
        style: what is different, in words.
    """

    title: str
    make: Callable[..., Problem]
    sizes: tuple[tuple[int, ...], ...]
    quick: tuple[int, ...]
    axis: str
    benchmark: str = ""
    style: str = ""


def _problem(name: str, size: str, amount: float, x: list[Any], c: list[Any], n: list[Any]) -> Problem:
    flat = [np.concatenate([np.ravel(part) for part in parts]) for parts in (x, c, n)]
    return Problem(name, size, amount, *(np.ascontiguousarray(a, t) for a, t in zip(flat, "ddq", strict=True)))


def lstm(name: str, layers: int, units: int, steps: int) -> Problem:
    """Parameters in a trained network's range, and a sequence of symbols, one of ``units`` each."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, layers * 8 * units + 3 * units)
    sequence = np.eye(units)[rng.integers(0, units, steps + 1)]
    return _problem(
        name, f"{layers} x {units}, {steps} steps", layers * steps, [x], [sequence], [[layers, units, steps]]
    )


def lstm_full(name: str, layers: int, units: int, steps: int) -> Problem:
    """Weights as in a trained network's range, inputs and symbols at random."""
    rng = np.random.default_rng(1)
    # divided, so that sums over all units stay where gates do not saturate
    x = rng.uniform(-1, 1, layers * (8 * units * units + 4 * units) + units * units + units) / np.sqrt(units)
    c, symbols = rng.standard_normal((steps, units)), rng.integers(0, units, steps)
    words = f"{layers} x {units}, {steps} steps"
    return _problem(name, words, layers * steps, [x], [c], [np.array([layers, units, steps]), symbols])


def ba(name: str, cameras: int, points: int, observations: int) -> Problem:
    """Cameras in a row that look at a cloud of points; what they observe is off by about a pixel."""
    rng = np.random.default_rng(2)
    poses = np.zeros((cameras, 11))
    poses[:, :3] = rng.normal(0, 0.1, (cameras, 3))
    poses[:, 3:6] = rng.normal(0, 0.5, (cameras, 3))
    poses[:, 6], poses[:, 7:9], poses[:, 9:] = 500, rng.normal(0, 5, (cameras, 2)), rng.normal(0, 0.01, (cameras, 2))
    cloud = rng.normal([0, 0, 8], 1, (points, 3))
    pairs = np.stack([rng.integers(0, cameras, observations), rng.integers(0, points, observations)], 1)
    pixels = _project(poses[pairs[:, 0]], cloud[pairs[:, 1]]) + rng.normal(0, 1, (observations, 2))
    words = f"{cameras} cameras, {points} points, {observations} observations"
    x = [poses, cloud, rng.uniform(0.5, 1.5, observations)]
    return _problem(name, words, observations, x, [pixels], [np.array([cameras, points, observations]), pairs])


def _project(camera: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Pixels (n, 2) of points (n, 3) in cameras (n, 11)."""
    from scipy.spatial.transform import Rotation

    seen = Rotation.from_rotvec(camera[:, :3]).apply(point - camera[:, 3:6])
    flat = seen[:, :2] / seen[:, 2:]
    square = (flat**2).sum(1)
    stretch = camera[:, 6] * (1 + camera[:, 9] * square + camera[:, 10] * square**2)
    return np.asarray(stretch[:, None] * flat + camera[:, 7:9])


def gmm(name: str, d: int, parts: int, points: int) -> Problem:
    """Points around random centres, and a mixture that has not been fitted to them yet."""
    rng = np.random.default_rng(3)
    centres, size = rng.normal(0, 1, (parts, d)), d * (d + 1) // 2
    data = centres[rng.integers(0, parts, points)] + rng.normal(0, 1, (points, d))
    x = [rng.normal(0, 1, parts), centres + rng.normal(0, 0.3, (parts, d)), rng.normal(0, 0.3, (parts, size))]
    words = f"d={d}, K={parts}, n={points}"
    return _problem(name, words, parts * size * points, x, [[1.0, d + 1.0], data], [[d, parts, points]])


def decay(name: str, steps: int) -> Problem:
    """The decay of 1.3 at a rate of 1.2 over 2.1 seconds; Euler's and RK4's input."""
    return _problem(name, f"{steps} steps", steps, [[1.3, 1.2, 2.1]], [[0.0]], [[steps]])


def fft(name: str, power: int) -> Problem:
    """White noise, and random weights."""
    rng, count = np.random.default_rng(4), 2**power
    x, c = rng.standard_normal(2 * count), rng.uniform(0, 1, count) / count
    return _problem(name, f"2^{power} complex", count, [x], [c], [[count]])


def brusselator(name: str, side: int) -> Problem:
    """A disturbed state near the usual parameters, and random weights of its slopes."""
    rng = np.random.default_rng(5)
    state = np.stack([1 + 0.2 * rng.standard_normal((side, side)), 3.4 + 0.2 * rng.standard_normal((side, side))])
    x, c = [[3.4, 1.0, 10.0 / (side - 1) ** 2], state], rng.standard_normal(2 * side * side)
    return _problem(name, f"{side} x {side}", side * side, x, [c], [[side]])


def brusselator_integrated(name: str, side: int, steps: int) -> Problem:
    """A disturbed state near the usual parameters (a, b) = (1, 3)."""
    rng = np.random.default_rng(5)
    state = np.stack([1 + 0.2 * rng.standard_normal((side, side)), 3 + 0.2 * rng.standard_normal((side, side))])
    x, c = [[1.0, 3.0], state], [[0.5, 0.01 * steps], rng.standard_normal(2 * side * side)]
    return _problem(name, f"{side} x {side}, {steps} RK4 steps", side * side, x, c, [[steps, side]])


_LSTM = ((2, 14, 50), (2, 14, 200), (2, 14, 800), (4, 14, 1000))
_BA = ((7, 200, 1000), (21, 1000, 5000), (35, 3000, 15000), (49, 7776, 31843))
_GMM = ((2, 5, 1000), (10, 5, 1000), (10, 25, 1000), (20, 25, 1000))
_EULER = ((1000,), (10_000,), (100_000,), (1_000_000,))
_RK4 = ((1000,), (10_000,), (100_000,), (300_000,))
_FFT = ((7,), (10,), (13,), (16,))
_SQUARE = ((16,), (32,), (64,), (128,))

BENCHMARKS: dict[str, Benchmark] = {
    "lstm": Benchmark("LSTM", lstm, _LSTM, (2, 14, 20), "layers x steps"),
    "ba": Benchmark("BA", ba, _BA, (5, 40, 300), "observations"),
    "gmm": Benchmark("GMM", gmm, _GMM, (3, 4, 50), "K d (d + 1) / 2 x points"),
    "euler": Benchmark("Euler", decay, _EULER, (2000,), "steps"),
    "rk4": Benchmark("RK4", decay, _RK4, (1000,), "steps"),
    "fft": Benchmark("FFT", fft, _FFT, (7,), "complex numbers"),
    "brusselator": Benchmark("Brusselator", brusselator, _SQUARE, (8,), "cells"),
}
"""The published benchmarks' layouts. Sizes for measuring: most calls take between 10 microseconds and a second."""

_STATES = {
    "compared": "state a vector, work space compared in every step",
    "resized": "state a vector, work space resized in every step",
    "once": "state a vector, work space sized once",
    "plain": "state a number, a loop without layers",
}
STYLES: dict[str, Benchmark] = {
    "lstm_full": Benchmark(
        "LSTM", lstm_full, _LSTM, (2, 14, 20), "layers x steps", "lstm", "gates of all units, by matrices"
    ),
    "ba_whole": Benchmark("BA", ba, _BA, (5, 40, 300), "observations", "ba", "sum of squares as a whole"),
    "gmm_allocating": Benchmark(
        "GMM", gmm, _GMM, (3, 4, 50), "K d (d + 1) / 2 x points", "gmm", "work space for every point and part"
    ),
    **{
        f"euler_{name}": Benchmark("Euler", decay, _EULER, (2000,), "steps", "euler", words)
        for name, words in _STATES.items()
    },
    **{f"rk4_{name}": Benchmark("RK4", decay, _RK4, (1000,), "steps", "rk4", words) for name, words in _STATES.items()},
    "fft_forward": Benchmark("FFT", fft, _FFT, (7,), "complex numbers", "fft", "forward only"),
    "brusselator_integrated": Benchmark(
        "Brusselator",
        brusselator_integrated,
        tuple((side, 20) for (side,) in _SQUARE),
        (6, 5),
        "cells",
        "brusselator",
        "20 RK4 steps, state a vector",
    ),
}
"""Other ways to write the same; what they change is shown beside the published layouts, never in the headline."""

ALL = {**BENCHMARKS, **STYLES}


def problems(name: str, quick: bool) -> list[Problem]:
    """A benchmark's or style's problems, small ones first."""
    benchmark = ALL[name]
    return [benchmark.make(name, *size) for size in ([benchmark.quick] if quick else benchmark.sizes)]
