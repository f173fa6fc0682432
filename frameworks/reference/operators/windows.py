"""Convolutions and pooling: everything that slides a window, over any number of spatial axes.

Windows are strided views (no copy). Convolution copies them once into a matrix and multiplies; pooling and transposed
convolution go over the *taps* of the window, a handful, with whole arrays at each.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from deep500.frameworks.reference.operators.table import average, op

Array = np.ndarray
Ints = Sequence[int] | None


class Window(NamedTuple):
    """A sliding window, one number per spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]  # padding before
    end: tuple[int, ...]  # padding after
    out: tuple[int, ...]  # how many windows fit
    excess: tuple[int, ...]  # by how much the last window sticks out of the padded input (ceil_mode)

    def taps(self) -> Iterator[tuple[int, ...]]:
        """Every place in the window, the last axis fastest."""
        return itertools.product(*map(range, self.kernel))

    def part(self, tap: Sequence[int], out: Sequence[int] | None = None) -> tuple[Any, ...]:
        """Index of what this tap of all windows reads in a padded input."""
        return spatial(
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, s, o in zip(tap, self.dilations, self.strides, self.out if out is None else out, strict=True)
        )


def spatial(slices: Iterable[slice]) -> tuple[Any, ...]:
    """Index of a part of the last axes."""
    return (..., *slices)


