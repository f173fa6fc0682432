"""The time of a step on ranks that are not there: compute times drawn from a measured trace, and who waits for whom.

Every rank draws its compute time of every step, independently, from times that were measured; what a scheme asks of the
network comes on top, by :mod:`deep500.scaling.model`. Synchronous schemes wait for the slowest of all ranks, those
with neighbours for the slowest neighbour, and so for more and more distant ranks as steps go by; asynchronous ones wait
for the server's link, which carries one message at a time. The trace bounds what can be drawn: no rank is ever slower
than the slowest measured step, and no rank is slower than others for long, unless noise was measured
(:mod:`deep500.scaling.noise`): then all that a rank does passes along its record, exchanges and waiting included.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.schemes.mixing import ring
from deep500.distributed.traits import Waiting
from deep500.errors import InputError
from deep500.measure.statistics import Interval, median_interval
from deep500.scaling.model import Interconnect
from deep500.scaling.noise import Go, Noise, undisturbed

REPLICAS, STEPS = 12, 24
"""Independent simulations, and steps of each; one sample per simulation."""


@dataclass(frozen=True)
class Case:
    """Facts that decide the time of a step.

    Attributes:
        ranks: how many.
        trace: compute times of a rank, seconds.
        network: seconds that the scheme's messages take per step.
        period: steps between two exchanges, which then take ``period`` times ``network``.
        bound: most steps that a rank may be ahead; None: any.
        matrix: (ranks, ranks) of who takes from whom, for schemes with neighbours; a ring if None.
        service: seconds that a server is busy with each gradient, for schemes with one.
        noise: what others take of the ranks' cores; None: only what is in the trace.
    """

    ranks: int
    trace: np.ndarray
    network: float
    period: int = 1
    bound: int | None = None
    matrix: np.ndarray | None = None
    service: float = 0.0
    noise: Noise | None = None


Draw = Callable[[int], np.ndarray]
Rule = Callable[..., float]
"""(case, draw, steps, go) -> seconds per step."""


def together(case: Case, draw: Draw, steps: int, go: Go = undisturbed) -> float:
    """All ranks wait for the slowest at every exchange."""
    rounds, everyone = max(1, steps // case.period), np.arange(case.ranks)
    ready = np.zeros(case.ranks)
    for _ in range(rounds):
        for _ in range(case.period):
            ready = go(everyone, ready, draw(case.ranks))
        ready[:] = ready.max()
        ready = go(everyone, ready, np.full(case.ranks, case.period * case.network))
        ready[:] = ready.max()
    return float(ready[0]) / (rounds * case.period)


def neighbours(case: Case, draw: Draw, steps: int, go: Go = undisturbed) -> float:
    """Every rank waits for those whose parameters it takes."""
    matrix = ring(case.ranks) if case.matrix is None else case.matrix
    taken = [np.flatnonzero(row) for row in matrix]
    width = max(map(len, taken))
    # One rectangular table of indices instead of lists of different length, so that a step is one array operation.
    table = np.array([np.resize(ranks, width) for ranks in taken])  # repeated where a rank has fewer
    ready, everyone = np.zeros(case.ranks), np.arange(case.ranks)
    for _ in range(steps):
        ready = go(everyone, ready, draw(case.ranks))[table].max(axis=1)
        ready = go(everyone, ready, np.full(case.ranks, case.network))
    return float(ready.mean()) / steps


def pairs(case: Case, draw: Draw, steps: int, go: Go = undisturbed) -> float:
    """Every rank waits for one partner, another one in each step."""
    ready, rng, everyone = np.zeros(case.ranks), np.random.default_rng(int(1e9 * draw(1)[0])), np.arange(case.ranks)
    for _ in range(steps):
        ready = go(everyone, ready, draw(case.ranks))
        order = rng.permutation(case.ranks)
        first, second = order[0 : 2 * (case.ranks // 2) : 2], order[1::2][: case.ranks // 2]
        begin, work = np.maximum(ready[first], ready[second]), np.full(len(first), case.network)
        ready[first] = ready[second] = np.maximum(go(first, begin, work), go(second, begin, work))
    return float(ready.mean()) / steps


def served(case: Case, draw: Draw, steps: int, go: Go = undisturbed) -> float:
    """Workers, all ranks but one, wait for the server, which serves one gradient after the other. With a bound a worker
    also waits until the slowest one is at most ``bound`` steps behind it."""
    # Events in the order of time: a heap of (arrival of a gradient, its worker). ``counts[k]`` workers have made k
    # steps, so that the slowest one is known without looking at all of them after every event.
    workers, server, service = case.ranks - 1, np.zeros(1, np.int64), np.array([case.service])
    done, free, finish = np.zeros(workers, np.int64), 0.0, 0.0
    first = go(np.arange(1, case.ranks), np.zeros(workers), draw(workers))
    coming = [(float(time), worker) for worker, time in enumerate(first)]
    heapq.heapify(coming)
    waiting_workers: list[int] = []
    counts = np.zeros(steps + 1, np.int64)
    counts[0], slowest = workers, 0
    while coming:
        arrival, worker = heapq.heappop(coming)
        finish = free = float(go(server, np.array([max(free, arrival)]), service)[0])
        counts[done[worker]] -= 1
        done[worker] += 1
        counts[done[worker]] += 1
        while slowest < steps and not counts[slowest]:
            slowest += 1
        waiting_workers.append(worker)  # it has its parameters only once the bound lets it go on
        able = [
            waiting
            for waiting in waiting_workers
            if done[waiting] < steps and (case.bound is None or done[waiting] - slowest <= case.bound)
        ]
        if able:
            ends = go(np.array(able) + 1, np.full(len(able), free), draw(len(able)))
            for waiting, end in zip(able, ends, strict=True):
                heapq.heappush(coming, (float(end), waiting))
            waiting_workers = [waiting for waiting in waiting_workers if waiting not in able]
    return finish / steps


RULES: dict[Waiting, Rule] = {"together": together, "neighbours": neighbours, "pairs": pairs, "server": served}
"""Times of steps by the word that a scheme declares as its ``waits``."""


def waiting_of(scheme: type[DistributedOptimizer]) -> Rule:
    """The rule of a scheme.

    Raises:
        InputError: the scheme has not declared how its ranks wait.

    Example:
        >>> from deep500.distributed.schemes import LocalSGD
        >>> waiting_of(LocalSGD).__name__
        'together'
    """
    rule = None if scheme.waits is None else RULES.get(scheme.waits)
    if rule is None:
        words = ", ".join(f'"{word}"' for word in RULES)
        raise InputError(
            f"got scheme {scheme.__name__} with waits = {scheme.waits!r}; expected one of {words}, which says whom its "
            'ranks wait for: declare it in the class, such as waits = "together"'
        )
    return rule


def simulate(waits: Rule, case: Case, seed: int = 0, replicas: int = REPLICAS, steps: int = STEPS) -> Interval:
    """Seconds per step: the median of independent simulations, with its interval over them.

    Raises:
        InputError: an empty trace, times that are not positive, or no ranks.

    Example:
        >>> case = Case(ranks=64, trace=np.array([1.0, 1.0, 1.0, 2.0]), network=0.5)
        >>> simulate(together, case).median, simulate(together, Case(1, np.array([1.0]), 0.0)).median
        (2.5, 1.0)
    """
    trace = np.asarray(case.trace, np.float64)
    if case.ranks < 1 or not trace.size or not (trace > 0).all() or not np.isfinite(trace).all():
        raise InputError(
            f"got {case.ranks} ranks and a trace of {trace.size} times; expected at least one rank and positive "
            "times: measure compute times first"
        )
    rng = np.random.default_rng(seed)
    steps = max(steps, case.period)

    def draw(count: int) -> np.ndarray:
        return trace[rng.integers(trace.size, size=count)]

    samples = []
    for _ in range(replicas):
        go = undisturbed if case.noise is None else case.noise.replayed(case.ranks, rng)
        samples.append(waits(case, draw, steps, go))
    return median_interval(samples)


def server_service(net: Interconnect, size: float, update: float) -> float:
    """Seconds that a server is busy with one gradient of ``size`` bytes: it comes, is applied, parameters go back."""
    return 2 * net.send(size) + update
