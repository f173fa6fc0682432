"""The table from ONNX operators to functions on torch tensors, and what those functions share.

Functions get tensors, and attributes as Python values with the schema's defaults filled in. Inputs that they want as
plain Python values (``static``) arrive as lists or numbers where they are constants, fixed when the network is
compiled; only what is computed at run time comes as a tensor; :func:`ints` and :func:`scalar` read both. A parameter
called ``outputs`` receives a tuple of booleans: which outputs are read, unread ones at the end left off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from deep500.networks.execution.operator_table import OperatorEntry, OperatorTable


@dataclass(frozen=True)
class TorchEntry(OperatorEntry):
    """An entry, and shorter code for nodes of which enough is known (:mod:`deep500.frameworks.pytorch.lowering`)."""

    lowering: Callable[[Any], Any] | None = None


OPS = OperatorTable(TorchEntry, extras=("outputs",))
"""All operators by (domain, operator type)."""

op, enter_all = OPS.op, OPS.enter_all


def ints(value: Any) -> list[int] | None:
    """A shape, axes or the like as a list, constant or computed (then the device is waited for)."""
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    return list(value) if isinstance(value, (list, tuple)) else [value]


def scalar(value: Any, default: Any = None) -> Any:
    """A number that came as a number, a list or tensor of one element, or None (then the default)."""
    if value is None:
        return default
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() else default
    if isinstance(value, (list, tuple)):
        return value[0] if value else default
    return value


def wrapped(indices: torch.Tensor, size: int) -> torch.Tensor:
    """Indices counted from the front (ONNX lets them count from the back)."""
    return torch.where(indices < 0, indices + size, indices)
