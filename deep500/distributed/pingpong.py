"""Latency and time of a byte of a communicator, by messages there and back between two ranks and by all-reduces.

The quickest of several rounds count, because whatever else the machine does only adds; what is fitted to them by least
squares of relative errors, none negative, says by how much it misses them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from deep500.distributed.clocks import as_control
from deep500.distributed.transports.communicator import Communicator
from deep500.transformations.parallel.costs import USUAL_COSTS, StepCosts
from deep500.transformations.parallel.shardings import PARTIAL, R, conversion

SIZES = tuple(8 * 4**k for k in range(10))
"""Bytes of the messages from which a network is fitted: 8 B to 2 MiB."""

TAG = 32763


class Fit(NamedTuple):
    """Constants of a linear model of times.

    Attributes:
        values: seconds, as many as the rows have columns.
        median, worst: by what part of a time the model misses it.
    """

    values: tuple[float, ...]
    median: float
    worst: float


def measure_network(comm: Communicator, rounds: int = 40) -> dict[str, Any]:
    """Fit alpha, beta and gamma (seconds per message, per byte, and per byte of a sum) between two ranks.

    Example:
        >>> from deep500.distributed import Threads
        >>> sorted(Threads(2).run(lambda comm: measure_network(comm, rounds=3))[0])
        ['alpha', 'beta', 'gamma', 'library', 'median', 'worst']
    """
    rows, times = [], []
    for size in SIZES:
        ping, reduction = _quickest(comm, size, rounds)
        rows += [(1.0, size, 0.0), (1.0, size, size)]
        times += [ping, reduction]
    fit = _fitted(rows, times)
    alpha, beta, gamma = fit.values
    library = getattr(comm, "library", comm.transport)
    return {"alpha": alpha, "beta": beta, "gamma": gamma, "worst": fit.worst, "median": fit.median, "library": library}


def measured_costs(comm: Communicator, rounds: int = 12) -> tuple[StepCosts, str]:
    """Costs for plans on these ranks, of which the first two exchange messages and all make sums; all call it.

    Returns:
        the usual costs with latency, time of a byte and of a byte of a sum as measured, the same on every rank; and
        in words what was measured.

    Example:
        >>> from deep500.distributed import Threads
        >>> costs, about = Threads(2).run(lambda comm: measured_costs(comm, rounds=3))[0]
        >>> costs.latency + costs.byte_time > 0, about.partition(" by ")[0]
        (True, 'measured between 2 ranks')
    """
    rows, times = [], []
    with as_control(comm):
        for size in SIZES[::2]:
            ping, reduction = _quickest(comm, size, rounds)
            change = conversion(PARTIAL, R, (size,), 1, comm.size)
            assert change is not None
            rows += [(1.0, size, 0.0), (change.messages, change.volume, change.summed)]
            times += [ping, reduction]
        fit = _fitted(rows, times)
        about = f"measured between {comm.size} ranks by messages and sums over {comm.transport}, misses them by "
        facts = comm.gather_facts([fit.values, f"{about}{fit.median:.0%}, at most {fit.worst:.0%}"])
    (latency, byte_time, sum_time), about = facts[0]
    return replace(USUAL_COSTS, latency=latency, byte_time=byte_time, sum_time=sum_time), about


def _quickest(comm: Communicator, size: int, rounds: int) -> tuple[float, float]:
    """Seconds of a message one way, and of an all-reduce."""
    there = np.zeros(size // 8)
    pings = [_timed(comm, _ping, there) / 2 for _ in range(rounds)]
    sums = [_timed(comm, Communicator.all_reduce, there) for _ in range(rounds)]
    return min(pings[1:]), min(sums[1:])


def _fitted(rows: Sequence[Sequence[float]], times: Sequence[float]) -> Fit:
    from scipy.optimize import nnls

    table, seen = np.array(rows, np.float64), np.array(times)
    scale = np.array([1e-6, 1e-9, 1e-9])  # near what is expected, or the solver stops at rounding
    scaled, _ = nnls(table * scale / seen[:, None], np.ones(len(seen)))
    wrong = np.abs(table @ (scaled * scale) / seen - 1)
    return Fit(tuple((scaled * scale).tolist()), float(np.median(wrong)), float(wrong.max()))


def _ping(comm: Communicator, data: np.ndarray) -> None:
    if comm.rank == 0:
        comm.send(data, 1, TAG)
        comm.receive(data, 1, TAG)
    elif comm.rank == 1:
        comm.receive(data, 0, TAG)
        comm.send(data, 0, TAG)


def _timed(comm: Communicator, call: Callable[[Communicator, np.ndarray], object], data: np.ndarray) -> float:
    comm.barrier()
    begin = time.perf_counter()
    call(comm, data)
    return time.perf_counter() - begin
