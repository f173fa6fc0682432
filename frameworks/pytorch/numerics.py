"""How exactly torch computes: its process-wide switches, thrown when an executor runs that wants them otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch

from deep500.networks.execution.precision import Numerics

_set: list[Numerics] = []


def adopt(numerics: Numerics) -> None:
    """Set torch's switches, if another executor's are set.

    Example:
        >>> adopt(Numerics("ieee", False))
        >>> torch.are_deterministic_algorithms_enabled()
        False
    """
    if _set == [numerics]:
        return
    switches: Any = torch.backends  # whose annotations lack some of these
    # The older switches are set too, and first, since they reset the newer ones: where torch reads an older one that
    # differs, it raises RuntimeError (torch.backends.cudnn.flags, and so torch.export).
    switches.cuda.matmul.allow_tf32 = switches.cudnn.allow_tf32 = numerics.precision == "tf32"
    for part in (switches.cuda.matmul, switches.cudnn.conv, switches.cudnn.rnn):
        part.fp32_precision = numerics.precision
    if numerics.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
        torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(numerics.deterministic)
    _set[:] = [numerics]


_alone: list[int] = []
_lock = Lock()


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it torch computes with one thread, in all threads of the process that are within; the last one ends it.

    Example:
        >>> with one_thread():
        ...     torch.get_num_threads()
        1
    """
    with _lock:
        _alone.append(_alone[0] if _alone else torch.get_num_threads())
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            before = _alone.pop()
            if not _alone:
                torch.set_num_threads(before)
