"""Operators that move elements without computing: concat, split, transpose, reshape."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array
from deep500.transformations.substitutions.operators.specification import Operator, Parameters, Shape, register, require


def integers(name: str, values: Sequence[int]) -> NodeProto:
    """A ``Constant`` node that holds int64 ``values`` under ``name``."""
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(values, np.int64)))


def _concat_shape(shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    (left, right), axis = shapes, parameters["axis"]
    fits = len(left) == len(right) > axis and all(
        a == b for n, (a, b) in enumerate(zip(left, right, strict=True)) if n != axis
    )
    require(fits, f"concat on axis {axis}", f"{left} and {right}", "shapes that differ on that axis only")
    return ((*left[:axis], left[axis] + right[axis], *left[axis + 1 :]),)


def _concat(numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    count = max(len(value) for value in inputs)
    whole = [np.broadcast_to(value, (count, *value.shape[1:])) for value in inputs]
    return (np.concatenate(whole, parameters["axis"] + 1),)


def _concat_onnx(
    inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    return [helper.make_node("Concat", inputs, outputs, axis=parameters["axis"])]


def _split_shape(shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    shape, axis, cut = shapes[0], parameters["axis"], parameters["cut"]
    fits = axis < len(shape) and 0 < cut < shape[axis]
    require(fits, f"split on axis {axis} at {cut}", shape, "a dimension greater than the cut")
    return tuple((*shape[:axis], size, *shape[axis + 1 :]) for size in (cut, shape[axis] - cut))


def _split(numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    return tuple(np.split(inputs[0], [parameters["cut"]], parameters["axis"] + 1))


def _split_onnx(
    inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    axis, cut, sizes = parameters["axis"], parameters["cut"], f"{outputs[0]}_sizes"
    return [
        integers(sizes, [cut, shapes[0][axis] - cut]),
        helper.make_node("Split", [inputs[0], sizes], outputs, axis=axis),
    ]


def _transpose_shape(shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    shape, order = shapes[0], parameters["perm"]
    require(sorted(order) == list(range(len(shape))), f"transpose by {order}", shape, "a permutation of all axes")
    return (tuple(shape[axis] for axis in order),)


def _transpose(numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    return (inputs[0].transpose(0, *(axis + 1 for axis in parameters["perm"])),)


def _transpose_onnx(
    inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    return [helper.make_node("Transpose", inputs, outputs, perm=list(parameters["perm"]))]


def _reshape_shape(shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    target = tuple(parameters["shape"])
    same = math.prod(target) == math.prod(shapes[0]) and min(target, default=1) > 0
    require(same, f"reshape to {target}", shapes[0], "as many elements, every dimension explicit and positive")
    return (target,)


def _reshape(numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    return (inputs[0].reshape(len(inputs[0]), *parameters["shape"]),)


def _reshape_onnx(
    inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    target = f"{outputs[0]}_shape"
    return [integers(target, parameters["shape"]), helper.make_node("Reshape", [inputs[0], target], outputs)]


register(Operator("concat", 2, _concat_shape, _concat, _concat_onnx, ("axis",)))
register(Operator("split", 1, _split_shape, _split, _split_onnx, ("axis", "cut"), outputs=2, shaped=frozenset({"cut"})))
register(Operator("transpose", 1, _transpose_shape, _transpose, _transpose_onnx, ("perm",)))
register(Operator("reshape", 1, _reshape_shape, _reshape, _reshape_onnx, ("shape",), shaped=frozenset({"shape"})))
