"""How exactly a GPU computes: torch's process-wide switches, thrown when an executor runs that wants them otherwise."""

from __future__ import annotations

import os
from typing import Any

import torch

from deep500.networks.execution.precision import Numerics

_set: list[Numerics] = []


def adopt(wanted: Numerics) -> None:
    """Set torch's switches, if another executor's are set.

    Example:
        >>> adopt(Numerics("ieee", False))
        >>> torch.are_deterministic_algorithms_enabled()
        False
    """
    if _set == [wanted]:
        return
    switches: Any = torch.backends  # whose annotations lack some of these
    for part in (switches.cuda.matmul, switches.cudnn.conv, switches.cudnn.rnn):
        part.fp32_precision = wanted.precision
    if wanted.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
        torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(wanted.deterministic)
    _set[:] = [wanted]
