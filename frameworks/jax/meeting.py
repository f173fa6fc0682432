"""Ranks of any communicator as the processes of ``jax.distributed``, for JAX's own collectives.

JAX learns of other processes before it first looks for devices, and not after: a recipe whose scheme is an engine's
lets ranks meet before its executor is made; in a program of one's own :func:`meet` is called first.
"""

from __future__ import annotations

import platform
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np

from deep500.distributed.transports.communicator import Communicator
from deep500.distributed.transports.rollcall import SILENT
from deep500.errors import CommunicationError, InputError

RANKS = "ranks"
"""The axis of the mesh."""
_OF_RANKS = re.compile("gloo|coordination|heartbeat", re.IGNORECASE)
"""Pattern in the texts of errors that other ranks caused."""
_met: list[tuple[int, int]] = []
"""Rank and size, once this process has met the others."""


def meet(comm: Communicator) -> None:
    """Let this process be one of all ranks for JAX, whose collectives travel by gloo; all ranks call it together.

    Raises:
        InputError: ranks that are no processes, or JAX has computed before.
        CommunicationError: the process has met other ranks, or they do not come.

    Example (``mpirun -n 2 python -m mpi4py this.py``, before anything else of JAX's):
        >>> from deep500.distributed import world
        >>> meet(world())          # of one rank, which has nobody to meet
    """
    if comm.size == 1:
        return
    if comm.transport in ("threads", "pretend"):
        kind = "threads of one process" if comm.transport == "threads" else "imagined"
        raise InputError(
            f"got ranks that are {kind}; expected a process for each, as jax.distributed knows processes: start them "
            "with --ranks, mpirun or torchrun, or use the scheme of Deep500's own that is the same"
        )
    place = comm.rank, comm.size
    if not _met and getattr(jax.distributed, "is_initialized", bool)():  # by the program itself
        _met.append((jax.process_index(), jax.process_count()))
    if _met and _met != [place]:
        raise CommunicationError(
            f"got rank {_met[0][0]} of {_met[0][1]} in jax.distributed; expected {comm.rank} of {comm.size}, as in the "
            "communicator: make both of the same ranks"
        )
    if _met:
        return
    if late := [rank for rank, begun in enumerate(comm.gather_facts(_has_begun())) if begun]:
        raise InputError(
            f"got a JAX that has looked for devices before the ranks met (rank {late[0]}); expected them to meet "
            "first: call deep500.frameworks.jax.meet(comm) before the executor is made"
        )
    _initialize(comm)
    _met.append(place)


def _has_begun() -> bool:
    """Whether JAX has looked for devices in this process."""
    from jax._src.xla_bridge import backends_are_initialized  # the question has no public name

    return bool(backends_are_initialized())


def _initialize(comm: Communicator) -> None:
    """Rank 0 serves; the others learn its place from the communicator."""
    hosts = comm.gather_facts(platform.node())
    host, port = "127.0.0.1" if len(set(hosts)) == 1 else hosts[0], None
    if comm.rank == 0:
        with socket.socket() as free:
            free.bind((host, 0))
            port = free.getsockname()[1]
    where = f"{host}:{comm.gather_facts(port)[0]}"
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if hasattr(jax.config, "jax_enable_preemption_service"):
        jax.config.update("jax_enable_preemption_service", False)  # which would take SIGTERM for itself
    try:
        jax.distributed.initialize(
            where,
            comm.size,
            comm.rank,
            cluster_detection_method="deactivate",
            initialization_timeout=max(1, int(comm.timeout)),
            coordinator_bind_address=where,
        )
    except RuntimeError as error:
        raise CommunicationError(
            f"got {str(error).splitlines()[0]} from jax.distributed at {where}; expected {comm.size} ranks to meet "
            "there: look for the rank that failed first"
        ) from error


@contextmanager
def failures(comm: Communicator, what: str) -> Iterator[None]:
    """Within it errors of JAX's collectives are ours, with the ranks that have ended where that is known."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not _OF_RANKS.search(str(error)):
            raise
        silent = [str(rank) for rank in comm.missing()] if hasattr(comm, "missing") else []
        who = f"rank {', '.join(silent)} {SILENT}; " if silent else ""
        raise CommunicationError(
            f"{who}got {str(error).splitlines()[0]} from JAX in {what}; expected every rank to take part: look for the "
            "rank that failed first"
        ) from error


def mesh_of(comm: Communicator, device: jax.Device) -> jax.sharding.Mesh:
    """A device of each rank in a row, this rank's the one given.

    Raises:
        InputError: a part of the ranks, or a GPU, for which this was written and tried on none.
    """
    if comm.world.size != comm.size:
        raise InputError(
            f"got an axis of a mesh, {comm.size} of {comm.world.size} ranks, for an engine of JAX's; expected all "
            "ranks: use --backend pytorch, or a scheme of Deep500's own there"
        )
    if device.platform != "cpu":
        raise InputError(
            f"got device {device.platform} for an engine of JAX's; expected 'cpu', on which alone it was tried: use "
            "--device cpu, or ConsistentDecentralized"
        )
    meet(comm)
    number = jax.local_devices(backend=device.platform).index(device)
    row = [[d for d in jax.devices(device.platform) if d.process_index == rank][number] for rank in range(comm.size)]
    return jax.sharding.Mesh(np.array(row), (RANKS,))
