"""`world()`: the communicator of this process, started by hand, by our launcher, by mpirun, srun or torchrun."""

from __future__ import annotations

import os
from collections.abc import Mapping

from deep500.distributed.transports.communicator import Communicator
from deep500.distributed.transports.mpi import MPI, ranks_started
from deep500.distributed.transports.serial import Serial
from deep500.errors import CommunicationError

TORCH_VARIABLES = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
"""Variables by which ``torch.distributed`` meets: torchrun sets them, and so do others, such as Ray Train."""

_current: list[Communicator] = []


def transport_of(environment: Mapping[str, str]) -> str:
    """Who started this process: ``torch`` (torchrun, Ray Train), ``mpi`` or ``serial``; ``DEEP500_TRANSPORT`` decides
    if set. Our own launcher starts MPI's ranks, whatever else is set.

    Example:
        >>> transport_of({}), transport_of({"PMI_SIZE": "4"}), transport_of({"TORCHELASTIC_RUN_ID": "x"})
        ('serial', 'mpi', 'torch')
    """
    asked = environment.get("DEEP500_TRANSPORT")
    if asked is not None:
        if asked not in ("serial", "mpi", "torch"):
            raise CommunicationError(f"got DEEP500_TRANSPORT={asked!r}; expected serial, mpi or torch: correct it")
        return asked
    by_torch = all(name in environment for name in TORCH_VARIABLES) and environment["WORLD_SIZE"] != "1"
    if "TORCHELASTIC_RUN_ID" in environment or (by_torch and "DEEP500_WORLD_SIZE" not in environment):
        return "torch"
    return "mpi" if ranks_started(environment) > 1 else "serial"


def world() -> Communicator:
    """This process's communicator, made at the first call.

    Raises:
        MissingBackend: the process was started by MPI and mpi4py is missing, or by torchrun and PyTorch is.
        CommunicationError: launcher and library are of different MPIs.

    Example:
        >>> world().size
        1
    """
    if not _current:
        _current.append(_make(transport_of(os.environ)))
    return _current[0]


def current_world() -> Communicator:
    """:func:`world` if it was made already, else one rank: asking starts nothing."""
    return _current[0] if _current else Serial()


def set_world(comm: Communicator | None) -> None:
    """Make :func:`world` return this communicator; None: create it at the next call."""
    _current[:] = [] if comm is None else [comm]


def _make(transport: str) -> Communicator:
    if transport == "mpi":
        return MPI()
    if transport == "torch":
        from deep500.registry import load_backend

        return load_backend("pytorch").TorchDistributed()
    return Serial()
