"""Shifts of signed integers, which ONNX has since opset 28 and ONNX Runtime not yet."""

from __future__ import annotations

import numpy as np

from deep500.frameworks.onnxruntime.operators.table import ExpansionEmitter, expansion
from deep500.tensors import dtype_to_onnx, numpy_dtype


@expansion("BitShift")
def bit_shift(op: ExpansionEmitter) -> dict[str, str] | None:
    """In 64 bits: sign-extending to the right, cut off to the left; amounts outside the width shift everything out."""
    dtype = numpy_dtype(op.dtype() or "uint8")
    if dtype.kind != "i":
        return None
    x, amount = (op("Cast", n, to=dtype_to_onnx("int64")) for n in op.node.inputs)
    bits, zero = dtype.itemsize * 8, _number(op, 0)
    outside = op("Or", op("Less", amount, zero), op("Greater", amount, _number(op, bits - 1)))
    if op.node.attribute("direction") == "RIGHT":
        amount = op("Where", outside, _number(op, bits - 1), amount)
        minus = _number(op, -1)
        negative = op("Sub", minus, _shift(op, op("Sub", minus, x), amount))
        result = op("Where", op("Less", x, zero), negative, _shift(op, x, amount))
    else:
        amount = op("Where", outside, zero, amount)
        result = op("Where", outside, zero, _shift(op, x, amount))
    return {op.node.outputs[0]: op("Cast", result, to=dtype_to_onnx(dtype))}


def _number(op: ExpansionEmitter, value: int) -> str:
    return op.constant(np.array(value, np.int64))


def _shift(op: ExpansionEmitter, x: str, amount: str) -> str:
    x, amount = (op("Cast", n, to=dtype_to_onnx("uint64")) for n in (x, amount))
    shifted = op("BitShift", x, amount, direction=op.node.attribute("direction"))
    return op("Cast", shifted, to=dtype_to_onnx("int64"))
