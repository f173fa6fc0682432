"""Schemes without a centre: ranks mix their parameters with a few others', and agree only in the long run."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from deep500.distributed.buckets import Buckets
from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.schemes.mixing import mixing_matrix, second_eigenvalue
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import CommunicationError
from deep500.training.data.samplers import checked_integer
from deep500.training.optimizers.base import Optimizer


class Gossip(DistributedOptimizer):
    """Base of schemes in which ``w_p <- sum_q W_pq w_q + u_p``, ``u_p`` being the base optimizer's update at ``w_p``.

    A scheme says in :meth:`neighbours` what rank p takes and who takes from it in the present step. The sum is formed
    as ``w_p + sum_q W_pq (w_q - w_p)``, so that ranks that agree stay exactly as they are. A rank without samples in a
    batch, or none of whose labels count, mixes and makes no update; others weigh alike, however much counts in their
    shares. Optimizer states and running statistics stay local; a validation is of the mean over ranks.

    Payload per step and rank: the bytes of all parameters, times the number of ranks that take them.
    """

    consistent = False
    changes_parameters = True
    mix_last = False

    def __init__(self, base_optimizer: Optimizer, comm: Communicator | None = None) -> None:
        super().__init__(base_optimizer, comm)
        self._buckets: Buckets | None = None

    @abc.abstractmethod
    def neighbours(self) -> tuple[Mapping[int, float], Iterable[int]]:
        """The weight of each other rank that this one takes from, and the other ranks that take from it."""

    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One step of the base optimizer and one of mixing, with the parameters from before the update."""
        before = None if self.mix_last else self._others()  # now, because a framework may write over these parameters
        outputs = self.base_optimizer.step(inputs) if self.samples else {}
        self._add(self._others() if self.mix_last else before)
        return outputs

    def _others(self) -> list[np.ndarray] | None:
        """``sum_q W_pq (w_q - w_p)``; None: nothing is taken."""
        taken, receivers = self.neighbours()
        taken, receivers = {q: weight for q, weight in taken.items() if weight and q != self.comm.rank}, list(receivers)
        if not taken and not receivers:
            return None
        with self.communicating():
            mine = self.arrays(self.parameters())
            if self._buckets is None or not self._buckets.fits(mine):
                self._buckets = Buckets.like(mine)
            self._buckets.put(mine)
            for bucket in self._buckets.all:
                flat = bucket.flat[:-1]
                theirs = {q: np.empty_like(flat) for q in taken}
                self.comm.exchange(dict.fromkeys(receivers, flat), theirs)
                change = np.zeros_like(flat)
                for q, weight in taken.items():
                    change += flat.dtype.type(weight) * (theirs[q] - flat)
                flat[...] = change
        return self._buckets.views() if taken else None

    def _add(self, changes: list[np.ndarray] | None) -> None:
        if changes is not None:
            sums = [array + change for array, change in zip(self.arrays(self.parameters()), changes, strict=True)]
            self.set_parameters(self.tensors(sums))

    def _check_same(self, what: str, mine: Any) -> None:
        """All ranks must have been given the same; else some would wait for messages that are never sent."""
        for rank, theirs in enumerate(self.comm.gather_facts(mine)):
            if theirs != mine:
                raise CommunicationError(
                    f"got {what} on rank {self.comm.rank} that differs from that on rank {rank}; expected the same on "
                    "every rank: run the same recipe everywhere"
                )


