"""A vector along one axis of a tensor: ``bias`` adds it, ``gain`` multiplies by it.

Biases of convolutions and matrix products and what batch normalisation does in evaluation mode are these two.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from onnx import NodeProto, helper

from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array
from deep500.transformations.substitutions.operators.layout import integers
from deep500.transformations.substitutions.operators.specification import Operator, Parameters, Shape, register, require


def _shape(name: str, shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    (whole, vector), axis = shapes, parameters["axis"]
    fits = axis < len(whole) and vector == (whole[axis],)
    require(fits, f"{name} along axis {axis}", f"{whole} and {vector}", "a vector as long as that axis")
    return (whole,)


def _evaluate(method: str, numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    whole, vector = inputs
    spread = [1] * (whole.ndim - 1)
    spread[parameters["axis"]] = -1
    return (getattr(numbers, method)(whole, vector.reshape(len(vector), *spread)),)


def _onnx(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    after = len(shapes[0]) - 1 - parameters["axis"]
    if after == 0:
        return [helper.make_node(op_type, inputs, outputs)]
    target, spread = f"{outputs[0]}_spread_shape", f"{outputs[0]}_spread"
    return [
        integers(target, [shapes[1][0], *[1] * after]),
        helper.make_node("Reshape", [inputs[1], target], [spread]),
        helper.make_node(op_type, [inputs[0], spread], outputs),
    ]


for _name, _method, _op_type in (("bias", "add", "Add"), ("gain", "multiply", "Mul")):
    register(
        Operator(
            _name,
            2,
            functools.partial(_shape, _name),
            functools.partial(_evaluate, _method),
            functools.partial(_onnx, _op_type),
            ("axis",),
        )
    )
