"""Operators that move, select or make elements: shapes, indices, padding, constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from deep500.frameworks.pytorch.dtypes import from_array, onnx_dtype
from deep500.frameworks.pytorch.operators.table import enter_all, ints, op, scalar, wrapped
from deep500.networks.execution.chains import DOMAIN
from deep500.networks.execution.operands import slice_places
from deep500.networks.execution.operator_table import positive

Tensor = torch.Tensor


def identity(x: Any) -> Any:
    """The value itself."""
    return x


def to_device(x: Tensor, device: str) -> Tensor:
    """A tensor that was computed on the CPU (shapes are), on the device."""
    return x.to(device, non_blocking=True)


enter_all({"Identity": identity})


@op("Shape")
def shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return torch.tensor(x.shape[start:end], dtype=torch.int64)


@op("Size")
def size(x: Tensor) -> Tensor:
    return torch.tensor(x.numel(), dtype=torch.int64)


@op("Reshape", static=(1,))
def reshape(x: Tensor, shape: Any, *, allowzero: int = 0) -> Tensor:
    sizes = ints(shape) or []
    if not allowzero and 0 in sizes:
        sizes = [x.shape[i] if n == 0 else n for i, n in enumerate(sizes)]
    return x.reshape(sizes)


@op("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = positive(axis, x.ndim)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@op("Transpose")
def transpose(x: Tensor, *, perm: Any = None) -> Tensor:
    return x.permute(tuple(perm) if perm is not None else tuple(reversed(range(x.ndim))))


@op("Squeeze", static=(1,))
def squeeze(x: Tensor, axes: Any = None) -> Tensor:
    return x.squeeze() if axes is None else x.squeeze(tuple(ints(axes) or ()))


@op("Unsqueeze", static=(1,))
def unsqueeze(x: Tensor, axes: Any) -> Tensor:
    chosen = ints(axes) or []
    for axis in sorted(positive(a, x.ndim + len(chosen)) for a in chosen):
        x = x.unsqueeze(axis)
    return x


@op("Concat")
def concat(*xs: Tensor, axis: int) -> Tensor:
    return torch.cat(xs, axis)


@op("Split", static=(1,), many=True)
def split(x: Tensor, sizes: Any = None, *, axis: int = 0, num_outputs: Any = None, outputs: tuple[bool, ...]) -> Any:
    """Equal parts where no sizes are given; then the last may be smaller, or empty."""
    if sizes is not None:
        return torch.split(x, ints(sizes), axis)  # type: ignore[arg-type]
    total, count = x.shape[axis], num_outputs or len(outputs)  # outputs ends with the last that is read
    parts = torch.split(x, max(1, -(-total // count)), axis)
    return parts + (x.narrow(axis, total, 0),) * (len(outputs) - len(parts))


@op("Slice", static=(1, 2, 3, 4))
def slice_(x: Tensor, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Tensor:
    begins, stops = ints(starts) or [], ints(ends) or []
    chosen = ints(axes) if axes is not None else list(range(len(begins)))
    strides = ints(steps) if steps is not None else [1] * len(begins)
    for axis, begin, stop, step in zip(chosen or [], begins, stops, strides or [], strict=True):
        along = slice_places(x.shape[axis], begin, stop, step)
        if step > 0:
            index = [slice(None)] * x.ndim
            index[axis] = slice(along.start, max(along.start, along.stop), step)
            x = x[tuple(index)]
        else:
            x = x.index_select(axis, torch.tensor(list(along), dtype=torch.int64, device=x.device))
    return x


@op("Expand", static=(1,))
def expand(x: Tensor, shape: Any) -> Tensor:
    return x.expand(torch.broadcast_shapes(x.shape, tuple(ints(shape) or ())))


@op("Tile", static=(1,))
def tile(x: Tensor, repeats: Any) -> Tensor:
    return x.tile(tuple(ints(repeats) or ()))


@op("Pad", static=(1, 2, 3))
def pad(x: Tensor, pads: Any, value: Any = None, axes: Any = None, *, mode: str = "constant") -> Tensor:
    amounts = ints(pads) or []
    chosen = range(x.ndim) if axes is None else [positive(a, x.ndim) for a in ints(axes) or ()]
    pairs = dict(zip(chosen, zip(amounts[: len(chosen)], amounts[len(chosen) :], strict=True), strict=True))
    if mode == "constant":
        flat = [n for axis in reversed(range(x.ndim)) for n in pairs.get(axis, (0, 0))]
        if x.dtype == torch.bool:
            return F.pad(x.to(torch.uint8), flat, value=int(scalar(value, 0))).to(torch.bool)
        if isinstance(value, Tensor) and value.is_floating_point():  # as a number it would be a constant
            inside = F.pad(torch.ones(x.shape, dtype=torch.uint8, device=x.device), flat).to(torch.bool)
            return torch.where(inside, F.pad(x, flat), value.reshape(()))
        return F.pad(x, flat, value=scalar(value, 0))
    for axis, (before, after) in pairs.items():
        places = np.arange(x.shape[axis])[max(-before, 0) : x.shape[axis] - max(-after, 0)]
        index = np.pad(places, (max(before, 0), max(after, 0)), mode=mode)  # type: ignore[call-overload]
        x = x.index_select(axis, torch.from_numpy(index).to(x.device))
    return x


@op("Gather")
def gather(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    axis = positive(axis, x.ndim)
    flat = indices.reshape(-1)
    picked = from_front(lambda i: x.index_select(axis, i), flat, x, axis)
    return picked if indices.ndim == 1 else picked.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


def from_front(function: Callable[[Tensor], Tensor], indices: Tensor, x: Tensor, axis: int) -> Tensor:
    """Apply a function of torch's to indices into an axis, of which ONNX lets some count from the back.

    These are rare: on the processor they are looked for when torch refuses one.
    """
    if x.device.type == "cpu" and not torch.compiler.is_compiling():
        try:
            return function(indices)
        except (IndexError, RuntimeError):
            pass
    return function(wrapped(indices, x.shape[axis]))


def rows(x: Tensor, indices: Tensor) -> Tensor:
    """Rows of a table: a Gather along the first of two axes, with the gradient that embeddings have."""
    return from_front(lambda i: F.embedding(i, x), indices, x, 0)


@op("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return from_front(lambda i: torch.gather(x, axis, i.long()), indices, x, axis)


def _linear(indices: Tensor, sizes: Any) -> Tensor:
    """Index tuples in the last axis as positions in an array of these sizes, flattened."""
    position = torch.zeros(indices.shape[:-1], dtype=torch.int64, device=indices.device)
    for i, n in enumerate(sizes):
        position = position * n + wrapped(indices[..., i], n)
    return position


@op("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    depth = indices.shape[-1]
    batch, sizes, rest = x.shape[:batch_dims], x.shape[batch_dims : batch_dims + depth], x.shape[batch_dims + depth :]
    count, inner = math.prod(batch), math.prod(sizes)
    position = _linear(indices, sizes).reshape(count, -1)
    position = position + inner * torch.arange(count, device=x.device).unsqueeze(1)
    picked = x.reshape(count * inner, *rest).index_select(0, position.reshape(-1))
    return picked.reshape(indices.shape[:-1] + rest)


SCATTERS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scatter(x: Tensor, axis: int, indices: Tensor, updates: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return x.scatter(axis, indices, updates)
    if reduction == "add":
        return x.scatter_add(axis, indices, updates)
    return x.scatter_reduce(axis, indices, updates, SCATTERS[reduction], include_self=True)


@op("ScatterElements")
def scatter_elements(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none") -> Tensor:
    return from_front(lambda i: _scatter(x, axis, i.long(), updates, reduction), indices, x, axis)


@op("ScatterReduce", domain=DOMAIN)
def scatter_reduce(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int, reduction: str) -> Tensor:
    """The largest or smallest update of each place; a place without any keeps what it has."""
    name = SCATTERS[reduction]
    return from_front(lambda i: x.scatter_reduce(axis, i, updates, name, include_self=False), indices, x, axis)


@op("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    depth = indices.shape[-1]
    outer, rest = math.prod(x.shape[:depth]), math.prod(x.shape[depth:])
    position = _linear(indices, x.shape[:depth]).reshape(-1, 1).expand(-1, rest)
    return _scatter(x.reshape(outer, rest), 0, position, updates.reshape(-1, rest), reduction).reshape(x.shape)


@op("TensorScatter")
def tensor_scatter(
    cache: Tensor, update: Tensor, at: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Write ``update`` into a copy of ``cache`` along ``axis``, each sample of the batch from a position of its own."""
    axis = positive(axis, cache.ndim)
    moved, new = cache.movedim(axis, 1), update.movedim(axis, 1)
    start = torch.zeros(cache.shape[0], dtype=torch.int64, device=cache.device) if at is None else at
    position = start.unsqueeze(1) + torch.arange(new.shape[1], device=cache.device)
    if mode == "circular":
        position = position % moved.shape[1]
    index = position.reshape(position.shape + (1,) * (new.ndim - 2)).expand(new.shape)
    return moved.scatter(1, index, new).movedim(1, axis)


