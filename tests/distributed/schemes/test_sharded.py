"""Sharded optimizer state: the same updates with a part of the state."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from deep500.distributed import Serial, Threads
from deep500.distributed.buckets import Buckets
from deep500.distributed.schemes import (
    ConsistentDecentralized,
    ConsistentParameterServer,
    ModelAverage,
    ShardedOptimizer,
)
from deep500.distributed.schemes.sharded import partition
from deep500.errors import InputError
from deep500.training.clipping import ClipGradientNorm
from deep500.training.optimizers import AdamOptimizer
from tests.conftest import load_backend
from tests.distributed.scheme_table import (
    STEPS,
    WHOLE,
    SchemeRow,
    batches,
    digest,
    make_base,
    network,
    parameters,
    train,
)
from tests.training.linear import FakeExecutor, linear_network

SHARDED = SchemeRow("", ShardedOptimizer, "", None)
WHOLE_STATE = SchemeRow("", ConsistentDecentralized, "", None)
# fmt: off
OPTIMIZERS = [
    ("AdamOptimizer", {"lr": 0.01}, 2), ("AdamWOptimizer", {"lr": 0.01}, 2), ("MomentumOptimizer", {"lr": 0.1}, 2),
    ("RMSPropOptimizer", {"lr": 0.01, "centered": True, "momentum": 0.5}, 2), ("GradientDescent", {"lr": 0.1}, 2),
    ("AcceleGradOptimizer", {}, 3),  # prepares parameters: one broadcast more
]
# fmt: on


def run(scheme: SchemeRow, ranks: int, backend: str = "reference", **options: Any) -> list[Any]:
    load_backend(backend)
    sizes = [rank + 2 for rank in range(ranks)]
    return Threads(ranks).run(lambda comm: train(comm, scheme, backend, sizes, **options))


def slots(state: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array for name, array in state.items() if "/" in name and not name.startswith("scheme")}


@pytest.mark.parametrize("backend", ["reference", "pytorch"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize(("kind", "options", "broadcasts"), OPTIMIZERS, ids=[row[0] for row in OPTIMIZERS])
def test_same_bits_with_a_part_of_the_state(
    kind: str, options: dict[str, Any], broadcasts: int, ranks: int, backend: str
) -> None:
    sharded, whole = (run(scheme, ranks, backend, kind=kind, **options) for scheme in (SHARDED, WHOLE_STATE))
    for outcome in sharded:
        assert [digest(p) for p in outcome.parameters] == [digest(p) for p in whole[0].parameters]
    parts = [slots(outcome.state) for outcome in sharded]
    together = {name: array for part in parts for name, array in part.items()}
    assert digest(together) == digest(slots(whole[0].state)) and len(together) == sum(map(len, parts))
    assert {sum(outcome.payload) for outcome in sharded} == {STEPS * broadcasts * WHOLE if ranks > 1 else 0}


@pytest.mark.parametrize("backend", ["reference", "pytorch"])
@pytest.mark.parametrize("ranks", [2, 3, 4, 5])
def test_every_rank_keeps_its_part_of_the_state(ranks: int, backend: str) -> None:
    module, widths = load_backend(backend), [12, *[16] * 12, 4]

    def work(comm: Any) -> int:
        optimizer = ShardedOptimizer(AdamOptimizer(module.from_model(network(0, widths), "cpu")), comm)
        optimizer.step(batches([2] * comm.size, 1, comm.rank)[0])
        return sum(array.nbytes for array in slots(optimizer.state_dict()).values())

    measured = Threads(ranks).run(work)
    whole = 2 * 8 * sum(n * m + m for n, m in pairwise(widths))  # two moments in float64
    print(f"Adam's state on {ranks} ranks: {measured} of {whole} bytes, the largest {max(measured) / whole:.3f}")
    assert sum(measured) == whole
    assert max(measured) < 1.25 / ranks * whole  # 13 matrices over 5 ranks: three on the fullest


@hypothesis.given(st.lists(st.integers(0, 1000), max_size=30), st.integers(1, 8))
def test_partition_is_a_disjoint_cover_and_even(sizes: list[int], ranks: int) -> None:
    named = {f"p{number}": size for number, size in enumerate(sizes)}
    shares = partition(named, ranks)
    assert len(shares) == ranks and sorted(name for share in shares for name in share) == sorted(named)
    filled = [sum(named[name] for name in share) for share in shares]
    assert max(filled) <= sum(sizes) / ranks + max(sizes, default=0)  # as with any list scheduling


def test_clipping_sees_all_gradients() -> None:
    """The norm over this rank's share would be smaller, and the step longer."""
    bits = []
    for scheme in (SHARDED, WHOLE_STATE):
        outcomes = run(scheme, 3, kind="AdamOptimizer", lr=0.01, gradient_transform=ClipGradientNorm(0.1))
        bits.append([digest(p) for p in outcomes[2].parameters])
        assert sum(outcomes[0].payload) == STEPS * WHOLE * (2 if scheme is SHARDED else 1)
    assert bits[0] == bits[1]


