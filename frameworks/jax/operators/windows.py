"""Operators with sliding windows: convolution, pooling, local normalisation. Sizes are known while JAX traces."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from deep500.frameworks.jax.dtypes import is_float
from deep500.frameworks.jax.operators.reductions import root
from deep500.frameworks.jax.operators.table import Array, ints, op
from deep500.networks.attributes import Sliding
from deep500.networks.windows import Window, make_transposed, make_window


def _bias(b: Array | None, rank: int) -> Any:
    """A bias so that it broadcasts against ``[N, C, *sizes]``."""
    return b if b is None else b.reshape((1, -1) + (1,) * (rank - 2))


@op("Conv")
def conv(x: Array, w: Array, b: Array | None = None, *, settings: Sliding) -> Array:
    win = make_window(x.shape[2:], w.shape[2:], settings)
    y = lax.conv_general_dilated(
        x,
        w,
        win.strides,
        win.padding(),
        rhs_dilation=win.dilations,
        feature_group_count=settings.group,
        dimension_numbers=lax.ConvDimensionNumbers(*[tuple(range(x.ndim))] * 3),
    )
    return y if b is None else y + _bias(b, x.ndim)


@op("ConvTranspose")
def conv_transpose(x: Array, w: Array, b: Array | None = None, *, settings: Sliding) -> Array:
    """A convolution of the input, stretched by the stride, with the mirrored kernel."""
    group, kernel, win = settings.group, w.shape[2:], make_transposed(x.shape[2:], w.shape[2:], settings)
    sides = zip(win.reach, win.begin, win.end, win.extra, strict=True)
    padding = [(r - 1 - p, r - 1 - q + e) for r, p, q, e in sides]
    weights = (
        w.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2).reshape(-1, w.shape[0] // group, *kernel)
    )
    y = lax.conv_general_dilated(
        x,
        jnp.flip(weights, tuple(range(2, x.ndim))),
        (1,) * len(kernel),
        padding,
        lhs_dilation=win.strides,
        rhs_dilation=win.dilations,
        feature_group_count=group,
        dimension_numbers=lax.ConvDimensionNumbers(*[tuple(range(x.ndim))] * 3),
    )
    return y if b is None else y + _bias(b, x.ndim)


# -- pooling ----------------------------------------------------------------------------------------------------------
def _reduce(x: Array, win: Window, start: Any, function: Any) -> Array:
    return lax.reduce_window(
        x,
        np.array(start, x.dtype),
        function,
        (1, 1, *win.kernel),
        (1, 1, *win.strides),
        [(0, 0), (0, 0), *win.padding()],
        window_dilation=(1, 1, *win.dilations),
    )


def taps(x: Array, win: Window) -> list[Array]:
    """Values that each place of the window reads in a padded input, for all windows."""
    return [x[(..., *win.part(tap))] for tap in win.taps()]


@op("MaxPool")
def max_pool(x: Array, *, settings: Sliding, outputs: tuple[bool, ...] = (True,), context: Any) -> Any:
    win = make_window(x.shape[2:], settings.kernel_shape, settings)
    lowest = -np.inf if is_float(x) else np.iinfo(x.dtype).min
    plain = set(win.dilations) == {1} or not context.training  # JAX has no gradient of dilated ones
    if len(outputs) == 1 and plain:
        return _reduce(x, win, lowest, lax.max)
    padded = jnp.pad(x, [(0, 0), (0, 0), *win.padding()], constant_values=lowest)
    views = taps(padded, win)
    y, chosen = views[0], jnp.zeros(views[0].shape, np.int64)
    for number, view in enumerate(views[1:], 1):  # the first of equals stays; whatever is not a number is the largest
        larger = (view > y) | jnp.isnan(view)
        y, chosen = jnp.where(larger, view, y), jnp.where(larger, number, chosen)
    return y if len(outputs) == 1 else (y, _flat_indices(chosen, win, x.shape, settings.storage_order))


def _flat_indices(chosen: Array, win: Window, shape: Sequence[int], column_major: int) -> Array:
    """Index in the whole input, flattened, of the place that was chosen in each window."""
    weights, offsets, plane = win.places(shape[2:], column_major)
    starts = [(np.arange(o) * s - b) * w for o, s, b, w in zip(win.out, win.strides, win.begin, weights, strict=True)]
    planes = np.arange(shape[0] * shape[1]).reshape(shape[0], shape[1], *[1] * len(weights)) * plane
    return jnp.asarray(np.array(offsets, np.int64))[chosen] + (functools.reduce(np.add, np.ix_(*starts)) + planes)


@op("AveragePool")
def average_pool(x: Array, *, settings: Sliding) -> Array:
    """Mean of each window; padding counts only under ``count_include_pad``, what ceil_mode adds never does."""
    win = make_window(x.shape[2:], settings.kernel_shape, settings)
    counts = np.ones(())
    for n, k, s, d, b, e, o in zip(x.shape[2:], *win[:5], win.out, strict=True):
        at = np.arange(o)[:, None] * s - b + np.arange(k) * d
        low, high = (-b, n + e) if settings.count_include_pad else (0, n)
        counts = np.multiply.outer(counts, ((at >= low) & (at < high)).sum(1))
    return _reduce(x, win, 0, lax.add) / counts.astype(x.dtype)


@op("LpPool")
def lp_pool(x: Array, *, settings: Sliding) -> Array:
    win = make_window(x.shape[2:], settings.kernel_shape, settings)
    return root(_reduce(jnp.abs(x) ** settings.p, win, 0, lax.add), settings.p)


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
def max_unpool(x: Array, indices: Array, shape: Any = None, *, settings: Sliding) -> Array:
    sizes = make_transposed(x.shape[2:], settings.kernel_shape, settings).out
    after = ints(shape) or [*x.shape[:2], *sizes]
    flat = jnp.zeros(math.prod(x.shape[:2]) * math.prod(sizes), x.dtype).at[indices.reshape(-1)].set(x.reshape(-1))
    room = [(0, w - n) for w, n in zip(after[2:], sizes, strict=True)]
    return jnp.pad(flat.reshape(*x.shape[:2], *sizes), [(0, 0), (0, 0), *room])


@op("Col2Im", static=(1, 2))
def col2im(x: Array, image: Any, block: Any, *, settings: Sliding) -> Array:
    """Add every column's elements where a window would have read them."""
    sizes, kernel = ints(image) or [], ints(block) or []
    win = make_window(sizes, kernel, settings)
    full = [b + n + e for b, n, e in zip(win.begin, sizes, win.end, strict=True)]
    channels = x.shape[1] // math.prod(kernel)
    columns = x.reshape(x.shape[0], channels, math.prod(kernel), *win.out)
    y = jnp.zeros((x.shape[0], channels, *full), x.dtype)
    for number, tap in enumerate(win.taps()):
        y = y.at[(..., *win.part(tap))].add(columns[:, :, number])
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
