"""The process group of torch.distributed in which the ranks of any communicator meet, for PyTorch's own engines."""

from __future__ import annotations

import atexit
import gc
import platform
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from deep500.distributed.transports.communicator import Communicator
from deep500.errors import CommunicationError, InputError


def group_of(comm: Communicator, device: torch.device) -> Any:
    """A group of all ranks: that of the process where there is one, else a new one; all ranks call it together.

    Tensors travel by gloo, those of a GPU by nccl. The path by nccl is written after torch's documentation and has been
    run on no GPU.

    Raises:
        InputError: ranks that are threads of one process.
        CommunicationError: the process has a group of other ranks.
    """
    if comm.transport in ("threads", "pretend"):
        kind = "threads of one process" if comm.transport == "threads" else "imagined"
        raise InputError(
            f"got ranks that are {kind}; expected a process for each, as torch.distributed has one group in a process: "
            "start them with --ranks, mpirun or torchrun, or use the scheme of Deep500's own that is the same"
        )
    backend = "nccl" if device.type == "cuda" else "gloo"
    if not dist.is_initialized():
        _meet(comm, backend)
    if (dist.get_rank(), dist.get_world_size()) != (comm.rank, comm.size):
        raise CommunicationError(
            f"got rank {dist.get_rank()} of {dist.get_world_size()} in the process's group of torch.distributed; "
            f"expected {comm.rank} of {comm.size}, as in the communicator: make both of the same ranks"
        )
    if dist.get_backend() == backend:
        return dist.group.WORLD
    return dist.new_group(backend=backend, timeout=timedelta(seconds=comm.timeout))


def parts_of_group(comm: Communicator, group: Any, parts: list[list[int]]) -> Any:
    """A group of those ranks, of several parts of all ranks, among which this one is; all ranks call it together."""
    limit, backend = timedelta(seconds=comm.timeout), dist.get_backend(group)
    return dist.new_subgroups_by_enumeration(parts, timeout=limit, backend=backend)[0]


def _meet(comm: Communicator, backend: str) -> None:
    """Make torch's default group: rank 0 opens a store, the others learn its place from the communicator."""
    hosts, limit = comm.gather_facts(platform.node()), timedelta(seconds=comm.timeout)
    host = "127.0.0.1" if len(set(hosts)) == 1 else hosts[0]
    store = None
    if comm.rank == 0:
        store = dist.TCPStore(host, 0, comm.size, is_master=True, timeout=limit, wait_for_workers=False)
    port = comm.gather_facts(None if store is None else store.port)[0]
    if store is None:
        store = dist.TCPStore(host, port, comm.size, is_master=False, timeout=limit)
    dist.init_process_group(backend, store=store, rank=comm.rank, world_size=comm.size, timeout=limit)
    atexit.register(_part)


def _part() -> None:
    """Give the group up: its threads cannot be joined when the interpreter has ended."""
    if dist.is_initialized():
        gc.collect()
        dist.destroy_process_group()
        gc.collect()
