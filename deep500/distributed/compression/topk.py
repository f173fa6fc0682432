"""`TopK`: the largest elements only, and the rest later."""

from __future__ import annotations

import math

import numpy as np

from deep500.distributed.compression.base import Encoded, Flat, as_bytes
from deep500.distributed.compression.sparse import index_type, sparse_all_reduce
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError
from deep500.training.data.samplers import checked_integer
from deep500.training.optimizers.base import Optimizer


def largest(values: np.ndarray, k: int) -> np.ndarray:
    """Where the ``k`` elements of largest magnitude are, in ascending order; NaN counts as largest.

    Example:
        >>> largest(np.array([1.0, -5.0, 0.5, 3.0]), 2).tolist()
        [1, 3]
    """
    if k >= values.size:
        return np.arange(values.size)
    return np.sort(np.argpartition(np.abs(values), values.size - k)[values.size - k :])


class TopK(Encoded):
    """Top-k sparsification with error feedback (Stich et al. 2018, arXiv 1809.07599, algorithm 1; Aji and Heafield
    2017, arXiv 1704.05021): each rank sends the ``k`` elements of ``v`` with the largest magnitude.

    The choice is among all gradients of one dtype together, as in Aji and Heafield: a layer with small gradients sends
    less. ``ratio=1`` is :class:`~deep500.distributed.schemes.synchronous.ConsistentDecentralized` up to rounding.

    Payload per step and rank: ``k (4 + 4)`` bytes in float32, ``k (4 + 8)`` in float64. (Indices take 8 bytes where
    there are more than 2^31 elements.) With ``sparse=True`` see
    :func:`~deep500.distributed.compression.sparse.sparse_all_reduce`: ranks that choose the same elements merge them on
    the way (SparCML, Renggli et al. 2019, arXiv 1802.08021, algorithm 1).

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`; native ones work too.
        ratio: ``k`` as a part of the number of elements, rounded up; 0.01 if ``k`` is not given either.
        k: how many elements to send, of each dtype.
        sparse: sum the lists by recursive doubling instead of gathering them.

    Raises:
        InputError: both ``ratio`` and ``k``, a ratio outside (0, 1], or a ``k`` outside 1 .. number of elements.
    """

    def __init__(
        self,
        base_optimizer: Optimizer,
        comm: Communicator | None = None,
        ratio: float | None = None,
        k: int | None = None,
        sparse: bool = False,
    ) -> None:
        if ratio is not None and k is not None:
            raise InputError(f"got ratio={ratio!r} and k={k!r}; expected one of them: leave the other out")
        self.k = None if k is None else checked_integer("k", k, 1)
        self.ratio = 0.01 if ratio is None else ratio
        if not 0 < self.ratio <= 1:
            raise InputError(f"got ratio={ratio!r}; expected a number > 0 and <= 1: choose another")
        self.sparse = sparse
        super().__init__(base_optimizer, comm)

    def count(self, size: int) -> int:
        """How many of ``size`` elements are sent."""
        if self.k is None:
            return math.ceil(self.ratio * size)
        if self.k > size:
            raise InputError(f"got k={self.k} for {size} elements; expected at most {size}: lower k, or give a ratio")
        return self.k

    def combine(self, flat: Flat) -> tuple[np.ndarray, np.ndarray]:
        """Sum the lists, gathered or on the way."""
        if not self.sparse:
            return super().combine(flat)
        chosen = largest(flat.values, self.count(flat.values.size))
        sent = np.zeros_like(flat.values)
        sent[chosen] = flat.values[chosen]
        return sparse_all_reduce(self.comm, chosen, flat.values[chosen], flat.values.size), sent

    def encode(self, flat: Flat) -> np.ndarray:
        """Indices, then values."""
        chosen = largest(flat.values, self.count(flat.values.size))
        return as_bytes(chosen.astype(index_type(flat.values.size)), flat.values[chosen])

    def add(self, message: np.ndarray, flat: Flat, into: np.ndarray) -> None:
        """Add values at their indices, which differ from each other."""
        border = self.count(into.size) * index_type(into.size).itemsize
        into[message[:border].view(index_type(into.size))] += message[border:].view(into.dtype)
