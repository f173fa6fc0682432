"""Operators with sliding windows, on channels that come last: convolution, pooling, local normalisation."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deep500.frameworks.tensorflow.operators.dilated import dilated_conv, dilated_transpose
from deep500.frameworks.tensorflow.operators.reductions import root
from deep500.frameworks.tensorflow.operators.table import ints, number, op, sizes, static_sizes
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.attributes import Sliding
from deep500.networks.windows import Window, make_transposed, make_window

Tensor = Any


def resolve(x: Tensor, kernel: Sequence[int], settings: Sliding) -> Window:
    """The window over an input whose channels come last; NeedsValue where its sizes decide and are unknown."""
    if settings.ceil_mode or settings.auto_pad.startswith("SAME"):
        static_sizes(x, *range(1, len(kernel) + 1))
    return make_window(x.shape.as_list()[1:-1], kernel, settings)


def padded(x: Tensor, begin: Sequence[int], end: Sequence[int], value: Any = 0) -> Tensor:
    """The input with a border on its spatial axes; the input itself where there is none."""
    if not any(begin) and not any(end):
        return x
    pairs = [(0, 0), *zip(begin, end, strict=True), (0, 0)]
    return tf.pad(x, pairs, constant_values=number(value, x))


# -- convolution ------------------------------------------------------------------------------------------------------
def kernel_last(w: Tensor) -> Tensor:
    """ONNX's kernel [outputs, inputs, *size] as TensorFlow's [*size, inputs, outputs]."""
    return tf.transpose(w, [*range(2, w.shape.rank), 1, 0])


def kernel_first(w: Tensor) -> Tensor:
    """TensorFlow's kernel [*size, inputs, outputs] as ONNX's [outputs, inputs, *size]."""
    rank = w.shape.rank
    return tf.transpose(w, [rank - 1, rank - 2, *range(rank - 2)])


def _is_dilated(window: Window) -> bool:
    """Whether there is anything between the taps."""
    return any(d > 1 and k > 1 for d, k in zip(window.dilations, window.kernel, strict=True))


def _padding(window: Window) -> Any:
    """TensorFlow's word for the padding, or a list of pairs."""
    if not any(window.begin) and not any(window.end):
        return "VALID"
    same = all(
        s == 1 and b == (r - 1) // 2 and e == r - 1 - b
        for s, b, e, r in zip(window.strides, window.begin, window.end, window.reach, strict=True)
    )
    return "SAME" if same else [(0, 0), *zip(window.begin, window.end, strict=True), (0, 0)]


@op("Conv", layout="conv")
def conv(x: Tensor, w: Tensor, b: Tensor | None = None, *, settings: Sliding) -> Tensor:
    """The kernel comes as [*size, inputs, outputs]."""
    half = x.dtype if x.dtype in (tf.float16, tf.bfloat16) or x.shape[0] == 0 else None
    if half:  # sums of half precision are taken in single; an empty batch keeps its shape in float32's kernels
        x, w, b = (t if t is None else tf.cast(t, tf.float64 if x.shape[0] == 0 else tf.float32) for t in (x, w, b))
    window, group = resolve(x, static_sizes(w)[:-2], settings), settings.group
    flat = len(window.kernel) == 1
    if flat:  # an image of height 1
        window = Window(*((n, *values) for n, values in zip((1, 1, 1, 0, 0, 0), window[:6], strict=True)))
        x, w = tf.expand_dims(x, 1), tf.expand_dims(w, 0)
    if _is_dilated(window):
        y = _dilated(x, w, window, group)
    else:
        padding = _padding(window)
        if isinstance(padding, list) and (len(window.kernel) == 3 or group > 1):
            x, padding = padded(x, window.begin, window.end), "VALID"
        y = _conv(x, w, window.strides, padding, group)
    y = tf.squeeze(y, 1) if flat else y
    y = y if b is None else tf.nn.bias_add(y, b)
    return tf.cast(y, half) if half else y


