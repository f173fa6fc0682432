"""Quantised numbers. Integer products are computed in float64, which is exact for them."""

from __future__ import annotations

from typing import Any

from deep500.frameworks.tensorflow.dtypes import onnx_dtype
from deep500.frameworks.tensorflow.operators.elementwise import convert
from deep500.frameworks.tensorflow.operators.table import op, rank
from deep500.frameworks.tensorflow.operators.windows import conv, kernel_last
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.attributes import Sliding
from deep500.networks.execution.operator_table import positive

Tensor = Any
LIMITS = {"int4": (-8, 7), "uint4": (0, 15)}


def _along(scale: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point so that it broadcasts against ``x``: one number, or one per index of ``axis`` or block."""
    scale = convert(scale, tf.float32)
    axis = positive(axis, rank(x)) if rank(x) > 1 or rank(scale) else 0
    if block:
        wide = tf.repeat(scale, block, axis)
        return wide[(slice(None),) * axis + (slice(x.shape[axis]),)]
    if scale.shape.num_elements() == 1:
        return tf.reshape(scale, [])
    return tf.reshape(scale, [-1 if a == axis else 1 for a in range(rank(x))]) if rank(scale) == 1 else scale


def _quantize(x: Tensor, zero: Any, dtype: Any) -> Tensor:
    """Round to even, move by the zero point, saturate."""
    low, high = LIMITS.get(dtype.name) or (dtype.min, dtype.max)
    y = tf.clip_by_value(tf.round(x) + tf.cast(zero, x.dtype), low, high)
    return convert(tf.cast(y, tf.int32), dtype)


@op("QuantizeLinear")
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
) -> Tensor:
    dtype = zero.dtype if zero is not None else onnx_dtype(output_dtype) if output_dtype else tf.uint8
    y = convert(x, tf.float32) / _along(scale, x, axis, block_size)
    shift = tf.zeros([]) if zero is None else _along(zero, x, axis, block_size)
    if dtype.is_floating:
        return convert(y + shift, dtype, bool(saturate))
    return _quantize(y, shift, dtype)


@op("DequantizeLinear")
def dequantize_linear(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Tensor:
    y = convert(x, tf.float32)
    y = y if zero is None else y - _along(zero, x, axis, block_size)
    return tf.cast(y * _along(scale, x, axis, block_size), onnx_dtype(output_dtype) if output_dtype else scale.dtype)


def _double(x: Tensor) -> Tensor:
    return tf.cast(x, tf.float64)


def _zero(zero: Tensor | None, rows: bool = False) -> Any:
    """A zero point as a number, or one per row."""
    if zero is None:
        return tf.zeros([], tf.float64)
    return tf.expand_dims(_double(zero), -1) if rows and rank(zero) == 1 and zero.shape[0] != 1 else _double(zero)


@op("MatMulInteger")
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    return tf.cast(tf.matmul(_double(a) - _zero(a_zero, True), _double(b) - _zero(b_zero)), tf.int32)


@op("QLinearMatMul")
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    product = tf.matmul(_double(a) - _zero(a_zero, True), _double(b) - _zero(b_zero))
    factor = _double(a_scale) * _double(b_scale) / _double(y_scale)
    return _quantize(product * factor, y_zero, y_zero.dtype)


@op("ConvInteger", layout="last")
def conv_integer(
    x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, *, settings: Sliding
) -> Tensor:
    weights = _double(w)
    if w_zero is not None:
        weights -= tf.reshape(_double(w_zero), [-1, *[1] * (rank(w) - 1)])
    y = conv(_double(x) - _zero(x_zero), kernel_last(weights), settings=settings)
    return tf.cast(tf.round(y), tf.int32)


@op("QLinearConv", layout="last")
def qlinear_conv(*operands: Any, settings: Sliding) -> Tensor:
    """Data, kernel and result with a scale and a zero point each, then a bias if any."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b = (*operands, None)[:9]
    weights = _double(w) - tf.reshape(_double(w_zero), [-1, *[1] * (rank(w) - 1)])
    b = None if b is None else _double(b)
    y = conv(_double(x) - _double(x_zero), kernel_last(weights), b, settings=settings)
    factor = _double(x_scale) * _double(w_scale) / _double(y_scale)  # one, or one per channel, which come last
    return _quantize(tf.round(y) * factor, y_zero, y_zero.dtype)
