"""A rank without samples in a step: an optimizer's counter and state move only where an update is made.

Every scheme, with Adam, whose first updates depend on their number, against a simulation of all ranks in NumPy. The
simulation shares with the product only the network's gradient, taken without a scheme, and the pairs of gossip.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from deep500.distributed import Threads, schemes
from deep500.distributed.schemes.gossip import matching
from tests.distributed import problem
from tests.distributed.scheme_table import batches, make_base
from tests.distributed.test_scheme_table import defined_schemes

SHARES = [(3, 0, 2), (2, 3, 1), (2, 2, 0), (0, 2, 3), (1, 0, 0), (2, 1, 3)]
"""Samples of each rank in each step; rank 1 begins without."""
RANKS = len(SHARES[0])
LR, B1, B2, EPS = 0.01, 0.9, 0.999, 1e-8
ADAM = {"lr": LR, "betas": (B1, B2), "eps": EPS}


def parts(sizes: tuple[int, ...], step: int) -> list[dict[str, np.ndarray]]:
    """The ranks' shares of a batch."""
    batch, ends = batches([9], len(SHARES))[step], np.cumsum([0, *sizes])
    return [{n: v[begin:end] for n, v in batch.items()} for begin, end in pairwise(ends)]


class Adam:
    """Kingma and Ba 2015, algorithm 1, on one flat array."""

    def __init__(self, size: int) -> None:
        self.m, self.v, self.t = np.zeros(size), np.zeros(size), 0

    def change(self, g: np.ndarray) -> np.ndarray:
        self.t += 1
        self.m, self.v = B1 * self.m + (1 - B1) * g, B2 * self.v + (1 - B2) * g * g
        return -LR * (self.m / (1 - B1**self.t)) / (np.sqrt(self.v / (1 - B2**self.t)) + EPS)


class Simulation:
    """All ranks' parameters ``w`` (ranks, size) and optimizers."""

    def __init__(self) -> None:
        self.oracle = make_base("reference")
        start = problem.weights(self.oracle)
        self.w, self.adam = np.stack([start] * RANKS), [Adam(start.size) for _ in range(RANKS)]

    def gradient(self, w: np.ndarray, batch: dict[str, np.ndarray]) -> np.ndarray:
        begin, network = 0, self.oracle.network
        for name in self.oracle.parameter_names():
            shape = network.parameters[name].value.shape
            end = begin + int(np.prod(shape))
            network.feed_tensor(name, w[begin:end].reshape(shape))
            begin = end
        self.oracle.executor.inference_and_backprop(batch, "loss")
        return problem.flat(self.oracle, self.oracle.gradient_names())

    def gradients(self, sizes: tuple[int, ...], step: int) -> dict[int, np.ndarray]:
        return {p: self.gradient(self.w[p], b) for p, b in enumerate(parts(sizes, step)) if sizes[p]}


def mean(values: Any, weights: Any) -> np.ndarray:
    return np.average(np.stack(list(values)), axis=0, weights=list(weights))


def exchanged(sim: Simulation, sizes: tuple[int, ...], step: int) -> None:
    """The mean gradient, and the same update everywhere."""
    found = sim.gradients(sizes, step)
    g = mean(found.values(), [sizes[p] for p in found])
    sim.w = sim.w + np.stack([adam.change(g) for adam in sim.adam])


def local(sim: Simulation, sizes: tuple[int, ...], step: int) -> np.ndarray:
    """Each rank's change; none without samples."""
    found = sim.gradients(sizes, step)
    return np.stack([sim.adam[p].change(found[p]) if p in found else np.zeros_like(sim.w[p]) for p in range(RANKS)])


def averaged(sim: Simulation, sizes: tuple[int, ...], step: int, every: int = 1) -> None:
    sim.w = sim.w + local(sim, sizes, step)
    if (step + 1) % every == 0:
        seen = np.sum(SHARES[step + 1 - every : step + 1], axis=0)
        sim.w = np.stack([mean(sim.w, seen)] * RANKS)


def outer(sim: Simulation, sizes: tuple[int, ...], step: int) -> None:
    """DiLoCo of two steps, whose outer optimizer is SGD with rate 1."""
    averaged(sim, sizes, step, every=2)


def neighbours(sim: Simulation, sizes: tuple[int, ...], step: int) -> None:
    sim.w = np.stack([sim.w.mean(axis=0)] * RANKS) + local(sim, sizes, step)  # on a ring of three all are neighbours


def gossip(sim: Simulation, sizes: tuple[int, ...], step: int) -> None:
    pairs = matching(RANKS, 0, step)
    sim.w = np.stack([(sim.w[p] + sim.w[pairs.get(p, p)]) / 2 for p in range(RANKS)]) + local(sim, sizes, step)