@op("Compress")
def compress(x: Tensor, condition: Tensor, *, axis: int | None = None) -> Tensor:
    if axis is None:
        x, axis = x.reshape(-1), 0
    return x.index_select(axis, condition.nonzero().reshape(-1))


@op("NonZero")
def nonzero(x: Tensor) -> Tensor:
    return x.nonzero().mT.contiguous()


@op("OneHot", static=(1,))
def one_hot(indices: Tensor, depth: Any, values: Tensor, *, axis: int = -1) -> Tensor:
    """An index outside ``-depth .. depth - 1`` gives a row of the off value."""
    n = int(scalar(depth))
    axis = positive(axis, indices.ndim + 1)
    steps = torch.arange(n, device=indices.device).reshape([n] + [1] * (indices.ndim - axis))
    hot = wrapped(indices.long(), n).unsqueeze(axis) == steps
    return torch.where(hot, values[1], values[0])


@op("Range")
def arange(start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int = 1) -> Tensor:
    places = torch.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)
    if not (start.requires_grad or delta.requires_grad):
        return places
    return start.reshape(()) + torch.arange(len(places), dtype=start.dtype, device=start.device) * delta.reshape(())


@op("ConstantOfShape", static=(0,))
def constant_of_shape(shape: Any, *, value: Any = None) -> Tensor:
    fill = torch.zeros(1) if value is None else from_array(value)
    return fill.reshape(()).expand(tuple(ints(shape) or ())).clone()


