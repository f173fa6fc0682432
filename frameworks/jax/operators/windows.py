"""Operators with sliding windows: convolution, pooling, local normalisation. Sizes are known while JAX traces."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from deep500.frameworks.jax.dtypes import is_float
from deep500.frameworks.jax.operators.reductions import root
from deep500.frameworks.jax.operators.table import Array, ints, op


class Window(NamedTuple):
    """A sliding window, one number per spatial axis; ``extra`` is what ``ceil_mode`` adds to the padding's end."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    extra: tuple[int, ...]
    out: tuple[int, ...]

    def padding(self) -> list[tuple[int, int]]:
        """Of the spatial axes, with the extra."""
        return [(b, e + more) for b, e, more in zip(self.begin, self.end, self.extra, strict=True)]


def window(
    sizes: Sequence[int], kernel: Sequence[int], strides: Any, pads: Any, dilations: Any, auto_pad: str, ceil: int = 0
) -> Window:
    """Resolve ONNX's attributes for an input of this spatial size."""
    rank = len(kernel)
    stride, dilation = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    both = tuple(pads or (0,) * 2 * rank) if auto_pad == "NOTSET" else (0,) * 2 * rank
    begin, end = both[:rank], both[rank:]
    if auto_pad.startswith("SAME"):
        total = [max((-(-n // s) - 1) * s + r - n, 0) for n, s, r in zip(sizes, stride, reach, strict=True)]
        small, large = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        begin, end = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    out, extra = [], []
    for n, s, r, b, e in zip(sizes, stride, reach, begin, end, strict=True):
        room = n + b + e - r
        count = (-(-room // s) if ceil else room // s) + 1
        if ceil and (count - 1) * s >= n + b:  # the last window must begin inside the data or its begin padding
            count -= 1
        out.append(count)
        extra.append(max((count - 1) * s - room, 0))
    return Window(tuple(kernel), stride, dilation, begin, end, tuple(extra), tuple(out))


@op("Conv")
def conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Array:
    win = window(x.shape[2:], w.shape[2:], strides, pads, dilations, auto_pad)
    y = lax.conv_general_dilated(
        x,
        w,
        win.stride,
        win.padding(),
        rhs_dilation=win.dilation,
        feature_group_count=group,
        dimension_numbers=lax.ConvDimensionNumbers(*[tuple(range(x.ndim))] * 3),
    )
    return y if b is None else y + b.reshape((1, -1) + (1,) * (x.ndim - 2))


@op("ConvTranspose")
def conv_transpose(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Any = None,
    group: int = 1,
    kernel_shape: Any = None,
    output_padding: Any = None,
    output_shape: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Array:
    """A convolution of the input, stretched by the stride, with the mirrored kernel."""
    rank, inside, kernel = x.ndim - 2, x.shape[2:], w.shape[2:]
    stride, dilation = tuple(strides or (1,) * rank), tuple(dilations or (1,) * rank)
    extra = tuple(output_padding or (0,) * rank)
    both = tuple(pads or (0,) * 2 * rank) if auto_pad == "NOTSET" else (0,) * 2 * rank
    begin, end = both[:rank], both[rank:]
    if output_shape or auto_pad.startswith("SAME"):
        full = [
            s * (n - 1) + e + d * (k - 1) + 1
            for s, n, e, d, k in zip(stride, inside, extra, dilation, kernel, strict=True)
        ]
        wanted = tuple(output_shape)[-rank:] if output_shape else [n * s for n, s in zip(inside, stride, strict=True)]
        total = [f - o for f, o in zip(full, wanted, strict=True)]
        small, large = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        begin, end = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    padding = [(r - p, r - q + e) for r, p, q, e in zip(reach, begin, end, extra, strict=True)]
    weights = (
        w.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2).reshape(-1, w.shape[0] // group, *kernel)
    )
    y = lax.conv_general_dilated(
        x,
        jnp.flip(weights, tuple(range(2, x.ndim))),
        (1,) * rank,
        padding,
        lhs_dilation=stride,
        rhs_dilation=dilation,
        feature_group_count=group,
        dimension_numbers=lax.ConvDimensionNumbers(*[tuple(range(x.ndim))] * 3),
    )
    return y if b is None else y + b.reshape((1, -1) + (1,) * rank)


# -- pooling ----------------------------------------------------------------------------------------------------------
def _reduce(x: Array, win: Window, start: Any, function: Any) -> Array:
    return lax.reduce_window(
        x,
        np.array(start, x.dtype),
        function,
        (1, 1, *win.kernel),
        (1, 1, *win.stride),
        [(0, 0), (0, 0), *win.padding()],
        window_dilation=(1, 1, *win.dilation),
    )


def taps(x: Array, win: Window) -> list[Array]:
    """What each place of the window reads in a padded input, for all windows."""
    read = []
    for tap in itertools.product(*map(range, win.kernel)):
        parts = [
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, s, o in zip(tap, win.dilation, win.stride, win.out, strict=True)
        ]
        read.append(x[(..., *parts)])
    return read


@op("MaxPool")
def max_pool(
    x: Array,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    pads: Any = None,
    storage_order: int = 0,
    strides: Any = None,
    outputs: tuple[bool, ...] = (True,),
    context: Any,
) -> Any:
    win = window(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    lowest = -np.inf if is_float(x) else np.iinfo(x.dtype).min
    if len(outputs) == 1 and (set(win.dilation) == {1} or not context.training):  # JAX has no gradient of dilated ones
        return _reduce(x, win, lowest, lax.max)
    padded = jnp.pad(x, [(0, 0), (0, 0), *win.padding()], constant_values=lowest)
    views = taps(padded, win)
    y, chosen = views[0], jnp.zeros(views[0].shape, np.int64)
    for number, view in enumerate(views[1:], 1):  # the first of equals stays; whatever is not a number is the largest
        larger = (view > y) | jnp.isnan(view)
        y, chosen = jnp.where(larger, view, y), jnp.where(larger, number, chosen)
    return y if len(outputs) == 1 else (y, _flat_indices(chosen, win, x.shape, storage_order))


def _flat_indices(chosen: Array, win: Window, shape: Sequence[int], column_major: int) -> Array:
    """Index in the whole input, flattened, of the place that was chosen in each window."""
    size = shape[2:]
    weight, product = [0] * len(size), 1
    for axis in range(len(size)) if column_major else reversed(range(len(size))):
        weight[axis], product = product, product * size[axis]
    offset = np.array(
        [
            sum(t * d * w for t, d, w in zip(tap, win.dilation, weight, strict=True))
            for tap in itertools.product(*map(range, win.kernel))
        ],
        np.int64,
    )
    starts = [(np.arange(o) * s - b) * w for o, s, b, w in zip(win.out, win.stride, win.begin, weight, strict=True)]
    planes = np.arange(shape[0] * shape[1]).reshape(shape[0], shape[1], *[1] * len(size)) * product
    return jnp.asarray(offset)[chosen] + (functools.reduce(np.add, np.ix_(*starts)) + planes)


@op("AveragePool")
def average_pool(
    x: Array,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Array:
    """Mean of each window; padding counts only under ``count_include_pad``, what ceil_mode adds never does."""
    win = window(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    counts = np.ones(())
    for n, k, s, d, b, e, o in zip(x.shape[2:], *win[:5], win.out, strict=True):
        at = np.arange(o)[:, None] * s - b + np.arange(k) * d
        low, high = (-b, n + e) if count_include_pad else (0, n)
        counts = np.multiply.outer(counts, ((at >= low) & (at < high)).sum(1))
    return _reduce(x, win, 0, lax.add) / counts.astype(x.dtype)


@op("LpPool")
def lp_pool(
    x: Array,
    *,
    kernel_shape: Any,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Any = None,
    p: int = 2,
    pads: Any = None,
    strides: Any = None,
) -> Array:
    win = window(x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    return root(_reduce(jnp.abs(x) ** p, win, 0, lax.add), p)


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@op("GlobalAveragePool")
def global_average_pool(x: Array) -> Array:
    return x.mean(_spatial(x), keepdims=True)


@op("GlobalMaxPool")
def global_max_pool(x: Array) -> Array:
    return x.max(_spatial(x), keepdims=True)


@op("GlobalLpPool")
def global_lp_pool(x: Array, *, p: int = 2) -> Array:
    return root((jnp.abs(x) ** p).sum(_spatial(x), keepdims=True), p)


@op("MaxUnpool", static=(2,))
def max_unpool(
    x: Array, indices: Array, shape: Any = None, *, kernel_shape: Any, pads: Any = None, strides: Any = None
) -> Array:
    rank = len(kernel_shape)
    stride, pad = strides or (1,) * rank, pads or (0,) * 2 * rank
    sizes = [
        (n - 1) * s + k - pad[i] - pad[i + rank]
        for i, (n, s, k) in enumerate(zip(x.shape[2:], stride, kernel_shape, strict=True))
    ]
    wanted = ints(shape) or [*x.shape[:2], *sizes]
    flat = jnp.zeros(math.prod(x.shape[:2]) * math.prod(sizes), x.dtype).at[indices.reshape(-1)].set(x.reshape(-1))
    room = [(0, w - n) for w, n in zip(wanted[2:], sizes, strict=True)]
    return jnp.pad(flat.reshape(*x.shape[:2], *sizes), [(0, 0), (0, 0), *room])


@op("Col2Im", static=(1, 2))
def col2im(x: Array, image: Any, block: Any, *, dilations: Any = None, pads: Any = None, strides: Any = None) -> Array:
    """Add every column's elements where a window would have read them."""
    sizes, kernel = ints(image) or [], ints(block) or []
    win = window(sizes, kernel, strides, pads, dilations, "NOTSET")
    full = [b + n + e for b, n, e in zip(win.begin, sizes, win.end, strict=True)]
    channels = x.shape[1] // math.prod(kernel)
    columns = x.reshape(x.shape[0], channels, math.prod(kernel), *win.out)
    y = jnp.zeros((x.shape[0], channels, *full), x.dtype)
    for number, tap in enumerate(itertools.product(*map(range, kernel))):
        parts = [
            slice(t * d, t * d + (o - 1) * s + 1, s)
            for t, d, s, o in zip(tap, win.dilation, win.stride, win.out, strict=True)
        ]
        y = y.at[(..., *parts)].add(columns[:, :, number])
    return y[(..., *(slice(b, b + n) for b, n in zip(win.begin, sizes, strict=True)))]


@op("LRN")
def lrn(x: Array, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> Array:
    """The window begins ``floor((size - 1) / 2)`` channels before."""
    before = (size - 1) // 2
    rest = [(0, 0)] * (x.ndim - 2)
    total = lax.reduce_window(
        x * x,
        np.zeros((), x.dtype),
        lax.add,
        (1, size) + (1,) * (x.ndim - 2),
        (1,) * x.ndim,
        [(0, 0), (before, size - 1 - before), *rest],
    )
    return x / (bias + alpha / size * total) ** beta


__all__ = ["Window", "conv", "taps", "window"]
