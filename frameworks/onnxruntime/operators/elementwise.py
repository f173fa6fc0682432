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


@expansion("Erf")
def erf(op: ExpansionEmitter) -> dict[str, str] | None:
    """In float64: Taylor's series below 2.25, a continued fraction of erfc above; within 1e-15 of the largest value, 1.

    Abramowitz and Stegun 7.1.6 and 7.1.14; both are cut where the next term is below 1e-17 on their side.
    """
    if op.dtype() != "float64":
        return None
    x = op.node.inputs[0]
    size = op("Abs", x)
    return {op.node.outputs[0]: op("Where", op("Less", size, op.like(2.25)), _series(op, x), _fraction(op, x, size))}


def _series(op: ExpansionEmitter, x: str) -> str:
    """2 x exp(-x^2) / sqrt(pi) * sum of (2 x^2)^n / (1 3 5 ... (2n + 1)), by Horner's scheme."""
    bounded = op("Clip", x, op.like(-2.25), op.like(2.25))
    square = op("Mul", bounded, bounded)
    total = op.like(1.0)
    for n in range(44, 0, -1):
        total = op("Add", op.like(1.0), op("Mul", total, op("Mul", square, op.like(2.0 / (2 * n + 1)))))
    front = op("Mul", op("Mul", bounded, op("Exp", op("Neg", square))), op.like(2 / math.sqrt(math.pi)))
    return op("Mul", front, total)


def _fraction(op: ExpansionEmitter, x: str, size: str) -> str:
    """sign(x) (1 - exp(-x^2) / sqrt(pi) / (x + (1/2) / (x + 1 / (x + (3/2) / (x + ...)))))."""
    bounded = op("Clip", size, op.like(2.25), op.like(30.0))
    tail = bounded
    for n in range(60, 0, -1):
        tail = op("Add", bounded, op("Div", op.like(n / 2), tail))
    rest = op("Div", op("Exp", op("Neg", op("Mul", bounded, bounded))), op("Mul", tail, op.like(math.sqrt(math.pi))))
    return op("Mul", op("Sign", x), op("Sub", op.like(1.0), rest))