@op("EyeLike")
def eye_like(x: Tensor, *, dtype: Any = None, k: int = 0) -> Tensor:
    kind = x.dtype if dtype is None else onnx_dtype(dtype)
    rows = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    return (torch.arange(x.shape[1], device=x.device) - rows == k).to(kind)


@op("Trilu", static=(1,))
def trilu(x: Tensor, k: Any = None, *, upper: int = 1) -> Tensor:
    return (torch.triu if upper else torch.tril)(x, int(scalar(k, 0)))


@op("ReverseSequence")
def reverse_sequence(x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0) -> Tensor:
    y = x.movedim((time_axis, batch_axis), (0, 1))
    steps = torch.arange(y.shape[0], device=x.device).unsqueeze(1)
    source = torch.where(steps < lengths, lengths - 1 - steps, steps)
    index = source.reshape(source.shape + (1,) * (y.ndim - 2)).expand(y.shape)
    return torch.gather(y, 0, index).movedim((0, 1), (time_axis, batch_axis))


@op("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b, rest = blocksize, c // blocksize**2
    if mode == "CRD":
        return F.pixel_shuffle(x, b)
    return x.reshape(n, b, b, rest, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, rest, h * b, w * b)


@op("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "CRD":
        return F.pixel_unshuffle(x, b)
    return x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)
