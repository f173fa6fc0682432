"""Sequences are lists of tensors, an optional value is the value or None."""

from __future__ import annotations

from typing import Any

import torch

from deep500.frameworks.pytorch.operators.table import ints, op, scalar
from deep500.networks.execution.operator_table import positive

Tensor = torch.Tensor


@op("SequenceConstruct")
def sequence_construct(*xs: Tensor) -> list[Tensor]:
    return list(xs)


@op("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> list[Tensor]:
    return []


@op("SequenceAt", static=(1,))
def sequence_at(xs: list[Tensor], position: Any) -> Tensor:
    return xs[scalar(position)]


@op("SequenceErase", static=(1,))
def sequence_erase(xs: list[Tensor], position: Any = None) -> list[Tensor]:
    at = positive(scalar(position, -1), len(xs))
    return xs[:at] + xs[at + 1 :]


@op("SequenceInsert", static=(2,))
def sequence_insert(xs: list[Tensor], x: Tensor, position: Any = None) -> list[Tensor]:
    at = positive(scalar(position, len(xs)), len(xs))
    return [*xs[:at], x, *xs[at:]]


@op("SequenceLength")
def sequence_length(xs: list[Tensor]) -> Tensor:
    return torch.tensor(len(xs))


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


@op("Optional")
def optional(x: Any = None, *, type: Any = None) -> Any:
    return x


@op("OptionalGetElement")
def optional_get_element(x: Any) -> Any:
    return x


@op("OptionalHasElement")
def optional_has_element(x: Any = None) -> Tensor:
    return torch.tensor(x is not None)