def make_window(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Ints,
    dilations: Ints,
    pads: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
) -> Window:
    """Resolve ONNX's attributes for an input of this spatial size."""
    rank = len(kernel)
    strides, dilations = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    if auto_pad.startswith("SAME"):
        total = [max((-(-n // s) - 1) * s + w - n, 0) for n, s, w in zip(size, strides, span, strict=True)]
        less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        begin, end = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    else:
        both = tuple(pads or (0,) * 2 * rank) if auto_pad == "NOTSET" else (0,) * 2 * rank
        begin, end = both[:rank], both[rank:]
    out, excess = [], []
    for n, w, s, b, e in zip(size, span, strides, begin, end, strict=True):
        free = n + b + e - w
        count = (-(-free // s) if ceil_mode else free // s) + 1
        if ceil_mode and (count - 1) * s >= n + b:  # a window must not begin behind the input
            count -= 1
        out.append(max(count, 0))
        excess.append(max((count - 1) * s + w - (n + b + e), 0))
    return Window(tuple(kernel), strides, dilations, begin, end, tuple(out), tuple(excess))


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
def conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Cross-correlation: y[n, m, o] = sum over c, k of w[m, c, k] x[n, c, stride o + dilation k - pad], plus b[m].

    The windows become a matrix, with the longer of output and kernel in its rows: the weight gradient is a convolution
    too, with a kernel of the size of an image and an output of the size of a kernel.
    """
    window = make_window(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
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
def conv_transpose(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    output_padding: Ints = None,
    output_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """The gradient of a convolution: every input element adds its multiple of the kernel to the output."""
    samples, rank, inside = x.shape[0], x.ndim - 2, x.shape[2:]
    window = _transposed(inside, w.shape[2:], strides, dilations, pads, output_padding, output_shape, auto_pad)
    length = math.prod(w.shape[1:])
    weights = w.reshape(group, w.shape[0] // group, length).transpose(0, 2, 1)
    columns = np.matmul(weights, x.reshape(samples, group, x.shape[1] // group, -1))
    columns = columns.reshape(samples, group * w.shape[1], *window.kernel, *inside)
    full = [o + p + q for o, p, q in zip(window.out, window.begin, window.end, strict=True)]
    y = np.zeros((samples, group * w.shape[1], *full), x.dtype)
    for tap in window.taps():
        y[window.part(tap, inside)] += columns[(slice(None), slice(None), *tap)]
    y = y[spatial(slice(p, p + o) for p, o in zip(window.begin, window.out, strict=True))]
    return y if b is None else y + b.reshape(-1, *(1,) * rank)


def _transposed(
    inside: Sequence[int],
    kernel: Sequence[int],
    strides: Ints,
    dilations: Ints,
    pads: Ints,
    extra: Ints,
    shape: Ints,
    auto_pad: str,
) -> Window:
    """Window of a transposed convolution; ``out`` is its output's size, ``begin`` and ``end`` are what is cut away."""
    rank = len(kernel)
    strides, dilations = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    extra = tuple(extra or (0,) * rank)
    full = [
        s * (n - 1) + e + (k - 1) * d + 1
        for s, n, e, k, d in zip(strides, inside, extra, kernel, dilations, strict=True)
    ]
    if shape is None and auto_pad.startswith("SAME"):
        shape = [n * s for n, s in zip(inside, strides, strict=True)]
    if shape is not None:
        total = [f - o for f, o in zip(full, shape[-rank:], strict=True)]
        less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        begin, end = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    else:
        both = tuple(pads or (0,) * 2 * rank) if auto_pad != "VALID" else (0,) * 2 * rank
        begin, end = both[:rank], both[rank:]
    out = tuple(f - p - q for f, p, q in zip(full, begin, end, strict=True))
    if min(begin + end, default=0) < 0:  # an output larger than what the kernels reach: zeros behind
        end = tuple(max(q, 0) for q in end)
        begin = tuple(max(p, 0) for p in begin)
    return Window(tuple(kernel), strides, dilations, begin, end, out, (0,) * rank)


# -- pooling ----------------------------------------------------------------------------------------------------------
@op("MaxPool")
def max_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints = None,
    pads: Ints = None,
    storage_order: int = 0,
    strides: Ints = None,
    outputs: int = 1,
) -> Any:
    """Largest element of each window and, as second output, its index in the flattened input."""
    window = make_window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    lowest = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
    border = padded(x, window.begin, [e + more for e, more in zip(window.end, window.excess, strict=True)], lowest)
    views = (border[window.part(tap)] for tap in window.taps())
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
    return best, _flat_indices(chosen, window, x.shape, storage_order)


def _flat_indices(chosen: Array, window: Window, shape: tuple[int, ...], column_major: int) -> Array:
    """Index in the whole input of the tap that was chosen in each window."""
    size = shape[2:]
    order = range(len(size)) if column_major else range(len(size))[::-1]
    weight, product = [0] * len(size), 1
    for axis in order:
        weight[axis], product = product, product * size[axis]
    tap_offset = np.array(
        [sum(t * d * w for t, d, w in zip(tap, window.dilations, weight, strict=True)) for tap in window.taps()],
        np.int64,
    )
    starts = [
        (np.arange(o) * s - p) * w for o, s, p, w in zip(window.out, window.strides, window.begin, weight, strict=True)
    ]
    start = sum(np.ix_(*starts))
    plane = np.arange(shape[0] * shape[1], dtype=np.int64).reshape(*shape[:2], *(1,) * len(size)) * product
    return tap_offset[chosen] + start + plane


def _tap_sum(x: Array, window: Window) -> Array:
    """Sum of each window of a padded input."""
    total = np.zeros((*x.shape[:2], *window.out), x.dtype)
    for tap in window.taps():
        total += x[window.part(tap)]
    return total


@op("AveragePool")
def average_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Mean of each window; padding counts only under ``count_include_pad``, what ceil_mode adds never does."""
    window = make_window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    end = [e + more for e, more in zip(window.end, window.excess, strict=True)]
    total = _tap_sum(padded(x, window.begin, end), window)
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    ones = padded(ones, window.begin, window.end, int(bool(count_include_pad)))
    return total / _tap_sum(padded(ones, [0] * len(end), window.excess), window)


@op("LpPool")
def lp_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    p: int = 2,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """(sum of |x|^p)^(1/p) of each window."""
    window = make_window(x.shape[2:], kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    end = [e + more for e, more in zip(window.end, window.excess, strict=True)]
    return _tap_sum(padded(np.abs(x) ** p, window.begin, end), window) ** x.dtype.type(1 / p)


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@op("GlobalAveragePool")
def global_average_pool(x: Array) -> Array:
    """Mean over the spatial axes, which remain with size 1."""
    return average(x, _spatial(x), keepdims=True, dtype=x.dtype)


@op("GlobalMaxPool")
def global_max_pool(x: Array) -> Array:
    """Maximum over the spatial axes, which remain with size 1."""
    return x.max(_spatial(x), keepdims=True)
