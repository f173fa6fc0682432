"""`TensorCommunicator`: a communicator that takes and returns tensors of the framework that a network runs in.

The one that schemes hold as ``self.communication``. Results are new tensors; what was passed stays as it is. Host
tensors are read through their buffers; those of a device pass through host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deep500.distributed.buckets import carrier
from deep500.distributed.transports.communicator import ANY, Communicator
from deep500.networks.execution.bound import BoundNetwork

Reduction = Callable[[Sequence[Any]], Any]
"""Reduction that makes one array of several: ``sum``, or your own function of a list."""


class TensorCommunicator:
    """Exchanges tensors of one network's framework over a communicator.

    The short names are those of schemes in papers; ``sync_all``, ``sync_all_with_root``, ... are the historical ones.

    Args:
        comm: moves the bytes.
        network: makes arrays of tensors and tensors of arrays.
    """

    def __init__(self, comm: Communicator, network: BoundNetwork) -> None:
        self.comm, self.network = comm, network

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self.comm.rank

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.comm.size

    # -- all ranks --------------------------------------------------------------------------------------------------
    def all_reduce(self, tensor: Any) -> Any:
        """The sum over all ranks, on every rank."""
        return self._like(tensor, self.comm.all_reduce(self._copy(tensor)))

    def mean(self, tensor: Any) -> Any:
        """The mean over all ranks, on every rank."""
        array = self._copy(tensor)
        total = self.comm.all_reduce(array.astype(carrier(array.dtype), copy=False))
        return self._like(tensor, (total / self.size).astype(array.dtype, copy=False))

    def broadcast(self, tensor: Any, root: int = 0) -> Any:
        """The tensor of ``root``, on every rank."""
        return self._like(tensor, self.comm.broadcast(self._copy(tensor), root))

    def all_gather(self, tensor: Any) -> list[Any]:
        """The tensors of all ranks, in their order."""
        return [self._like(tensor, np.array(array)) for array in self.comm.all_gather(self._copy(tensor))]

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.comm.barrier()

    # -- neighbours -------------------------------------------------------------------------------------------------
    def neighbors(self) -> tuple[int, int]:
        """The ranks before and after this one on the ring."""
        return (self.rank - 1) % self.size, (self.rank + 1) % self.size

    def reduce_from_neighbors(self, tensor: Any, reduce_func: Reduction = sum) -> Any:
        """The sum of this rank's tensor and those of both its neighbours on the ring.

        On three ranks that is the sum over all. With two ranks both neighbours are the same rank, which counts twice;
        with one rank they are this one. Summed in the order of ranks: a ring of three has the same bits everywhere.
        """
        mine = self._copy(tensor)
        before, after = self.neighbors()
        arrays = {rank: np.empty_like(mine) for rank in {before, after} - {self.rank}}
        self.comm.exchange({rank: mine for rank in arrays}, arrays)
        arrays[self.rank] = mine
        parts = [arrays[rank] for rank in sorted((before, self.rank, after))]
        return self._like(tensor, np.asarray(reduce_func(parts), mine.dtype))

    def exchange(self, tensor: Any, ranks: Sequence[int]) -> Mapping[int, Any]:
        """Swap tensors with each of these ranks, which must name this one too; theirs by rank."""
        mine = self._copy(tensor)
        arrays = {rank: np.empty_like(mine) for rank in ranks}
        self.comm.exchange({rank: mine for rank in ranks}, arrays)
        return {rank: self._like(tensor, array) for rank, array in arrays.items()}

    # -- one to one, and the historical names -------------------------------------------------------------------------
    def send_to_rank(self, tensor: Any, dest: int, tag: int = 0) -> None:
        """Send to one rank."""
        self.comm.send(self._copy(tensor), dest, tag)

    def receive_from_rank(self, like: Any, source: int, tag: int = 0) -> Any:
        """Receive what a rank sends; ``like`` has its shape and dtype."""
        return self._received(like, source, tag)[0]

    def send_to_root(self, tensor: Any, tag: int = 0) -> None:
        """Send to rank 0."""
        self.send_to_rank(tensor, 0, tag)

    def wait_for_root(self, like: Any, tag: int = 0) -> Any:
        """Receive what rank 0 sends; ``like`` has its shape and dtype."""
        return self.receive_from_rank(like, 0, tag)

    def wait_for_any_rank(self, like: Any, tag: int = 0) -> tuple[Any, int]:
        """Receive what comes first from any rank; with it the rank that it came from."""
        return self._received(like, ANY, tag)

    def sync_all(self, tensor: Any) -> Any:
        """:meth:`all_reduce`."""
        return self.all_reduce(tensor)

    def sync_all_with_root(self, tensor: Any) -> Any:
        """:meth:`broadcast` from rank 0."""
        return self.broadcast(tensor)

    def sync_all_at_root(self, tensor: Any, gather_func: Reduction = sum) -> Any:
        """At rank 0 what ``gather_func`` makes of all ranks' tensors, elsewhere the tensor itself."""
        arrays = self._at_root(tensor)
        return self._like(tensor, np.asarray(gather_func(arrays), arrays[0].dtype)) if arrays else tensor

    def gather_at_root(self, tensor: Any) -> list[Any] | None:
        """At rank 0 the tensors of all ranks, elsewhere None."""
        arrays = self._at_root(tensor)
        return [self._like(tensor, array) for array in arrays] if arrays else None

    # -- between tensors and arrays -----------------------------------------------------------------------------------
    def _at_root(self, tensor: Any) -> list[np.ndarray]:
        mine = self._copy(tensor)
        if self.rank != 0:
            self.comm.send(mine, 0, _TO_ROOT)
            return []
        arrays = [mine, *(np.empty_like(mine) for _ in range(1, self.size))]
        for rank in range(1, self.size):
            self.comm.receive(arrays[rank], rank, _TO_ROOT)
        return arrays

    def _received(self, like: Any, source: int, tag: int) -> tuple[Any, int]:
        array = np.empty_like(self._copy(like))
        rank = self.comm.receive(array, source, tag)
        return self._like(like, array), rank

    def _copy(self, tensor: Any) -> np.ndarray:
        return np.array(self.network.to_numpy(tensor), order="C")

    def _like(self, tensor: Any, array: np.ndarray) -> Any:
        if isinstance(tensor, (np.ndarray, np.generic)):
            return array
        return self.network.to_tensor(array)


_TO_ROOT = 32765  # away from the tags of users
