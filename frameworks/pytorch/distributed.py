"""`TorchDistributed`: ranks that exchange arrays over ``torch.distributed``, as torchrun starts them."""

from __future__ import annotations

import gc
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store, _set_pg_timeout
from torch.distributed.rendezvous import rendezvous

from deep500.devices import local_rank
from deep500.distributed.transports.communicator import ANY, Communicator, Pending
from deep500.distributed.transports.failstop import ENDED, Watchdog, end_with_all, lateness
from deep500.distributed.transports.rollcall import SILENT, Presence, new_folder
from deep500.errors import CommunicationError, InputError


class TorchDistributed(Communicator):
    """The ranks of ``torch.distributed``, however they were started: by torchrun, or as a group of the caller's.

    Arrays are wrapped, not copied (read-only ones are). They travel by gloo through host memory; where a group for
    ``nccl`` is asked for, sums and broadcasts pass through the rank's GPU. It has process groups of its own, so that
    messages of others (``DistributedDataParallel``) are not taken for its own. Gloo's ring gives every rank the same
    bits, because each part of a sum is formed on one rank and then handed on.

    A call that takes longer than ``timeout`` raises; a rank that raises, or exits while others go on, ends with a
    code that is not 0, whereupon torchrun ends the others. With ``nccl``, torch's own watchdog ends a process that
    waits for too long. The path by nccl is written after torch's documentation and has been run on no GPU.

    Args:
        timeout: seconds; ``DEEP500_COMM_TIMEOUT`` or 60 if None.
        backend: ``gloo``, ``nccl``, or None: nccl where this process sees a GPU for every rank of its machine.

    Raises:
        CommunicationError: no process group is there and the variables that torchrun sets are not either, or the other
            ranks do not appear.
        InputError: another backend.

    Example (``torchrun --nproc-per-node 2 this.py``):
        >>> def main():
        ...     comm = TorchDistributed()
        ...     total = comm.all_reduce(np.ones(3))        # 2, 2, 2 on both ranks
        ...     comm.close()
        >>> TorchDistributed.transport
        'torch'
    """

    transport = "torch"

    def __init__(self, timeout: float | None = None, backend: str | None = None) -> None:
        backend = ("nccl" if _gpus_suffice() else "gloo") if backend is None else backend
        if backend not in ("gloo", "nccl"):
            raise InputError(f"got backend {backend!r}; expected 'gloo' or 'nccl': choose one")
        super().__init__(0, 1, timeout)
        self._presence: Presence | None = None
        self._made_world = not dist.is_initialized()
        self.closed, self._usual = False, self.timeout
        wait = timedelta(seconds=self.timeout)
        with self._failures("the meeting of all ranks"):
            if self._made_world:
                _meet(max(wait, _MEETING))
            self._presence = Presence(dist.get_rank(), _folder_of_all())
            self._host = dist.new_group(backend="gloo", timeout=wait)
            self._gpu = dist.new_group(backend="nccl", timeout=wait) if backend == "nccl" else None
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.members = tuple(range(self.size))
        self._divided: list[Any] = []
        self.library = f"torch {torch.__version__}, {backend}"
        self._watchdog = Watchdog(self, times_out=False)
        end_with_all(self)

    def _divide(self, whole: Communicator, colors: list[int]) -> None:
        groups = [("_host", "gloo")] if self._gpu is None else [("_host", "gloo"), ("_gpu", "nccl")]
        for color in sorted(set(colors)):  # all ranks make the groups of all parts, one after the other
            ranks = [member for member, other in zip(whole.members, colors, strict=True) if other == color]
            for attribute, backend in groups:
                group = dist.new_group(ranks, backend=backend, timeout=timedelta(seconds=self.timeout))
                if color == colors[whole.rank]:
                    setattr(self, attribute, group)
                    self._divided.append(group)

    @contextmanager
    def patience(self, seconds: float) -> Iterator[None]:
        """Within it nothing waits longer than this, if that is more than the time-out."""
        with super().patience(seconds):
            self._limit(self.timeout)
            try:
                yield
            finally:
                self._limit(self._usual)

    def _limit(self, seconds: float) -> None:
        for group in (self._host, self._gpu):
            if group is not None:
                _set_pg_timeout(timedelta(seconds=seconds), group)

    def close(self) -> None:
        """Shut down cleanly: what was sent has arrived, the process groups are destroyed."""
        if self.closed:
            return
        self._watchdog.stop()
        self._barrier()
        self.closed = True
        if self._presence is not None:
            self._presence.done()
        for group in (*self._divided, self._gpu, self._host):
            if group is not None:
                dist.destroy_process_group(group)
        if self._made_world:
            dist.destroy_process_group()
        self._host = self._gpu = None
        self._divided.clear()
        self.parts.clear()
        gc.collect()  # a group that is held until the interpreter ends aborts it: its threads cannot be joined then

    def all_ended(self) -> bool:
        """See the base class. By the store, since others may be in any call of the groups."""
        self._watchdog.stop()
        self.note(ENDED)
        store, until = _get_default_store(), perf_counter() + self.timeout
        count = store.add(_GOODBYE, 1)
        while count < self.size and perf_counter() < until:
            sleep(0.01)
            count = store.add(_GOODBYE, 0)
        return bool(count >= self.size)

    def missing(self) -> list[int]:
        """Ranks of this machine that have ended without a word."""
        return [] if self._presence is None else self._presence.silent(0.0)

    def note(self, place: str) -> None:
        """Write where this rank is, for those that wait for it."""
        if self._presence is not None:
            self._presence.note(place)

    def places(self) -> dict[int, str]:
        """Where ranks of this machine are."""
        return {} if self._presence is None else self._presence.places()

    def abort(self, code: int = 1) -> None:
        """End this process at once; its launcher ends the others, and their calls fail."""
        if self._presence is not None:
            self._presence.reported()
        os._exit(code or 1)

    def _failures(self, what: str) -> AbstractContextManager[None]:
        """torch's errors as ours, with the rank that is to blame where that is known."""
        return failures(self, what)

    # -- sums: values must be of a type that torch adds up ------------------------------------------------------------
    def _all_reduce(self, array: np.ndarray) -> None:
        self._start_all_reduce(array).wait()

    def _start_all_reduce(self, array: np.ndarray) -> Pending:
        tensor = self._staged(_values(array))
        with self._failures("all_reduce"):
            work = dist.all_reduce(tensor, group=self._collective, async_op=True)

        def wait() -> None:
            with self._failures("all_reduce"):
                work.wait()
            _unstage(tensor, _values(array))

        return Pending(wait, work.is_completed)

    def _reduce(self, array: np.ndarray, root: int) -> None:
        # Gloo leaves partial sums on the other ranks, whose array must stay as it is.
        tensor = self._staged(_values(array if self.rank == root else array.copy()))
        with self._failures("reduce"):
            dist.reduce(tensor, self.members[root], group=self._collective)
        if self.rank == root:
            _unstage(tensor, _values(array))

    # -- copies: bytes are bytes --------------------------------------------------------------------------------------
    def _broadcast(self, array: np.ndarray, root: int) -> None:
        tensor = self._staged(_bytes(array))
        with self._failures("broadcast"):
            dist.broadcast(tensor, self.members[root], group=self._collective)
        _unstage(tensor, _bytes(array))

    def _all_gather(self, array: np.ndarray) -> np.ndarray:
        rows = np.empty((self.size, *array.shape), array.dtype)
        if array.size:
            with self._failures("all_gather"):
                dist.all_gather([_bytes(row) for row in rows.reshape(self.size, -1)], _bytes(array), group=self._host)
        return rows

    def _barrier(self) -> None:
        with self._failures("barrier"):
            dist.barrier(group=self._host)

    def _send(self, array: np.ndarray, dest: int, tag: int) -> None:
        with self._failures("send"):
            dist.send(_message(array), self.members[dest], group=self._host, tag=tag)

    def _receive(self, array: np.ndarray, source: int, tag: int) -> int:
        with self._failures("receive"):
            origin = None if source == ANY else self.members[source]
            return self.members.index(dist.recv(_message(array), origin, group=self._host, tag=tag))

    def _exchange(self, outgoing: Mapping[int, np.ndarray], incoming: Mapping[int, np.ndarray]) -> None:
        if self.rank in incoming:
            incoming[self.rank][...] = outgoing[self.rank]  # gloo has no line to oneself
        calls = [
            dist.P2POp(call, _message(array), self.members[peer], group=self._host, tag=_EXCHANGE)
            for call, arrays in ((dist.irecv, incoming), (dist.isend, outgoing))
            for peer, array in arrays.items()
            if peer != self.rank
        ]
        if calls:
            with self._failures("exchange"):
                for work in dist.batch_isend_irecv(calls):
                    work.wait()

    # -- between arrays and tensors -----------------------------------------------------------------------------------
    @property
    def _collective(self) -> Any:
        return self._host if self._gpu is None else self._gpu

    def _staged(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self._gpu is None else tensor.to(_gpu_of_this_rank())


OF_RANKS = re.compile(r"gloo|nccl|Timed out|Connection (closed|reset)|ProcessGroup", re.IGNORECASE)
"""Pattern in the texts of errors that other ranks caused, in the calls of an engine."""


@contextmanager
def failures(comm: Any, what: str, which: re.Pattern[str] | None = None) -> Iterator[None]:
    """Within it errors of torch.distributed are ours, with the rank that is to blame where that is known.

    Args:
        comm: whose ranks take part.
        what: they do, for the message.
        which: found in the texts of errors that are meant; all others pass.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if isinstance(error, (CommunicationError, InputError)) or not (which is None or which.search(str(error))):
            raise
        reason = str(error).splitlines()[0]
        late = "Timed out" in reason  # then ranks are there, or have long been gone
        silent = _silent(comm, 0.0 if late else 1.0)
        if silent:
            who = f"rank{'s' * (len(silent) > 1)} {', '.join(map(str, silent))}"
            raise CommunicationError(
                f"{who} {SILENT}; got {reason} from torch.distributed in {what}; expected every rank to take part: "
                "look for what ended it, such as the memory of the machine"
            ) from error
        who = (late and _late(comm, what)) or "look for the rank that failed first"
        raise CommunicationError(
            f"got {reason} from torch.distributed in {what}; expected every rank to take part: "
            f"{who}; for processes of your own start them with torchrun, and raise "
            "DEEP500_COMM_TIMEOUT if one was only slow"
        ) from error


def _late(comm: Any, what: str) -> str:
    """Which ranks have not come as far as this one; of an engine, whose calls the communicator does not number, by the
    call before."""
    whole = comm.world
    before = whole.busy
    whole.busy = before or (what, perf_counter())
    try:
        return lateness(whole) if hasattr(whole, "places") else ""
    finally:
        whole.busy = before


def _silent(comm: Any, patience: float) -> list[int]:
    """Ranks of this machine that have ended without a word, as far as the transport knows."""
    if isinstance(comm, TorchDistributed):
        return [] if comm._presence is None else comm._presence.silent(patience)
    return list(comm.missing()) if hasattr(comm, "missing") else []


_MEETING = timedelta(seconds=60)
"""Time that ranks may take to start: they import at different speeds, however short a time-out the user asks for."""

_GOODBYE = "deep500/ended"
_EXCHANGE = 32766  # away from the tags of users, as in MPI


_worlds = itertools.count()
"""Communicators of this process; all ranks make them in the same order."""


def _meet(timeout: timedelta) -> None:
    """Make torch's default group of the ranks that torchrun's variables speak of, or name those that do not come."""
    store, rank, size = next(iter(rendezvous("env://", timeout=timeout)))
    store.set(f"deep500/here/{rank}", "yes")
    try:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=timeout)
    except RuntimeError as error:
        absent = [str(other) for other in range(size) if not store.check([f"deep500/here/{other}"])]
        if not absent:
            raise
        raise CommunicationError(
            f"got no rank {', '.join(absent)} at the meeting of all ranks within {timeout.total_seconds():g} s; "
            f"expected {size} ranks: look for what ended it before, or kept it"
        ) from error


def _folder_of_all() -> Path:
    """The folder for the files that ranks hold, of the same name on every machine."""
    store, key = _get_default_store(), f"deep500/folder/{next(_worlds)}"
    if dist.get_rank() == 0:
        store.set(key, new_folder())
    return Path(store.get(key).decode())


def _values(array: np.ndarray) -> torch.Tensor:
    """The array's memory as a tensor of its dtype."""
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise InputError(
            f"got {array.dtype} to add up; expected a dtype that torch has too: convert it, say to float64"
        ) from error


def _bytes(array: np.ndarray) -> torch.Tensor:
    """The array's memory as bytes; a copy where it is read-only, which torch warns of."""
    flat = (array if array.flags.writeable else array.copy()).reshape(-1)
    return torch.from_numpy(flat.view(np.uint8))


def _message(array: np.ndarray) -> torch.Tensor:
    """Bytes to send or to fill; gloo sends no empty message, so one byte replaces it."""
    return _bytes(array) if array.size else torch.zeros(1, dtype=torch.uint8)


def _unstage(tensor: torch.Tensor, host: torch.Tensor) -> None:
    if tensor.device != host.device:
        host.copy_(tensor)


def _gpu_of_this_rank() -> torch.device:
    return torch.device("cuda", local_rank())


def _gpus_suffice() -> bool:
    """Whether this machine has a GPU for each of its ranks; nccl refuses two ranks on one."""
    return 0 < int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= torch.cuda.device_count()