def test_modifier_sees_its_own_share() -> None:
    modifier = {"gradient_modifier": lambda name, param, grad: grad * 0.5 + 0.01 * param}
    histories = [
        run(scheme, 3, kind="MomentumOptimizer", **modifier)[1].parameters for scheme in (SHARDED, WHOLE_STATE)
    ]
    assert digest(histories[0][-1]) == digest(histories[1][-1])


def test_more_ranks_than_parameters() -> None:
    sharded, whole = (run(scheme, 8, kind="AdamOptimizer", lr=0.01) for scheme in (SHARDED, WHOLE_STATE))
    assert digest(sharded[7].parameters[-1]) == digest(whole[0].parameters[-1])
    assert sorted(len(slots(outcome.state)) for outcome in sharded) == [0, 0, 2, 2, 2, 2, 2, 2]


@pytest.mark.backend("pytorch")
def test_native_optimizer_is_refused() -> None:
    base = make_base("pytorch native")
    with pytest.raises(InputError, match=r"pytorch.optimizers.MomentumOptimizer to shard.*expected a three-step"):
        ShardedOptimizer(base, Serial())
    with pytest.raises(InputError, match="got str to distribute"):
        ShardedOptimizer("momentum", Serial())  # type: ignore[arg-type]


def test_state_of_another_rank_is_refused() -> None:
    def work(comm: Any) -> dict[str, np.ndarray]:
        optimizer = ShardedOptimizer(make_base("reference"), comm)
        optimizer.step(batches([2] * comm.size, 1, comm.rank)[0])
        return optimizer.state_dict()

    states = Threads(2).run(work)

    def load(comm: Any, state: dict[str, np.ndarray]) -> None:
        ShardedOptimizer(make_base("reference"), comm).load_state_dict(state)

    with pytest.raises(InputError, match=r"got the state of rank [01] of 2; expected that of rank [01] of 2"):
        Threads(2).run(lambda comm: load(comm, states[1 - comm.rank]))
    with pytest.raises(InputError, match="got the state of rank 0 of 2; expected that of rank 0 of 1"):
        load(Serial(), states[0])
    with pytest.raises(InputError, match="got the state of a whole optimizer; expected that of rank 0 of 1"):
        load(Serial(), {"step": np.asarray(1)})


def test_edited_network_is_refused() -> None:
    def work(comm: Any) -> None:
        optimizer = ShardedOptimizer(AdamOptimizer(FakeExecutor(linear_network())), comm)
        optimizer.exchange_gradients(["w"], [np.zeros((4, 3))])

    with pytest.raises(InputError, match="got a network whose parameters changed since its optimizer was sharded"):
        Threads(2).run(work)


def test_one_rank_prepares_nothing_twice() -> None:
    base = make_base("reference", kind="AcceleGradOptimizer")
    ShardedOptimizer(base, Serial())
    assert base.exchange is base and base.owned is None
    assert parameters(base)


@pytest.mark.parametrize("kind", [ShardedOptimizer, ConsistentParameterServer, ModelAverage])
def test_buckets_are_laid_out_once(kind, monkeypatch):
    made = []
    init = Buckets.__init__
    monkeypatch.setattr(Buckets, "__init__", lambda self, *a, **k: (made.append(1), init(self, *a, **k))[1])

    def work(comm):
        optimizer = kind(make_base("reference"), comm)
        counts = []
        for batch in batches([3, 4], 4, comm.rank):
            optimizer.step(batch)
            counts.append(len(made))
        return counts

    counts = Threads(2).run(work)[0]
    assert counts[1] == counts[-1] > 0
