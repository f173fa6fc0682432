"""Upper bounds: what a machine could do, so that a number can be read as a share of it.

*Roofline* (Williams, Waterman and Patterson 2009): work of ``flops`` operations that moves ``bytes`` can run at
``min(peak, bandwidth * flops / bytes)``. Both roofs are measured here and now, by a matrix product and by a triad
``a = b + s c`` (McCalpin's STREAM), not copied from a data sheet; their best of several runs, since a roof is a bound.

*Scaling*: on p processes ideal is p times as fast; Amdahl's law (1967) with a serial share f bounds it by
``1 / (f + (1 - f) / p)``, and f is fitted to what was measured.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from deep500.errors import InputError
from deep500.measure.statistics import Interval


@dataclass(frozen=True)
class Roofs:
    """Measured limits: ``flops`` per second, ``bandwidth`` in bytes per second, on ``threads`` threads."""

    flops: float
    bandwidth: float
    threads: int | None = None


@dataclass(frozen=True)
class Roofline:
    """The place of some work under the roofs.

    Attributes:
        attained: operations per second.
        bound: what the roofs allow for its intensity.
        intensity: operations per byte.
        limit: ``"memory"`` or ``"compute"``: the roof above it.
    """

    attained: float
    bound: float
    intensity: float
    limit: str

    @property
    def share(self) -> float:
        """Attained over bound, 0 to 1."""
        return self.attained / self.bound

    def __str__(self) -> str:
        return f"{self.attained / 1e9:.4g} GFLOP/s, {self.share:.0%} of the {self.limit} roof"


def measure_roofs(size: int = 1024, megabytes: int = 64, repeats: int = 5, threads: int | None = None) -> Roofs:
    """Measure both roofs in float32 with NumPy, on as many threads as its BLAS uses (the triad runs on one).

    Args:
        size: of the square matrices.
        megabytes: of each array of the triad; should exceed the caches by far.
        repeats: the best one counts.
        threads: recorded, not set.

    Example:
        >>> measure_roofs(size=64, megabytes=1, repeats=2).flops > 0
        True
    """
    rng = np.random.default_rng(0)
    a, b = rng.random((size, size), np.float32), rng.random((size, size), np.float32)
    product = np.empty_like(a)
    seconds = min(_seconds(lambda: np.matmul(a, b, out=product)) for _ in range(repeats))
    x, y = (rng.random(megabytes * 2**18, np.float32) for _ in range(2))
    out = np.empty_like(x)

    def triad() -> None:  # NumPy needs two passes: each reads two arrays or one, and writes one
        np.multiply(y, np.float32(3), out=out)
        np.add(x, out, out=out)

    triad_seconds = min(_seconds(triad) for _ in range(repeats))
    return Roofs(2 * size**3 / seconds, 5 * x.nbytes / triad_seconds, threads)


def _seconds(function: object) -> float:
    begin = time.perf_counter()
    function()  # type: ignore[operator]
    return time.perf_counter() - begin


def roofline(flops: float, bytes_moved: float, seconds: float, roofs: Roofs) -> Roofline:
    """Place work under the roofs.

    Raises:
        InputError: a number is not positive, or the work is faster than its bound by more than 5 %, which means that
            operations or bytes were counted wrong, or that the roofs were measured on a busier machine.

    Example:
        >>> print(roofline(1e9, 1e9, 5.0, Roofs(flops=1e10, bandwidth=1e9)))
        0.2 GFLOP/s, 20% of the memory roof
    """
    if not (flops > 0 and bytes_moved > 0 and seconds > 0):
        raise InputError(f"got {flops} operations, {bytes_moved} bytes, {seconds} s; expected positive numbers")
    intensity, attained = flops / bytes_moved, flops / seconds
    bound = min(roofs.flops, roofs.bandwidth * intensity)
    if attained > 1.05 * bound:
        raise InputError(
            f"got {attained:.4g} FLOP/s under a roof of {bound:.4g}; expected no more than that: check the counts of "
            "operations and bytes, and measure the roofs again with the same threads"
        )
    return Roofline(attained, bound, intensity, "compute" if bound == roofs.flops else "memory")


@dataclass(frozen=True)
class ScalingRow:
    """One line of a scaling table: processes, time, speedup and efficiency against one process, and the bounds."""

    processes: int
    seconds: Interval
    speedup: float
    efficiency: float
    ideal: float
    amdahl: float


def scaling_table(times: Mapping[int, Interval], weak: bool = False) -> tuple[list[ScalingRow], float]:
    """A strong (or weak) scaling table and the serial share that Amdahl's law is fitted with.

    Args:
        times: per number of processes, the time of the whole problem (strong) or of one that grows with the processes
            (weak: then the speedup is Gustafson's, ``p t_1 / t_p``).
        weak: which of the two.

    Raises:
        InputError: the time on one process, the base of every speedup, is missing.

    Example:
        >>> rows, serial = scaling_table({p: Interval(0.1 + 0.9 / p, None, None, 1) for p in (1, 2, 4)})
        >>> round(serial, 3), round(rows[2].speedup, 3), round(rows[2].amdahl, 3)
        (0.1, 3.077, 3.077)
    """
    if 1 not in times:
        raise InputError(
            f"got times on {sorted(times)} processes; expected one on 1 too: it is the base of the speedup"
        )
    base, counts = times[1].median, sorted(times)
    serial = _serial_share({p: times[p].median / base for p in counts if p > 1}, weak)
    rows = []
    for p in counts:
        speedup = base / times[p].median * (p if weak else 1)
        bound = p - serial * (p - 1) if weak else 1 / (serial + (1 - serial) / p)
        rows.append(ScalingRow(p, times[p], speedup, speedup / p, float(p), bound))
    return rows, serial


def _serial_share(relative: Mapping[int, float], weak: bool) -> float:
    """Least squares of ``t_p / t_1 = f + (1 - f) / p`` (strong) or ``p / (p - f (p - 1))`` (weak), within 0 and 1."""
    if not relative:
        return 0.0
    p = np.array(list(relative), np.float64)
    t = np.array(list(relative.values()))
    if weak:
        p_effective = p / t  # speedup p - f (p - 1)
        slope = float(((p - p_effective) * (p - 1)).sum() / ((p - 1) ** 2).sum())
    else:
        slope = float(((t - 1 / p) * (1 - 1 / p)).sum() / ((1 - 1 / p) ** 2).sum())
    return min(1.0, max(0.0, slope))
