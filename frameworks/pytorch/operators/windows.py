"""Operators with sliding windows: convolution, pooling, local normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from deep500.frameworks.pytorch.operators.reductions import root
from deep500.frameworks.pytorch.operators.table import ints, op
from deep500.networks.execution.chains import DOMAIN

Tensor = torch.Tensor
CONV: tuple[Any, ...] = (None, F.conv1d, F.conv2d, F.conv3d)
CONV_TRANSPOSE: tuple[Any, ...] = (None, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
MAX_POOL: tuple[Any, ...] = (None, F.max_pool1d, F.max_pool2d, F.max_pool3d)
AVG_POOL: tuple[Any, ...] = (None, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)


def flat_pads(begin: Sequence[int], end: Sequence[int]) -> list[int]:
    """Paddings in the order of ``torch.nn.functional.pad``: last axis first."""
    return [n for pair in zip(reversed(begin), reversed(end), strict=True) for n in pair]


def window(
    x: Tensor, kernel: Sequence[int], strides: Any, pads: Any, dilations: Any, auto_pad: str, ceil: int = 0
) -> tuple[tuple[int, ...], list[int], list[int], tuple[int, ...], list[int]]:
    """Strides, paddings at the begin and the end, dilations, and what ``ceil_mode`` adds at the end."""
    rank, sizes = len(kernel), x.shape[2:]
    stride = tuple(strides or (1,) * rank)
    dilation = tuple(dilations or (1,) * rank)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    begin, end = list((pads or (0,) * 2 * rank)[:rank]), list((pads or (0,) * 2 * rank)[rank:])
    if auto_pad.startswith("SAME"):
        total = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(sizes, stride, reach, strict=True)]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        begin, end = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    extra = [0] * rank
    if ceil:
        for i, (n, s, r) in enumerate(zip(sizes, stride, reach, strict=True)):
            room = n + begin[i] + end[i] - r
            count = -(-room // s) + 1
            if (count - 1) * s >= n + begin[i]:  # the last window must begin inside the data or its begin padding
                count -= 1
            extra[i] = max((count - 1) * s - room, 0)
    return stride, begin, end, dilation, extra


@op("Conv")
def conv(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    stride, begin, end, dilation, _ = window(x, w.shape[2:], strides, pads, dilations, auto_pad)
    if begin != end:
        x, begin = F.pad(x, flat_pads(begin, end)), [0] * len(begin)
    return CONV[len(stride)](x, w, b, stride, tuple(begin), dilation, group)


@op("ConvTranspose")
def conv_transpose(
    x: Tensor,
    w: Tensor,
    b: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    output_padding: Any = None,
    output_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    rank = w.ndim - 2
    stride, dilation = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    extra = list(output_padding or (0,) * rank)
    begin, end = list((pads or (0,) * 2 * rank)[:rank]), list((pads or (0,) * 2 * rank)[rank:])
    shape = ints(output_shape)
    if shape or auto_pad.startswith("SAME"):
        full = [
            s * (n - 1) + e + d * (k - 1) + 1
            for s, n, e, d, k in zip(stride, x.shape[2:], extra, dilation, w.shape[2:], strict=True)
        ]
        wanted = shape[-rank:] if shape else [n * s for n, s in zip(x.shape[2:], stride, strict=True)]
        total = [f - o for f, o in zip(full, wanted, strict=True)]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        begin, end = (large, small) if auto_pad != "SAME_UPPER" else (small, large)
    function = CONV_TRANSPOSE[rank]
    fits = all(e < max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True))
    if begin == end and fits and min(begin) >= 0:
        return function(x, w, b, stride, tuple(begin), tuple(extra), group, dilation)
    crop = flat_pads([-n for n in begin], [e - n for e, n in zip(extra, end, strict=True)])
    y = F.pad(function(x, w, None, stride, 0, 0, group, dilation), crop)
    return y if b is None else y + b.reshape(-1, *[1] * rank)


def windows_of(x: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """A view ``[N, C, *out, *kernel]`` of all windows."""
    for i, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True)):
        x = x.unfold(i + 2, d * (k - 1) + 1, s)[..., ::d]
    return x


@op("MaxPool")
def max_pool(
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    pads: Any = None,
    storage_order: int = 0,
    strides: Any = None,
    outputs: tuple[bool, ...] = (True,),
) -> Any:
    kernel, rank = tuple(kernel_shape), len(kernel_shape)
    stride, begin, end, dilation, extra = window(x, kernel, strides, pads, dilations, auto_pad, ceil_mode)
    end = [e + more for e, more in zip(end, extra, strict=True)]
    dtype, indices = x.dtype, len(outputs) > 1
    y = x if x.is_floating_point() else x.to(torch.float64)
    if begin != end or any(2 * b > k for b, k in zip(begin, kernel, strict=True)):
        y, inside = F.pad(y, flat_pads(begin, end), value=float("-inf")), [0] * rank
    else:
        inside = begin
    padded = y.shape[2:]
    y = MAX_POOL[rank](y, kernel, stride, tuple(inside), dilation, False, indices)
    if not indices:
        return y.to(dtype)
    shift = [b - i for b, i in zip(begin, inside, strict=True)]
    return y[0].to(dtype), _flat_indices(y[1], padded, shift, x.shape, storage_order)


def _flat_indices(index: Tensor, padded: Sequence[int], shift: Sequence[int], shape: Any, column_major: int) -> Tensor:
    """torch's indices count inside one padded plane, ONNX's over the whole tensor."""
    places = []
    for n, s in zip(reversed(padded), reversed(shift), strict=True):
        places.append(index % n - s)
        index = index // n
    sizes = list(reversed(shape[2:]))
    if column_major:
        places, sizes = places[::-1], sizes[::-1]
    position, step = torch.zeros_like(index), 1
    for place, n in zip(places, sizes, strict=True):
        position, step = position + place * step, step * n
    planes = torch.arange(shape[0] * shape[1], device=index.device).reshape(shape[0], shape[1], *[1] * (len(shape) - 2))
    return position + planes * step


@op("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    kernel = tuple(kernel_shape)
    stride, begin, end, dilation, extra = window(x, kernel, strides, pads, dilations, auto_pad, ceil_mode)
    simple = begin == end and set(dilation) == {1} and not any(extra)
    if simple and all(2 * b <= k for b, k in zip(begin, kernel, strict=True)):
        return AVG_POOL[len(kernel)](x, kernel, stride, tuple(begin), False, bool(count_include_pad))
    inside, beyond = flat_pads(begin, end), flat_pads([0] * len(extra), extra)
    ones = x.new_ones((1, 1, *x.shape[2:]))
    counted = F.pad(F.pad(ones, inside, value=float(count_include_pad)), beyond)
    axes = tuple(range(-len(kernel), 0))
    total = windows_of(F.pad(F.pad(x, inside), beyond), kernel, stride, dilation).sum(axes)
    return total / windows_of(counted, kernel, stride, dilation).sum(axes)


@op("LpPool")
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    p: int = 2,
    pads: Any = None,
    strides: Any = None,
) -> Tensor:
    kernel = tuple(kernel_shape)
    stride, begin, end, dilation, extra = window(x, kernel, strides, pads, dilations, auto_pad, ceil_mode)
    end = [e + more for e, more in zip(end, extra, strict=True)]
    powers = F.pad(x.abs() ** p, flat_pads(begin, end))
    return root(windows_of(powers, kernel, stride, dilation).sum(tuple(range(-len(kernel), 0))), p)


def _spatial(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@op("AdaptiveAveragePool", domain=DOMAIN)
def adaptive_average_pool(x: Tensor, *, size: Any) -> Tensor:
    """The mean over windows that follow from the size of the result, ``(height, width)``."""
    return F.adaptive_avg_pool2d(x, tuple(size))


@op("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(_spatial(x), keepdim=True)


@op("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return x.amax(_spatial(x), keepdim=True)


@op("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    return root((x.abs() ** p).sum(_spatial(x), keepdim=True), p)


@op("MaxUnpool", static=(2,))
def max_unpool(
    x: Tensor, indices: Tensor, shape: Any = None, *, kernel_shape: Any, pads: Any = None, strides: Any = None
) -> Tensor:
    rank = len(kernel_shape)
    stride, pad = strides or (1,) * rank, pads or (0,) * 2 * rank
    sizes = [
        (n - 1) * s + k - pad[i] - pad[i + rank]
        for i, (n, s, k) in enumerate(zip(x.shape[2:], stride, kernel_shape, strict=True))
    ]
    wanted = ints(shape) or [*x.shape[:2], *sizes]
    plane, planes = math.prod(sizes), x.shape[0] * x.shape[1]
    flat = x.new_zeros(planes * plane).scatter(0, indices.reshape(-1), x.reshape(-1)).reshape(*x.shape[:2], *sizes)
    return F.pad(flat, flat_pads([0] * rank, [w - n for w, n in zip(wanted[2:], sizes, strict=True)]))


@op("Col2Im", static=(1, 2))
def col2im(
    x: Tensor, image: Any, block: Any, *, dilations: Any = None, pads: Any = None, strides: Any = None
) -> Tensor:
    sizes, kernel = ints(image) or [], ints(block) or []
    rank, pad = len(sizes), list(pads or (0,) * 2 * len(sizes))
    stride, dilation = list(strides or (1,) * rank), list(dilations or (1,) * rank)
    full = [n + pad[i] + pad[i + rank] for i, n in enumerate(sizes)]
    channels = x.shape[1] // math.prod(kernel)
    flat = torch.arange(math.prod(full), device=x.device).reshape(1, 1, *full)
    places = windows_of(flat, kernel, stride, dilation).reshape(-1, math.prod(kernel)).mT  # [kernel, positions]
    out = x.new_zeros(x.shape[0], channels, math.prod(full))
    blocks = x.reshape(x.shape[0], channels, -1)
    index = places.reshape(1, 1, -1).expand(blocks.shape)
    out = out.scatter_add(2, index, blocks).reshape(x.shape[0], channels, *full)
    return F.pad(out, flat_pads([-n for n in pad[:rank]], [-n for n in pad[rank:]]))


@op("LRN")
def lrn(x: Tensor, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> Tensor:
    """ONNX's window begins ``floor((size - 1) / 2)`` channels before; torch's own function differs for even sizes."""
    before = (size - 1) // 2
    flat = (x * x).reshape(x.shape[0], 1, x.shape[1], -1)
    total = F.pad(flat, (0, 0, before, size - 1 - before)).unfold(2, size, 1).sum(-1).reshape(x.shape)
    return x / (bias + alpha / size * total) ** beta
