"""Quantised numbers. Integer products are computed in float64, which is exact for them and exists on every device."""

from __future__ import annotations

from typing import Any

import torch

from deep500.frameworks.pytorch.dtypes import onnx_dtype
from deep500.frameworks.pytorch.operators.elementwise import convert
from deep500.frameworks.pytorch.operators.table import op
from deep500.frameworks.pytorch.operators.windows import conv
from deep500.networks.attributes import Sliding
from deep500.networks.execution.operator_table import positive

Tensor = torch.Tensor


def _along(scale: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point so that it broadcasts against ``x``: one number, or one per index of ``axis`` or block."""
    if block:
        return scale.repeat_interleave(block, axis).narrow(axis, 0, x.shape[axis])
    if scale.numel() == 1:
        return scale.reshape(())
    if scale.ndim != 1:
        return scale
    shape = [1] * x.ndim
    shape[positive(axis, x.ndim)] = -1
    return scale.reshape(shape)


def _quantize(x: Tensor, zero: Any, dtype: torch.dtype) -> Tensor:
    """Round to even, move by the zero point, saturate."""
    limits = torch.iinfo(dtype)
    return torch.clamp(torch.round(x) + zero, limits.min, limits.max).to(dtype)


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
    dtype = zero.dtype if zero is not None else onnx_dtype(output_dtype) if output_dtype else torch.uint8
    y = x.float() / _along(scale, x, axis, block_size).float()
    shift = 0 if zero is None else _along(zero, x, axis, block_size).float()
    if dtype.is_floating_point:
        return convert(y + shift, dtype, bool(saturate))
    return _quantize(y, shift, dtype)


@op("DequantizeLinear")
def dequantize_linear(
    x: Tensor, scale: Tensor, zero: Tensor | None = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Tensor:
    y = x.float() if zero is None else x.float() - _along(zero, x, axis, block_size).float()
    dtype = onnx_dtype(output_dtype) if output_dtype else scale.dtype
    return (y * _along(scale, x, axis, block_size).float()).to(dtype)


def _zero(zero: Tensor | None, rows: bool = False) -> Any:
    """A zero point as a number, or one per row."""
    if zero is None:
        return 0
    return zero.double().unsqueeze(-1) if rows and zero.ndim == 1 and zero.numel() > 1 else zero.double()


@op("MatMulInteger")
def matmul_integer(a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None) -> Tensor:
    return ((a.double() - _zero(a_zero, True)) @ (b.double() - _zero(b_zero))).to(torch.int32)


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
    product = (a.double() - _zero(a_zero, True)) @ (b.double() - _zero(b_zero))
    factor = a_scale.double() * b_scale.double() / y_scale.double()
    return _quantize(product * factor, y_zero.double(), y_zero.dtype)


@op("ConvInteger")
def conv_integer(
    x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None, *, settings: Sliding
) -> Tensor:
    weights = w.double() - _zero(w_zero).reshape(-1, *[1] * (w.ndim - 1)) if w_zero is not None else w.double()
    return conv(x.double() - _zero(x_zero), weights, settings=settings).round().to(torch.int32)


@op("QLinearConv")
def qlinear_conv(*operands: Any, settings: Sliding) -> Tensor:
    """Data, kernel and result with a scale and a zero point each, then a bias if any."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, b = (*operands, None)[:9]
    shape = (-1, *[1] * (w.ndim - 1))
    weights = w.double() - w_zero.double().reshape(shape)
    y = conv(x.double() - x_zero.double(), weights, None if b is None else b.double(), settings=settings)
    factor = x_scale.double() * w_scale.double().reshape(shape[:1] + (1,) * (w.ndim - 2)) / y_scale.double()
    return _quantize(y.round() * factor, y_zero.double(), y_zero.dtype)
