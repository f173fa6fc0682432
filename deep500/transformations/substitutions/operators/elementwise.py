"""Elementwise sum and product of equal shapes, sum and product with a scalar, and activations."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from onnx import NodeProto, helper

from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array
from deep500.transformations.substitutions.operators.specification import Operator, Parameters, Shape, register, require

ACTIVATIONS = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "gelu": "Gelu"}


def _equal(name: str, shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    require(shapes[0] == shapes[1], name, f"{shapes[0]} and {shapes[1]}", "equal shapes: broadcasting is not matched")
    return (shapes[0],)


def _with_scalar(name: str, shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    require(shapes[1] == (), name, shapes[1], "a scalar, shape (), as second input")
    return (shapes[0],)


def _same(shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    return (shapes[0],)


def _combine(method: str, numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    left, right = inputs
    if right.ndim == 1:  # scalars: only the batch axis
        right = right.reshape(-1, *[1] * (left.ndim - 1))
    return (getattr(numbers, method)(left, right),)


def _activate(name: str, numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    return (numbers.unary(name, inputs[0]),)


def _onnx(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    return [helper.make_node(op_type, inputs, outputs)]


def _register() -> None:
    for name, method, op_type in (("add", "add", "Add"), ("mul", "multiply", "Mul")):
        shape, evaluate = functools.partial(_equal, name), functools.partial(_combine, method)
        register(Operator(name, 2, shape, evaluate, functools.partial(_onnx, op_type), commutative=True))
    for name, method, op_type in (("shift", "add", "Add"), ("scale", "multiply", "Mul")):
        shape, evaluate = functools.partial(_with_scalar, name), functools.partial(_combine, method)
        register(Operator(name, 2, shape, evaluate, functools.partial(_onnx, op_type)))
    for name, op_type in ACTIVATIONS.items():
        register(Operator(name, 1, _same, functools.partial(_activate, name), functools.partial(_onnx, op_type)))


_register()
