"""`ShardedOptimizer`: every rank keeps the optimizer's state of some parameters only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.traits import same_everywhere
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError
from deep500.training.optimizers.base import Optimizer, ThreeStepOptimizer, UpdateRuleOptimizer


def partition(sizes: Mapping[str, int], ranks: int) -> list[list[str]]:
    """Names for each rank, so that the sums of their sizes are about equal: the largest first, each to the rank that
    has least so far (Graham 1969: the fullest rank has at most ``4/3 - 1/(3 ranks)`` times the least possible).

    Example:
        >>> partition({"a": 5, "b": 3, "c": 3, "d": 1}, 2)
        [['a', 'd'], ['b', 'c']]
    """
    shares: list[list[str]] = [[] for _ in range(ranks)]
    filled = [0] * ranks
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        rank = filled.index(min(filled))
        shares[rank].append(name)
        filled[rank] += sizes[name]
    order = list(sizes)
    return [sorted(share, key=order.index) for share in shares]


class ShardedOptimizer(DistributedOptimizer):
    """Synchronous SGD with sharded optimizer state: ZeRO stage 1 (Rajbhandari et al. 2020, arXiv 1910.02054, section
    5.1). Each rank gets the mean of the gradients of its share of the parameters, updates these, and broadcasts them.

    The same updates as :class:`~deep500.distributed.schemes.synchronous.ConsistentDecentralized`, with about 1/P of
    the state
    on every rank. Shares are whole parameters (:func:`partition` by bytes), so they are as even as the parameters
    allow, and update rules that look at a whole tensor work. A ``gradient_transform`` (clipping) needs all gradients:
    then every rank gets them all. ``state_dict`` is that of this rank's share; a checkpoint needs those of all ranks,
    which :meth:`put_together` makes one of that any number of ranks loads.

    Payload per step and rank: twice the bytes of all parameters, three times with a base optimizer that changes
    parameters before the forward run (anything but an ``UpdateRuleOptimizer``), which takes a broadcast more.

    Args:
        base_optimizer: a :class:`~deep500.training.optimizers.ThreeStepOptimizer`.
        comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.

    Attributes:
        shares: the names of the parameters that each rank updates, in the order of ranks.

    Raises:
        InputError: a base optimizer that updates all parameters at once; a step after the network got other
            parameters; the state of another rank, or of one of another number of ranks, to load.
    """

    waits = "together"
    agrees_on_overflow = True

    def __init__(self, base_optimizer: Optimizer, comm: Communicator | None = None) -> None:
        if isinstance(base_optimizer, Optimizer) and not isinstance(base_optimizer, ThreeStepOptimizer):
            kind = type(base_optimizer)
            raise InputError(
                f"got {kind.__module__}.{kind.__qualname__} to shard, which updates all parameters at once; expected a "
                f"three-step optimizer: use deep500.training.optimizers.{kind.__name__}, which runs on every backend"
            )
        super().__init__(base_optimizer, comm)
        values = self.network.parameters
        self.shares = partition({name: values[name].value.nbytes for name in self.parameter_names()}, self.comm.size)
        if self.comm.size > 1:
            self.owned = frozenset(self.shares[self.comm.rank])

    def after_prepare(self) -> None:
        """Broadcast parameters that their rank has prepared, if the base optimizer does such a thing."""
        if not isinstance(self.base_optimizer, UpdateRuleOptimizer):
            self._spread()

    def exchange_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """The weighted mean over ranks of what this rank updates; the other gradients stay as they are."""
        if {name for share in self.shares for name in share} != set(names):
            raise InputError(
                "got a network whose parameters changed since its optimizer was sharded; expected the same ones: make "
                "a new ShardedOptimizer after an edit"
            )
        arrays = dict(zip(names, self.arrays(gradients), strict=True))
        if self.base_optimizer.gradient_transform is not None:
            local = list(arrays.values())
            return self.tensors(self.laid_out("all", local).mean(self.comm, local, self.samples))
        means = dict(zip(names, gradients, strict=True))
        for rank, share in enumerate(self.shares):
            part = [arrays[name] for name in share]
            buckets = self.laid_out(("gradients", rank), part)
            buckets.put(part, self.samples)
            for bucket in buckets.all:
                bucket.reduce(self.comm, self.samples, root=rank)
            if rank == self.comm.rank:
                for bucket in buckets.all:
                    bucket.divide()
                means.update(zip(share, self.tensors(buckets.views()), strict=True))
        return list(means.values())

    def mix(self) -> None:
        """Every rank takes over what the others updated."""
        if self.comm.size > 1:
            self._spread()

    def _spread(self) -> None:
        with self.communicating():
            for rank, share in enumerate(self.shares):
                arrays = self.arrays(self.network.fetch_tensors(share))
                new = self.laid_out(("parameters", rank), arrays).broadcast(self.comm, arrays, rank)
                if rank != self.comm.rank:
                    for name, tensor in zip(share, self.tensors(new), strict=True):
                        self.network.assign_tensor(name, tensor)

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """As in every scheme; weights that the base optimizer shows for it are those of all shares."""
        spreads = self.base_optimizer.judges_other and self.comm.size > 1
        with super().evaluation():
            if spreads:
                self._spread()
            yield
        if spreads:
            self._spread()

    def own_state(self) -> dict[str, np.ndarray]:
        return {"place": np.array([self.comm.rank, self.comm.size], np.int64)}

    @classmethod
    def put_together(cls, states: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """That of one rank, which has all shares."""
        common = [{name: array for name, array in state.items() if "/" not in name} for state in states]
        whole = {name: array for state in states for name, array in state.items()}
        return {**whole, **same_everywhere(common, cls.__name__), "scheme/place": np.array([0, 1], np.int64)}

    def load_state_dict(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from this rank's :meth:`state_dict`, or from that of all shares; raises InputError for another's."""
        place = state.get("scheme/place")
        got = None if place is None else [int(number) for number in place]
        here = [self.comm.rank, self.comm.size]
        if got == [0, 1]:  # of all shares
            mine = set(self.shares[self.comm.rank])
            state = {
                k: v for k, v in state.items() if k.startswith("scheme") or "/" not in k or k.partition("/")[2] in mine
            }
        elif got != here:
            what = "a whole optimizer" if got is None else f"rank {got[0]} of {got[1]}"
            raise InputError(
                f"got the state of {what}; expected that of rank {here[0]} of {here[1]}: resume with as many ranks, "
                "each from its own checkpoint, or load what put_together makes of those of all ranks"
            )
        super().load_state_dict(state)
        if self.base_optimizer.judges_other and self.comm.size > 1:
            self._spread()
