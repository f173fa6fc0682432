"""Matrix product of equal batch dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto, helper

from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array
from deep500.transformations.substitutions.operators.specification import Operator, Parameters, Shape, register, require


def _shape(shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    left, right = shapes
    fits = len(left) == len(right) >= 2 and left[:-2] == right[:-2] and left[-1] == right[-2]
    require(fits, "matmul", f"{left} and {right}", "(..., m, k) and (..., k, n) with equal leading dimensions")
    return ((*left[:-1], right[-1]),)


def _evaluate(numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    return (numbers.matmul(*inputs),)


def _onnx(
    inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    return [helper.make_node("MatMul", inputs, outputs)]


register(Operator("matmul", 2, _shape, _evaluate, _onnx))
