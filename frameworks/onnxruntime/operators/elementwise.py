"""Operators that others express exactly, or to the last bits of their dtype."""

from __future__ import annotations

import math

import numpy as np

from deep500.frameworks.onnxruntime.operators.table import ExpansionEmitter, expansion
from deep500.tensors import dtype_to_onnx


@expansion("Tan")
def tan(op: ExpansionEmitter) -> dict[str, str]:
    """Sine by cosine."""
    x = op.node.inputs[0]
    return {op.node.outputs[0]: op("Div", op("Sin", x), op("Cos", x))}


@expansion("HardSwish")
def hard_swish(op: ExpansionEmitter) -> dict[str, str]:
    """x max(0, min(1, x/6 + 1/2))."""
    x = op.node.inputs[0]
    gate = op("Clip", op("Add", op("Mul", x, op.like(1 / 6)), op.like(0.5)), op.like(0), op.like(1))
    return {op.node.outputs[0]: op("Mul", x, gate)}


@expansion("Gelu")
def gelu(op: ExpansionEmitter) -> dict[str, str] | None:
    """With numbers of the input's own precision."""
    x = op.node.inputs[0]
    if op.node.attribute("approximate") == "tanh":
        cube = op("Mul", op("Mul", op("Mul", x, x), x), op.like(0.044715))
        soft = op("Tanh", op("Mul", op("Add", x, cube), op.like(math.sqrt(2 / math.pi))))
    else:
        soft = op("Erf", op("Mul", x, op.like(math.sqrt(0.5))))
    return {op.node.outputs[0]: op("Mul", op("Mul", x, op.like(0.5)), op("Add", soft, op.like(1.0)))}


@expansion("Mean")
def mean(op: ExpansionEmitter) -> dict[str, str]:
    """Sum by count."""
    return {op.node.outputs[0]: op("Div", op("Sum", *op.node.inputs), op.like(len(op.node.inputs)))}


@expansion("NonZero")
def non_zero(op: ExpansionEmitter) -> dict[str, str] | None:
    """Of a bool; NaN counts as nonzero."""
    if op.dtype() == "bool":
        return None
    differs = op("Not", op("Equal", op.node.inputs[0], op.like(0)))
    return {op.node.outputs[0]: op("NonZero", differs)}


@expansion("OneHot")
def one_hot(op: ExpansionEmitter) -> dict[str, str] | None:
    """A choice between the two values."""
    indices, depth, values = op.node.inputs
    if op.dtype(2) in ("int64", None) and op.dtype(0) == "int64":
        return None
    mask = op(
        "OneHot",
        op("Cast", indices, to=dtype_to_onnx("int64")),
        op("Cast", depth, to=dtype_to_onnx("int64")),
        op.ints(0, 1),
        axis=op.node.attribute("axis"),
    )
    off, on = (op("Gather", values, op.constant(np.array(i, np.int64))) for i in (0, 1))
    return {op.node.outputs[0]: op("Where", op("Cast", mask, to=dtype_to_onnx("bool")), on, off)}


# Cody, "Rational Chebyshev approximations for the error function", Mathematics of Computation 23 (1969), with the
# digits of his CALERF: numerators and denominators, highest power first. Near 0 erf(x) = x N(x^2) / D(x^2), elsewhere
# erfc(x) = exp(-x^2) N(x) / D(x).
_COEFFICIENTS = """
1.85777706184603153e-1 3.16112374387056560e0 1.13864154151050156e2 3.77485237685302021e2 3.20937758913846947e3
1 2.36012909523441209e1 2.44024637934444173e2 1.28261652607737228e3 2.84423683343917062e3

2.15311535474403846e-8 5.64188496988670089e-1 8.88314979438837594e0 6.61191906371416295e1 2.98635138197400131e2 \
8.81952221241769090e2 1.71204761263407058e3 2.05107837782607147e3 1.23033935479799725e3
1 1.57449261107098347e1 1.17693950891312499e2 5.37181101862009858e2 1.62138957456669019e3 \
3.29079923573345963e3 4.36261909014324716e3 3.43936767414372164e3 1.23033935480374942e3
"""


@expansion("Erf")
def erf(op: ExpansionEmitter) -> dict[str, str] | None:
    """In float64, to the last bits: four polynomials side by side along a new axis, by one Horner scheme.

    Sessions are slow to make of many nodes, so these are few. Beyond 6 the answer is 1 to the last bit.
    """
    if op.dtype() != "float64":
        return None
    last = op.ints(-1)
    x = op("Unsqueeze", op.node.inputs[0], last)
    size = op("Clip", op("Abs", x), op.like(0.0), op.like(6.0))
    square = op("Mul", size, size)
    powers = op("Concat", square, square, size, size, axis=-1)
    table = [line.split() for line in _COEFFICIENTS.split("\n") if line]
    rows = np.array([["0"] * (9 - len(row)) + row for row in table], np.float64)
    total = op.like(rows[:, 0])
    for column in rows[:, 1:].T:
        total = op("Add", op("Mul", total, powers), op.like(column))
    parts = op.many("Split", total, op.ints(1, 1, 1, 1), outputs=4, axis=-1)
    near = op("Mul", x, op("Div", *parts[:2]))
    rest = op("Mul", op("Exp", op("Neg", square)), op("Div", *parts[2:]))
    far = op("Mul", op("Sign", x), op("Sub", op.like(1.0), rest))
    y = op("Where", op("Less", size, op.like(0.46875)), near, far)
    return {op.node.outputs[0]: op("Squeeze", y, last)}