def server(sim: Simulation, sizes: tuple[int, ...], step: int) -> None:
    """Rank 0 updates; workers take its parameters."""
    found = sim.gradients(sizes, step)
    if found:
        sim.w = np.stack([sim.w[0] + sim.adam[0].change(mean(found.values(), [sizes[p] for p in found]))] * RANKS)


Step = Callable[[Simulation, tuple[int, ...], int], None]
# by scheme: its options, its step, and which ranks have samples
ROWS: dict[str, tuple[dict[str, Any], Step | None, tuple[int, ...]]] = {
    "ConsistentDecentralized": ({}, exchanged, (0, 1, 2)),
    "ReproducibleDecentralized": ({"blocks": 6}, exchanged, (0, 1, 2)),
    "ConsistentParameterServer": ({}, exchanged, (0, 1, 2)),
    "ShardedOptimizer": ({}, exchanged, (0, 1, 2)),
    "ShardedParameters": ({}, exchanged, (0, 1, 2)),
    "DividedNetwork": ({}, exchanged, (0, 1, 2)),
    "Pipeline": ({"micro_batches": 2}, exchanged, (0,)),
    "TopK": ({"ratio": 1}, exchanged, (0, 1, 2)),
    "SparseAllreduce": ({}, exchanged, (0, 1, 2)),
    "PowerSGD": ({"rank": 16}, exchanged, (0, 1, 2)),
    "SignSGD": ({}, None, (0, 1, 2)),  # lossy: only the counters
    "QSGD": ({"levels": 3}, None, (0, 1, 2)),
    "ModelAverage": ({}, averaged, (0, 1, 2)),
    "LocalSGD": ({"every": 2}, partial(averaged, every=2), (0, 1, 2)),
    "DiLoCo": ({"every": 2, "outer_lr": 1, "outer_momentum": 0}, outer, (0, 1, 2)),
    "ConsistentNeighbors": ({}, neighbours, (0, 1, 2)),
    "InconsistentDecentralized": ({}, gossip, (0, 1, 2)),
    "StaleSynchronous": ({"staleness": 0}, server, (1, 2)),
    "InconsistentParameterServer": ({}, None, (1, 2)),  # the order of arrival decides: test_asynchronous.py replays it
}


def sizes_of(computing: tuple[int, ...], step: int) -> tuple[int, ...]:
    sizes = tuple(size if p in computing else 0 for p, size in enumerate(SHARES[step]))
    return sizes if any(sizes) or len(computing) > 1 else (4, *sizes[1:])


def train(comm: Any, name: str) -> tuple[np.ndarray, int, int]:
    options, _, computing = ROWS[name]
    base = make_base("reference", kind="AdamOptimizer", **ADAM)
    scheme = getattr(schemes, name)(base, comm, **options)
    for step in range(len(SHARES)):
        sizes = sizes_of(computing, step)
        if any(sizes):
            scheme.step(parts(sizes, step)[comm.rank])
    with scheme.evaluation():
        return problem.weights(base), base.steps, scheme.steps


def test_every_scheme_has_a_row() -> None:
    by_engines = {name for name, kind in defined_schemes().items() if kind.one_backend}  # those of test_native.py
    assert set(ROWS) == set(defined_schemes()) - by_engines


@pytest.mark.parametrize("name", ROWS)
def test_a_rank_without_samples_updates_nothing_it_did_not_compute(name: str) -> None:
    _, step_of, computing = ROWS[name]
    sim = Simulation()
    taken = [step for step in range(len(SHARES)) if any(sizes_of(computing, step))]
    idle = [sum(sizes_of(computing, step)[p] == 0 for step in taken) for p in range(RANKS)]
    assert sum(idle), "no rank was without samples"
    results = Threads(RANKS).run(train, name)
    assert all(scheme_steps == len(taken) for _, _, scheme_steps in results)
    counts = [base_steps for _, base_steps, _ in results]
    if step_of is None:
        arrivals = len(computing) * len(taken) - sum(idle[p] for p in computing)
        assert counts == ([arrivals, 0, 0] if 0 not in computing else [len(taken)] * RANKS)
        return
    for step in taken:
        step_of(sim, sizes_of(computing, step), step)
    assert counts == [adam.t for adam in sim.adam]
    want = sim.w if name not in ("LocalSGD", "DiLoCo", "ConsistentNeighbors", "InconsistentDecentralized") else None
    for p, (weights, _, _) in enumerate(results):
        expected = sim.w.mean(axis=0) if want is None else want[p]  # those are validated by the mean over ranks
        np.testing.assert_allclose(weights, expected, rtol=0, atol=1e-12)
        assert np.abs(weights - problem.weights(make_base("reference"))).max() > LR