def _dilated(x: Tensor, kernel: Tensor, window: Window, group: int) -> Tensor:
    """A dilated convolution; one of each channel by itself is space-to-batch: 0.3 of the time of taps one by one."""
    channels, outputs = static_sizes(x, -1)[0], static_sizes(kernel, -1)[0]
    if group > 1 and group == channels and window.strides == (1, 1):
        kernel = tf.reshape(kernel, [*window.kernel, group, outputs // group])
        x = padded(x, window.begin, window.end)
        return tf.nn.depthwise_conv2d(x, kernel, (1, 1, 1, 1), "VALID", dilations=window.dilations)
    parts = zip(tf.split(x, group, -1), tf.split(kernel, group, -1), strict=True)
    return tf.concat(
        [dilated_conv(p, k, window.strides, window.begin, window.end, window.dilations) for p, k in parts], -1
    )


def _conv(x: Tensor, kernel: Tensor, strides: Any, padding: Any, group: int) -> Tensor:
    rank = len(strides)
    if group == 1:  # not tf.nn.convolution, whose gradient fails in three dimensions where nothing is traced
        return (tf.nn.conv2d if rank == 2 else tf.nn.conv3d)(x, kernel, [1, *strides, 1], padding)
    channels, outputs = static_sizes(x, -1)[0], static_sizes(kernel, -1)[0]
    if rank == 2 and group == channels and strides[0] == strides[1]:  # each channel by itself
        taps = kernel.shape.as_list()[:2]
        kernel = tf.reshape(kernel, [*taps, group, outputs // group])
        return tf.nn.depthwise_conv2d(x, kernel, [1, *strides, 1], padding)
    parts = zip(tf.split(x, group, -1), tf.split(kernel, group, -1), strict=True)
    return tf.concat([_conv(p, k, strides, padding, 1) for p, k in parts], -1)


@op("ConvTranspose", layout="last")
def conv_transpose(x: Tensor, w: Tensor, b: Tensor | None = None, *, settings: Sliding) -> Tensor:
    """The gradient of a convolution without padding, of which pads are cut away (or zeros added behind)."""
    taps, places = static_sizes(w)[2:], sizes(x)[1:-1]
    shape = ints(settings.output_shape)
    if shape is None and settings.auto_pad.startswith("SAME"):
        static_sizes(x, *range(1, len(taps) + 1))
    window, group = make_transposed(places, taps, settings._replace(output_shape=shape)), settings.group
    full = [s * (n - 1) + r for s, n, r in zip(window.strides, places, window.reach, strict=True)]
    parts = zip(tf.split(x, group, -1), tf.split(w, group, 0), strict=True)
    y = tf.concat([_full_transpose(p, k, window.strides, window.dilations, full) for p, k in parts], -1)
    y = _crop(y, window.begin, [e - m for e, m in zip(window.end, window.extra, strict=True)])
    return y if b is None else tf.nn.bias_add(y, b)


def _full_transpose(x: Tensor, w: Tensor, stride: Any, dilation: Any, full: list[Any]) -> Tensor:
    rank = len(stride)
    kernel = kernel_last(w)  # [*size, outputs, inputs], as the gradient wants it
    if any(d > 1 and k > 1 for d, k in zip(dilation, kernel.shape.as_list(), strict=False)):
        if rank == 1:
            y = _full_transpose(tf.expand_dims(x, 1), tf.expand_dims(w, 2), (1, *stride), (1, *dilation), [1, *full])
            return tf.squeeze(y, 1)
        return dilated_transpose(x, kernel, stride, dilation, full, (0,) * rank)
    shape = [sizes(x)[0], *full, kernel.shape[-2]]
    if rank == 1:
        kernel, shape = tf.expand_dims(kernel, 0), [shape[0], 1, *shape[1:]]
        return tf.squeeze(
            tf.nn.conv2d_transpose(
                tf.expand_dims(x, 1), kernel, tf.cast(tf.stack(shape), tf.int32), (1, *stride), "VALID"
            ),
            1,
        )
    function = tf.nn.conv2d_transpose if rank == 2 else tf.nn.conv3d_transpose
    return function(x, kernel, tf.cast(tf.stack(shape), tf.int32), stride, "VALID")


def _crop(y: Tensor, begin: Sequence[int], end: Sequence[int]) -> Tensor:
    """Cut away at both sides; negative numbers add zeros."""
    y = padded(y, [max(-n, 0) for n in begin], [max(-n, 0) for n in end])
    cut = tuple(slice(max(b, 0), -e if e > 0 else None) for b, e in zip(begin, end, strict=True))
    return y[(slice(None), *cut)] if any(n > 0 for n in (*begin, *end)) else y


# -- pooling ----------------------------------------------------------------------------------------------------------
def _taps(x: Tensor, window: Window) -> list[Tensor]:
    """Values that each tap of all windows reads in a padded input."""
    counts = [(n - r) // s + 1 for n, r, s in zip(sizes(x)[1:-1], window.reach, window.strides, strict=True)]
    return [x[(slice(None), *window.part(tap, counts))] for tap in window.taps()]


def _along_axes(x: Tensor, window: Window, combine: Callable[[list[Tensor]], Tensor]) -> Tensor:
    """Sum or maximum of each window of a padded input, axis by axis: so taps add up instead of multiplying."""
    for i in range(len(window.kernel)):
        single = [(1,) * i + (n[i],) + (1,) * (len(window.kernel) - 1 - i) for n in window[:3]]
        x = combine(_taps(x, window._replace(kernel=single[0], strides=single[1], dilations=single[2])))
    return x


def _lowest(x: Tensor) -> Any:
    return -math.inf if x.dtype.is_floating else x.dtype.min


def _has_kernel(x: Tensor, window: Window) -> bool:
    """Whether TensorFlow pools so: in three dimensions not in float64, on the CPU."""
    dtypes = {2: (tf.float32, tf.float64), 3: (tf.float32,)}.get(len(window.kernel), ())
    return x.dtype in dtypes and set(window.dilations) == {1}


@op("MaxPool", layout="last")
def max_pool(x: Tensor, *, settings: Sliding, outputs: tuple[bool, ...]) -> Any:
    window = resolve(x, settings.kernel_shape, settings)
    y = padded(x, window.begin, window.whole_end, _lowest(x))
    if len(outputs) == 1 and _has_kernel(x, window):
        pool = tf.nn.max_pool2d if len(window.kernel) == 2 else tf.nn.max_pool3d
        return pool(y, window.kernel, window.strides, "VALID")
    if len(outputs) == 1:
        return _along_axes(y, window, lambda taps: functools.reduce(tf.maximum, taps))
    best, *others = _taps(y, window)
    chosen = tf.zeros_like(best, tf.int64)
    for place, tap in enumerate(others, 1):
        chosen = tf.where(tap > best, tf.constant(place, tf.int64), chosen)
        best = tf.maximum(best, tap)
    return best, _flat_indices(chosen, window, x, settings.storage_order)


def _flat_indices(chosen: Tensor, window: Window, x: Tensor, column_major: int) -> Tensor:
    """Index in the whole input, channels first, of the tap that was chosen in each window (channels last)."""
    rank = len(window.kernel)
    weight, offsets, step = window.places(static_sizes(x)[1:-1], column_major)
    index = tf.gather(tf.constant(offsets, tf.int64), chosen)
    for axis in range(rank):
        start = (np.arange(static_sizes(chosen, axis + 1)[0]) * window.strides[axis] - window.begin[axis]) * weight[
            axis
        ]
        index += tf.constant(start.reshape([-1 if a == axis + 1 else 1 for a in range(rank + 2)]), tf.int64)
    samples, channels = static_sizes(x, 0, -1)
    planes = np.arange(samples * channels).reshape(samples, *[1] * rank, channels) * step
    index += tf.constant(planes, tf.int64)
    return tf.transpose(index, [0, rank + 1, *range(1, rank + 1)])


@op("AveragePool", layout="last")
def average_pool(x: Tensor, *, settings: Sliding) -> Tensor:
    """Mean of each window; padding counts only under ``count_include_pad``, what ceil_mode adds never does."""
    window, padding = resolve(x, settings.kernel_shape, settings), int(bool(settings.count_include_pad))
    y = padded(x, window.begin, window.whole_end)
    plain = padding and not any(window.extra)
    if plain or y is x:
        return _window_sum(y, window, mean=True)
    ones = padded(tf.ones([1, *sizes(x)[1:-1], 1], x.dtype), window.begin, window.end, padding)
    return _window_sum(y, window) / _window_sum(padded(ones, [0] * len(window.extra), window.extra), window)


def _window_sum(x: Tensor, window: Window, mean: bool = False) -> Tensor:
    """Sum (or mean) of each window of a padded input."""
    if _has_kernel(x, window):
        pool = tf.nn.avg_pool2d if len(window.kernel) == 2 else tf.nn.avg_pool3d
        y = pool(x, window.kernel, window.strides, "VALID")
        return y if mean else y * number(math.prod(window.kernel), x)
    total = _along_axes(x, window, tf.add_n)
    return total / number(math.prod(window.kernel), x) if mean else total


@op("LpPool", layout="last")
def lp_pool(x: Tensor, *, settings: Sliding) -> Tensor:
    window = resolve(x, settings.kernel_shape, settings)
    powers = padded(tf.abs(x) ** settings.p, window.begin, window.whole_end)
    return root(_along_axes(powers, window, tf.add_n), settings.p)


def _spatial(x: Tensor) -> list[int]:
    return list(range(1, x.shape.rank - 1))


@op("GlobalAveragePool", layout="last")
def global_average_pool(x: Tensor) -> Tensor:
    return tf.reduce_mean(x, _spatial(x), keepdims=True)


@op("GlobalMaxPool", layout="last")
def global_max_pool(x: Tensor) -> Tensor:
    return tf.reduce_max(x, _spatial(x), keepdims=True)


@op("GlobalLpPool", layout="last")
def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    return root(tf.reduce_sum(tf.abs(x) ** p, _spatial(x), keepdims=True), p)


@op("LRN", layout="last")
def lrn(x: Tensor, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> Tensor:
    """ONNX's window begins ``floor((size - 1) / 2)`` channels before."""
    before, channels = (size - 1) // 2, static_sizes(x, -1)[0]
    squares = tf.pad(x * x, [(0, 0)] * (x.shape.rank - 1) + [(before, size - 1 - before)])
    total = tf.add_n([squares[..., i : i + channels] for i in range(size)])
    return x / (number(bias, x) + number(alpha / size, x) * total) ** number(beta, x)
