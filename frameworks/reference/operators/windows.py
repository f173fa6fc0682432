"""Convolutions and pooling: everything that slides a window, over any number of spatial axes.

Windows are strided views (no copy). Convolution copies them once into a matrix and multiplies; pooling and transposed
convolution go over the *taps* of the window, a handful, with whole arrays at each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from deep500.frameworks.reference.operators.table import average, op
from deep500.networks.attributes import Sliding
from deep500.networks.windows import Window, make_transposed, make_window

Array = np.ndarray


def spatial(slices: Iterable[slice]) -> tuple[Any, ...]:
    """Index of a part of the last axes."""
    return (..., *slices)


def padded(x: Array, begin: Sequence[int], end: Sequence[int], value: Any = 0) -> Array:
    """The input with a border on its spatial axes; the input itself where there is none."""
    if not any(begin) and not any(end):
        return x
    sizes = [b + n + e for b, n, e in zip(begin, x.shape[2:], end, strict=True)]
    result = np.full((*x.shape[:2], *sizes), value, x.dtype)
    result[spatial(slice(b, b + n) for b, n in zip(begin, x.shape[2:], strict=True))] = x
    return result


def window_view(x: Array, window: Window) -> Array:
    """A view [N, C, *out, *kernel] of all windows of a padded input."""
    steps = x.strides[2:]
    moves = [n * s for n, s in zip(steps, window.strides, strict=True)]
    inner = [n * d for n, d in zip(steps, window.dilations, strict=True)]
    return np.lib.stride_tricks.as_strided(
        x, (*x.shape[:2], *window.out, *window.kernel), (*x.strides[:2], *moves, *inner), writeable=False
    )


# -- convolution ------------------------------------------------------------------------------------------------------
@op("Conv")
def conv(x: Array, w: Array, b: Array | None = None, *, settings: Sliding) -> Array:
    """Cross-correlation: y[n, m, o] = sum over c, k of w[m, c, k] x[n, c, stride o + dilation k - pad], plus b[m].

    The windows become a matrix, with the longer of output and kernel in its rows: the weight gradient is a convolution
    too, with a kernel of the size of an image and an output of the size of a kernel.
    """
    window, group = make_window(x.shape[2:], w.shape[2:], settings), settings.group
    view = window_view(padded(x, window.begin, window.end), window)
    samples, outs, rank = x.shape[0], w.shape[0], len(window.kernel)
    places, length = math.prod(window.out), math.prod(w.shape[1:])
    view = view.reshape((samples, group, x.shape[1] // group, *view.shape[2:])) if group > 1 else view[:, None]
    weights = w.reshape(group, outs // group, length)
    out_axes, kernel_axes = tuple(range(3, 3 + rank)), tuple(range(3 + rank, 3 + 2 * rank))
    if places >= math.prod(window.kernel):
        columns = view.transpose(0, 1, 2, *kernel_axes, *out_axes).reshape(samples, group, length, places)
        y = np.matmul(weights, columns)
    else:
        rows = view.transpose(1, 0, *out_axes, 2, *kernel_axes).reshape(group, samples * places, length)
        y = np.matmul(rows, weights.transpose(0, 2, 1)).reshape(group, samples, places, outs // group)
        y = y.transpose(1, 0, 3, 2)
    y = y.reshape(samples, outs, *window.out)
    return y if b is None else y + b.reshape(-1, *(1,) * rank)


@op("ConvTranspose")
def conv_transpose(x: Array, w: Array, b: Array | None = None, *, settings: Sliding) -> Array:
    """The gradient of a convolution: every input element adds its multiple of the kernel to the output."""
    samples, rank, inside, group = x.shape[0], x.ndim - 2, x.shape[2:], settings.group
    window = make_transposed(inside, w.shape[2:], settings)
    begin, end = (tuple(max(n, 0) for n in side) for side in (window.begin, window.end))  # beyond the kernels: zeros
    shift = [max(-n, 0) for n in window.begin]
    length = math.prod(w.shape[1:])
    weights = w.reshape(group, w.shape[0] // group, length).transpose(0, 2, 1)
    columns = np.matmul(weights, x.reshape(samples, group, x.shape[1] // group, math.prod(inside)))
    columns = columns.reshape(samples, group * w.shape[1], *window.kernel, *inside)
    full = [o + p + q for o, p, q in zip(window.out, begin, end, strict=True)]
    y = np.zeros((samples, group * w.shape[1], *full), x.dtype)
    for tap in window.taps():
        moved = (slice(p.start + n, p.stop + n, p.step) for p, n in zip(window.part(tap, inside), shift, strict=True))
        y[spatial(moved)] += columns[(slice(None), slice(None), *tap)]
    y = y[spatial(slice(p, p + o) for p, o in zip(begin, window.out, strict=True))]
    return y if b is None else y + b.reshape(-1, *(1,) * rank)


# -- pooling ----------------------------------------------------------------------------------------------------------
@op("MaxPool")
def max_pool(x: Array, *, settings: Sliding, outputs: int = 1) -> Any:
    """Largest element of each window and, as second output, its index in the flattened input."""
    window = make_window(x.shape[2:], settings.kernel_shape, settings)
    lowest = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
    border = padded(x, window.begin, window.whole_end, lowest)
    views = (border[spatial(window.part(tap))] for tap in window.taps())
    best = next(views).copy()
    if outputs == 1:
        for view in views:
            np.maximum(best, view, out=best)
        return best
    small = np.int16 if math.prod(window.kernel) < 2**15 else np.int64
    chosen = np.zeros(best.shape, small)
    for number, view in enumerate(views, 1):
        np.maximum(chosen, (view > best) * small(number), out=chosen)  # the last to be larger is the largest
        np.maximum(best, view, out=best)
    return best, _flat_indices(chosen, window, x.shape, settings.storage_order)


def _flat_indices(chosen: Array, window: Window, shape: tuple[int, ...], column_major: int) -> Array:
    """Index in the whole input of the tap that was chosen in each window."""
    weights, offsets, size = window.places(shape[2:], column_major)
    bounds = zip(window.out, window.strides, window.begin, weights, strict=True)
    start = sum(np.ix_(*[(np.arange(o) * s - p) * w for o, s, p, w in bounds]))
    plane = np.arange(shape[0] * shape[1], dtype=np.int64).reshape(*shape[:2], *(1,) * len(weights)) * size
    return np.array(offsets, np.int64)[chosen] + start + plane


def _tap_sum(x: Array, window: Window) -> Array:
    """Sum of each window of a padded input."""
    total = np.zeros((*x.shape[:2], *window.out), x.dtype)
    for tap in window.taps():
        total += x[spatial(window.part(tap))]
    return total


@op("AveragePool")
def average_pool(x: Array, *, settings: Sliding) -> Array:
    """Mean of each window; padding counts only under ``count_include_pad``, what ceil_mode adds never does."""
    window = make_window(x.shape[2:], settings.kernel_shape, settings)
    total = _tap_sum(padded(x, window.begin, window.whole_end), window)
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    ones = padded(ones, window.begin, window.end, int(bool(settings.count_include_pad)))
    return total / _tap_sum(padded(ones, [0] * len(window.extra), window.extra), window)


@op("LpPool")
def lp_pool(x: Array, *, settings: Sliding) -> Array:
    """(sum of |x|^p)^(1/p) of each window."""
    window = make_window(x.shape[2:], settings.kernel_shape, settings)
    powers = padded(np.abs(x) ** settings.p, window.begin, window.whole_end)
    return _tap_sum(powers, window) ** x.dtype.type(1 / settings.p)


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@op("GlobalAveragePool")
def global_average_pool(x: Array) -> Array:
    """Mean over the spatial axes, which remain with size 1."""
    return average(x, _spatial(x), keepdims=True, dtype=x.dtype)


@op("GlobalLpPool")
def global_lp_pool(x: Array, *, p: int = 2) -> Array:
    """(sum of |x|^p)^(1/p) over the spatial axes, which remain with size 1."""
    return (np.abs(x) ** p).sum(_spatial(x), keepdims=True) ** x.dtype.type(1 / p)


@op("GlobalMaxPool")
def global_max_pool(x: Array) -> Array:
    """Maximum over the spatial axes, which remain with size 1."""
    return x.max(_spatial(x), keepdims=True)
