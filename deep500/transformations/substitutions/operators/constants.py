"""Constants that the axioms speak of, by value: ones, identity matrix, pooling kernel, identity kernel.

``shape`` is the constant's own shape, taken from what consumes it. A pooling kernel is (c, 1, h, w) with 1 / (h w)
everywhere, for a convolution with c groups; an identity kernel is (c, c / g, h, w) with odd h and w: its convolution
with g groups returns the image.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
from onnx import NodeProto, helper, numpy_helper

from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array
from deep500.transformations.substitutions.operators.specification import Operator, Parameters, Shape, register, require


def _ones(shape: Shape) -> Array:
    return np.ones(shape)


def _identity(shape: Shape) -> Array:
    require(len(shape) == 2 and shape[0] == shape[1], "identity", shape, "a square matrix")
    return np.eye(shape[0])


def _pool_kernel(shape: Shape) -> Array:
    require(len(shape) == 4 and shape[1] == 1, "pool_kernel", shape, "(c, 1, h, w)")
    return np.full(shape, 1.0 / (shape[2] * shape[3]))


def _identity_kernel(shape: Shape) -> Array:
    fits = len(shape) == 4 and shape[0] % shape[1] == 0 and shape[2] % 2 == 1 == shape[3] % 2
    require(fits, "identity_kernel", shape, "(c, c / groups, h, w) with odd h and w")
    kernel = np.zeros(shape)
    outputs = np.arange(shape[0])
    kernel[outputs, outputs % shape[1], shape[2] // 2, shape[3] // 2] = 1.0
    return kernel


Maker = Callable[[Shape], Array]


def _shape(make: Maker, shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    return (make(tuple(parameters["shape"])).shape,)


def _evaluate(make: Maker, numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    return (numbers.constant(make(tuple(parameters["shape"])))[None],)


def _onnx(
    make: Maker, inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    value = make(tuple(parameters["shape"])).astype(parameters.get("dtype", "float32"))
    return [helper.make_node("Constant", inputs, outputs, value=numpy_helper.from_array(value))]


for _name, _make in (
    ("ones", _ones),
    ("identity", _identity),
    ("pool_kernel", _pool_kernel),
    ("identity_kernel", _identity_kernel),
):
    register(
        Operator(
            _name,
            0,
            functools.partial(_shape, _make),
            functools.partial(_evaluate, _make),
            functools.partial(_onnx, _make),
            ("shape",),
            shaped=frozenset({"shape"}),
        )
    )
