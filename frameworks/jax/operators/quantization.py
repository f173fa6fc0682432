"""Quantised numbers. Integer products are computed in float64, which is exact for them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.dtypes import onnx_dtype
from deep500.frameworks.jax.operators.elementwise import convert
from deep500.frameworks.jax.operators.table import Array, op
from deep500.frameworks.jax.operators.windows import conv
from deep500.networks.attributes import Sliding
from deep500.networks.execution.operator_table import positive


def _along(scale: Array, x: Array, axis: int, block: int) -> Array:
    """A scale or zero point so that it broadcasts against ``x``: one number, or one per index of ``axis`` or block."""
    if block:
        axis = positive(axis, x.ndim)
        return jnp.repeat(scale, block, axis)[(slice(None),) * axis + (slice(x.shape[axis]),)]
    if scale.size == 1:
        return scale.reshape(())
    if scale.ndim != 1:
        return scale
    return scale.reshape([-1 if i == positive(axis, x.ndim) else 1 for i in range(x.ndim)])


def _quantize(x: Array, zero: Any, dtype: Any) -> Array:
    """Round to even, move by the zero point, saturate."""
    limits = jnp.iinfo(dtype)
    return jnp.clip(jnp.rint(x) + zero, int(limits.min), int(limits.max)).astype(dtype)


@op("QuantizeLinear")
def quantize_linear(
    x: Array,
    scale: Array,
    zero: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
) -> Array:
    dtype: Any = np.uint8
    if zero is not None or output_dtype:
        dtype = zero.dtype if zero is not None else onnx_dtype(output_dtype)
    y = x.astype(np.float32) / _along(scale, x, axis, block_size).astype(np.float32)
    shift: Any = 0 if zero is None else _along(zero, x, axis, block_size).astype(np.float32)
    if jnp.issubdtype(dtype, np.floating):
        return convert(y + shift, np.dtype(dtype), bool(saturate))
    return _quantize(y, shift, dtype)


@op("DequantizeLinear")
def dequantize_linear(
    x: Array, scale: Array, zero: Array | None = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Array:
    y = x.astype(np.float32)
    y = y if zero is None else y - _along(zero, x, axis, block_size).astype(np.float32)
    dtype = onnx_dtype(output_dtype) if output_dtype else scale.dtype
    return (y * _along(scale, x, axis, block_size).astype(np.float32)).astype(dtype)


def _exact(x: Array) -> Array:
    return x.astype(np.float64)


def _rows(zero: Array | None) -> Any:
    """A zero point of a left operand: a number, or one per row."""
    if zero is None:
        return 0.0
    return _exact(zero)[..., None] if zero.ndim == 1 and zero.size > 1 else _exact(zero)


@op("MatMulInteger")
def matmul_integer(a: Array, b: Array, a_zero: Array | None = None, b_zero: Array | None = None) -> Array:
    right = 0.0 if b_zero is None else _exact(b_zero)
    return jnp.matmul(_exact(a) - _rows(a_zero), _exact(b) - right).astype(np.int32)


@op("QLinearMatMul")
def qlinear_matmul(
    a: Array, a_scale: Array, a_zero: Array, b: Array, b_scale: Array, b_zero: Array, y_scale: Array, y_zero: Array
) -> Array:
    product = jnp.matmul(_exact(a) - _rows(a_zero), _exact(b) - _exact(b_zero))
    factor = _exact(a_scale) * _exact(b_scale) / _exact(y_scale)
    return _quantize(product * factor, _exact(y_zero), y_zero.dtype)


@op("ConvInteger")
def conv_integer(
    x: Array, w: Array, x_zero: Array | None = None, w_zero: Array | None = None, *, settings: Sliding
) -> Array:
    weights, data = _exact(w), _exact(x)
    if w_zero is not None:
        weights = weights - _exact(w_zero).reshape((-1,) + (1,) * (w.ndim - 1))
    if x_zero is not None:
        data = data - _exact(x_zero)
    return jnp.rint(conv(data, weights, settings=settings)).astype(np.int32)


@op("QLinearConv")
def qlinear_conv(*operands: Any, settings: Sliding) -> Array:
    """Data, kernel and result with a scale and a zero point each, then a bias if any."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b = (*operands, None)[:9]
    column, bias = (-1,) + (1,) * (w.ndim - 1), None if b is None else _exact(b)
    y = conv(_exact(x) - _exact(x_zero), _exact(w) - _exact(w_zero).reshape(column), bias, settings=settings)
    factor = _exact(x_scale) * _exact(w_scale).reshape(column[:-1]) / _exact(y_scale)
    return _quantize(jnp.rint(y) * factor, _exact(y_zero), y_zero.dtype)
