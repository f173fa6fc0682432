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
    """One benchmark's arrays: ``x`` and ``c`` of float64, ``n`` of int64; ``size`` says how large it is, in words."""

    name: str
    title: str
    size: str
    x: np.ndarray
    c: np.ndarray
    n: np.ndarray


def _problem(name: str, title: str, size: str, x: list[Any], c: list[Any], n: list[Any]) -> Problem:
    flat = [np.concatenate([np.ravel(part) for part in parts]) for parts in (x, c, n)]
    return Problem(name, title, size, *(np.ascontiguousarray(a, t) for a, t in zip(flat, "ddq", strict=True)))


def lstm(layers: int, units: int, steps: int) -> Problem:
    """Weights as in a trained network's range, inputs and symbols at random."""
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, layers * (8 * units * units + 4 * units) + units * units + units) / np.sqrt(units)
    c, symbols = rng.standard_normal((steps, units)), rng.integers(0, units, steps)
    words = f"{layers} layers x {units}, {steps} steps"
    return _problem("lstm", "LSTM", words, [x], [c], [np.array([layers, units, steps]), symbols])


def ba(cameras: int, points: int, observations: int) -> Problem:
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
    return _problem("ba", "BA", words, x, [pixels], [np.array([cameras, points, observations]), pairs])


def _project(camera: np.ndarray, point: np.ndarray) -> np.ndarray:
    """Pixels (n, 2) of points (n, 3) in cameras (n, 11)."""
    from scipy.spatial.transform import Rotation

    seen = Rotation.from_rotvec(camera[:, :3]).apply(point - camera[:, 3:6])
    flat = seen[:, :2] / seen[:, 2:]
    square = (flat**2).sum(1)
    stretch = camera[:, 6] * (1 + camera[:, 9] * square + camera[:, 10] * square**2)
    return np.asarray(stretch[:, None] * flat + camera[:, 7:9])


def gmm(d: int, parts: int, points: int) -> Problem:
    """Points around random centres, and a mixture that has not been fitted to them yet."""
    rng = np.random.default_rng(3)
    centres, size = rng.normal(0, 1, (parts, d)), d * (d + 1) // 2
    data = centres[rng.integers(0, parts, points)] + rng.normal(0, 1, (points, d))
    x = [rng.normal(0, 1, parts), centres + rng.normal(0, 0.3, (parts, d)), rng.normal(0, 0.3, (parts, size))]
    words = f"d={d}, K={parts}, n={points}"
    return _problem("gmm", "GMM", words, x, [np.array([1.0, d + 1.0]), data], [np.array([d, parts, points])])


def oscillator(name: str, title: str, steps: int) -> Problem:
    """A damped oscillator over ten seconds; Euler's and RK4's input."""
    x, c = np.array([1.0, -0.5]), np.array([4.0, 0.2, 10.0, 0.7, -0.3])
    return _problem(name, title, f"{steps:.0e} steps".replace("e+0", "e"), [x], [c], [np.array([steps])])


def fft(power: int) -> Problem:
    """White noise, and random weights of its spectrum."""
    rng, count = np.random.default_rng(4), 2**power
    x, c = rng.standard_normal(2 * count), rng.uniform(0, 1, count) / count
    return _problem("fft", "FFT", f"2^{power} complex", [x], [c], [np.array([count])])


def brusselator(side: int, steps: int) -> Problem:
    """A disturbed state near the usual parameters (a, b) = (1, 3)."""
    rng = np.random.default_rng(5)
    state = np.stack([1 + 0.2 * rng.standard_normal((side, side)), 3 + 0.2 * rng.standard_normal((side, side))])
    x, c = [np.array([1.0, 3.0]), state], [np.array([0.5, 0.01 * steps]), rng.standard_normal(2 * side * side)]
    return _problem("brusselator", "Brusselator", f"{side}x{side}, {steps} RK4 steps", x, c, [np.array([steps, side])])


FULL: dict[str, Callable[[], Problem]] = {
    "lstm": lambda: lstm(2, 14, 1000),
    "ba": lambda: ba(49, 1944, 31843),
    "gmm": lambda: gmm(10, 25, 1000),
    "euler": lambda: oscillator("euler", "Euler", 1_000_000),
    "rk4": lambda: oscillator("rk4", "RK4", 300_000),
    "fft": lambda: fft(17),
    "brusselator": lambda: brusselator(32, 100),
}
"""Sizes for measuring: calls take between a millisecond and a fifth of a second."""

QUICK: dict[str, Callable[[], Problem]] = {
    "lstm": lambda: lstm(2, 14, 20),
    "ba": lambda: ba(5, 40, 300),
    "gmm": lambda: gmm(3, 4, 50),
    "euler": lambda: oscillator("euler", "Euler", 5000),
    "rk4": lambda: oscillator("rk4", "RK4", 2000),
    "fft": lambda: fft(9),
    "brusselator": lambda: brusselator(6, 5),
}
"""Small enough to check gradients in a moment; the times say little."""