class ConsistentNeighbors(Gossip):
    """Decentralized parallel SGD (Lian et al. 2017, arXiv 1705.09056, algorithm 1): every rank takes the weighted mean
    of its neighbours' parameters and adds its own update, made at its own parameters:
    ``w_p <- sum_q W_pq w_q - lr g_p`` for gradient descent.

    The mean over ranks moves as if it were alone: ``w_mean <- w_mean - lr mean_p g_p``. Ranks approach each other by
    ``|lambda_2(W)|`` per step (:func:`~deep500.distributed.schemes.mixing.second_eigenvalue`, also among the facts
    recorded).

    Payload per step and rank: the bytes of all parameters, times the number of ranks that take them.

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.
        mixing: ``"ring"``, ``"torus"``, ``"exponential"``, ``"complete"``, or a doubly stochastic (size, size) matrix;
            see :mod:`deep500.distributed.schemes.mixing`.
        mix_last: mix after the update instead, ``w_p <- sum_q W_pq (w_q - lr g_q)`` (adapt, then combine: Cattivelli
            and Sayed 2010); with ``"complete"`` and equal shares that is
            :class:`~deep500.distributed.schemes.averaging.ModelAverage`.

    Raises:
        InputError: the matrix is not doubly stochastic.
        CommunicationError: the ranks were given different ones.
    """

    waits = "neighbours"

    def __init__(
        self,
        base_optimizer: Optimizer,
        comm: Communicator | None = None,
        mixing: str | Any = "ring",
        mix_last: bool = False,
    ) -> None:
        super().__init__(base_optimizer, comm)
        self.matrix, self.mix_last = mixing_matrix(mixing, self.comm.size), bool(mix_last)
        self._check_same("a mixing", [hashlib.sha256(self.matrix.tobytes()).hexdigest(), self.mix_last])
        row, column = self.matrix[self.comm.rank], self.matrix[:, self.comm.rank]
        self._taken = {int(q): float(row[q]) for q in np.flatnonzero(row) if q != self.comm.rank}
        self._given = [int(q) for q in np.flatnonzero(column) if q != self.comm.rank]

    def neighbours(self) -> tuple[Mapping[int, float], Iterable[int]]:
        """Those of the matrix, the same in every step."""
        return self._taken, self._given

    def communication_facts(self) -> dict[str, Any]:
        return {**super().communication_facts(), "second_eigenvalue": second_eigenvalue(self.matrix)}


class InconsistentDecentralized(Gossip):
    """Pairwise gossip after AD-PSGD (Lian et al. 2018, arXiv 1710.06952, algorithm 1): in each step the ranks are
    paired at random, ``w_p <- (w_p + w_q) / 2 + u_p``, the update ``u_p`` being made at the old ``w_p``.

    Each averaging keeps the sum over ranks. A rank waits only for its partner, so that ranks drift apart by some
    steps where their speed differs. In the paper the rank that is ready first chooses a partner; here the pairs of step
    k are a function of (seed, k), the same on every rank: ranks cannot wait in a circle, because the rank that is
    furthest behind has a partner that is in the same step or will come to it, and a run can be repeated bit for bit.
    With an odd number of ranks one, another each time, is left out and only makes its update.

    Payload per step and rank: the bytes of all parameters; none for the rank that is left out.

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.
        seed: decides the pairs, at least 0.

    Raises:
        InputError: the seed is no such number.
        CommunicationError: the ranks were given different seeds.
    """

    waits = "pairs"

    def __init__(self, base_optimizer: Optimizer, comm: Communicator | None = None, seed: int = 0) -> None:
        super().__init__(base_optimizer, comm)
        self.seed = checked_integer("seed", seed, 0)
        self._check_same("a seed of pairs", self.seed)

    def neighbours(self) -> tuple[Mapping[int, float], Iterable[int]]:
        """This step's partner, with weight 1/2."""
        partner = matching(self.comm.size, self.seed, self.steps).get(self.comm.rank)
        return ({}, []) if partner is None else ({partner: 0.5}, [partner])


def matching(size: int, seed: int, step: int) -> dict[int, int]:
    """The pairs of a step, each in both directions; with an odd ``size`` one rank is not in it.

    Every matching of as many pairs as possible is equally likely.

    Example:
        >>> pairs = matching(5, seed=0, step=3)
        >>> len(pairs), all(pairs[pairs[p]] == p for p in pairs)
        (4, True)
    """
    order = np.random.default_rng([seed, step]).permutation(size).tolist()
    pairs = list(zip(order[0::2], order[1::2], strict=False))
    return {**dict(pairs), **{q: p for p, q in pairs}}
