"""Operators with sliding windows: convolution, pooling, local normalisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from deep500.frameworks.pytorch.operators.reductions import root
from deep500.frameworks.pytorch.operators.table import ints, op
from deep500.networks.attributes import Sliding
from deep500.networks.execution.chains import DOMAIN
from deep500.networks.windows import Window, make_transposed, make_window

Tensor = torch.Tensor
CONV: tuple[Any, ...] = (None, F.conv1d, F.conv2d, F.conv3d)
CONV_TRANSPOSE: tuple[Any, ...] = (None, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
MAX_POOL: tuple[Any, ...] = (None, F.max_pool1d, F.max_pool2d, F.max_pool3d)
AVG_POOL: tuple[Any, ...] = (None, F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)


def flat_pads(begin: Sequence[int], end: Sequence[int]) -> list[int]:
    """Paddings in the order of ``torch.nn.functional.pad``: last axis first."""
    return [n for pair in zip(reversed(begin), reversed(end), strict=True) for n in pair]


@op("Conv")
def conv(x: Tensor, w: Tensor, b: Tensor | None = None, *, settings: Sliding) -> Tensor:
    window = make_window(x.shape[2:], w.shape[2:], settings)
    begin = window.begin
    if begin != window.end:
        x, begin = F.pad(x, flat_pads(begin, window.end)), (0,) * len(begin)
    return CONV[len(begin)](x, w, b, window.strides, begin, window.dilations, settings.group)


@op("ConvTranspose")
def conv_transpose(x: Tensor, w: Tensor, b: Tensor | None = None, *, settings: Sliding) -> Tensor:
    window = make_transposed(x.shape[2:], w.shape[2:], settings)
    begin, end, extra = window.begin, window.end, window.extra
    function, stride, dilation, group = CONV_TRANSPOSE[len(begin)], window.strides, window.dilations, settings.group
    fits = all(e < max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True))
    if begin == end and fits and min(begin) >= 0:
        return function(x, w, b, stride, begin, extra, group, dilation)
    crop = flat_pads([-n for n in begin], [e - n for e, n in zip(extra, end, strict=True)])
    y = F.pad(function(x, w, None, stride, 0, 0, group, dilation), crop)
    return y if b is None else y + b.reshape(-1, *[1] * len(begin))


def windows_of(x: Tensor, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Tensor:
    """A view ``[N, C, *out, *kernel]`` of all windows."""
    for i, (k, s, d) in enumerate(zip(kernel, stride, dilation, strict=True)):
        x = x.unfold(i + 2, d * (k - 1) + 1, s)[..., ::d]
    return x


@op("MaxPool")
def max_pool(x: Tensor, *, settings: Sliding, outputs: tuple[bool, ...] = (True,)) -> Any:
    window = make_window(x.shape[2:], settings.kernel_shape, settings)
    kernel, begin, end, inside = window.kernel, window.begin, window.whole_end, window.begin
    dtype, indices = x.dtype, len(outputs) > 1
    y = x if x.is_floating_point() else x.to(torch.float64)
    if begin != end or any(2 * b > k for b, k in zip(begin, kernel, strict=True)):
        y, inside = F.pad(y, flat_pads(begin, end), value=float("-inf")), (0,) * len(kernel)
    padded = y.shape[2:]
    y = MAX_POOL[len(kernel)](y, kernel, window.strides, inside, window.dilations, False, indices)
    if not indices:
        return y.to(dtype)
    shift = [b - i for b, i in zip(begin, inside, strict=True)]
    return y[0].to(dtype), _flat_indices(y[1], padded, shift, x.shape, settings.storage_order)


def _flat_indices(index: Tensor, padded: Sequence[int], shift: Sequence[int], shape: Any, column_major: int) -> Tensor:
    """torch's indices count inside one padded plane, ONNX's over the whole tensor."""
    planes = torch.arange(shape[0] * shape[1], device=index.device).reshape(shape[0], shape[1], *[1] * (len(shape) - 2))
    if tuple(padded) == tuple(shape[2:]) and not any(shift) and not column_major:
        return index + planes * math.prod(padded)
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
    return position + planes * step


@op("AveragePool")
def average_pool(x: Tensor, *, settings: Sliding) -> Tensor:
    window = make_window(x.shape[2:], settings.kernel_shape, settings)
    kernel, begin, padding = window.kernel, window.begin, settings.count_include_pad
    simple = begin == window.end and set(window.dilations) == {1} and not any(window.extra)
    if simple and all(2 * b <= k for b, k in zip(begin, kernel, strict=True)):
        return AVG_POOL[len(kernel)](x, kernel, window.strides, begin, False, bool(padding))
    inside, beyond = flat_pads(begin, window.end), flat_pads([0] * len(kernel), window.extra)
    ones = x.new_ones((1, 1, *x.shape[2:]))
    counted = F.pad(F.pad(ones, inside, value=float(padding)), beyond)
    return _window_sum(F.pad(F.pad(x, inside), beyond), window) / _window_sum(counted, window)


def _window_sum(x: Tensor, window: Window) -> Tensor:
    windows = windows_of(x, window.kernel, window.strides, window.dilations)
    return windows.sum(tuple(range(-len(window.kernel), 0)))


@op("LpPool")
def lp_pool(x: Tensor, *, settings: Sliding) -> Tensor:
    window = make_window(x.shape[2:], settings.kernel_shape, settings)
    powers = F.pad(x.abs() ** settings.p, flat_pads(window.begin, window.whole_end))
    return root(_window_sum(powers, window), settings.p)


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
def max_unpool(x: Tensor, indices: Tensor, shape: Any = None, *, settings: Sliding) -> Tensor:
    sizes = make_transposed(x.shape[2:], settings.kernel_shape, settings).out
    after = ints(shape) or [*x.shape[:2], *sizes]
    plane, planes = math.prod(sizes), x.shape[0] * x.shape[1]
    flat = x.new_zeros(planes * plane).scatter(0, indices.reshape(-1), x.reshape(-1)).reshape(*x.shape[:2], *sizes)
    return F.pad(flat, flat_pads([0] * len(sizes), [w - n for w, n in zip(after[2:], sizes, strict=True)]))


@op("Col2Im", static=(1, 2))
def col2im(x: Tensor, image: Any, block: Any, *, settings: Sliding) -> Tensor:
    sizes, kernel = ints(image) or [], ints(block) or []
    window = make_window(sizes, kernel, settings)
    full = [n + b + e for n, b, e in zip(sizes, window.begin, window.end, strict=True)]
    channels = x.shape[1] // math.prod(kernel)
    flat = torch.arange(math.prod(full), device=x.device).reshape(1, 1, *full)
    windows = windows_of(flat, kernel, window.strides, window.dilations)
    places = windows.reshape(-1, math.prod(kernel)).mT  # [kernel, positions]
    out = x.new_zeros(x.shape[0], channels, math.prod(full))
    blocks = x.reshape(x.shape[0], channels, -1)
    index = places.reshape(1, 1, -1).expand(blocks.shape)
    out = out.scatter_add(2, index, blocks).reshape(x.shape[0], channels, *full)
    return F.pad(out, flat_pads([-n for n in window.begin], [-n for n in window.end]))


@op("LRN")
def lrn(x: Tensor, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> Tensor:
    """ONNX's window begins ``floor((size - 1) / 2)`` channels before; torch's own function differs for even sizes."""
    before = (size - 1) // 2
    flat = (x * x).reshape(x.shape[0], 1, x.shape[1], -1)
    total = F.pad(flat, (0, 0, before, size - 1 - before)).unfold(2, size, 1).sum(-1).reshape(x.shape)
    return x / (bias + alpha / size * total) ** beta
