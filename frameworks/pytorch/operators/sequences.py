"""Sequences are lists of tensors, an optional value is the value or None."""

from __future__ import annotations

from typing import Any

import torch

from deep500.frameworks.pytorch.operators.table import OPS, ints, op, scalar
from deep500.networks.execution.sequences import enter_sequences

Tensor = torch.Tensor

enter_sequences(OPS, scalar, torch.tensor)


@op("ConcatFromSequence")
def concat_from_sequence(xs: list[Tensor], *, axis: int, new_axis: int = 0) -> Tensor:
    return torch.stack(xs, axis) if new_axis else torch.cat(xs, axis)


@op("SplitToSequence", static=(1,))
def split_to_sequence(x: Tensor, split: Any = None, *, axis: int = 0, keepdims: int = 1) -> list[Tensor]:
    if split is None:
        parts = list(torch.split(x, 1, axis))
        return parts if keepdims else [p.squeeze(axis) for p in parts]
    sizes = ints(split) or []
    is_vector = isinstance(split, list) or (isinstance(split, Tensor) and split.ndim > 0)
    return list(torch.split(x, sizes if is_vector else sizes[0], axis))
