"""Batch normalisation at inference: (x - mean) / sqrt(variance + epsilon) * scale + bias, per channel."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import NodeProto, helper

from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array
from deep500.transformations.substitutions.operators.specification import Operator, Parameters, Shape, register, require


def _shape(shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    image, *vectors = shapes
    fits = len(image) >= 2 and all(vector == (image[1],) for vector in vectors)
    require(fits, "batchnorm", shapes, "x (n, c, ...) and scale, bias, mean, variance (c,)")
    return (image,)


def _evaluate(numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    image = inputs[0]
    spread = (len(inputs[1]), 1, -1, *[1] * (image.ndim - 3))
    scale, bias, mean, variance = inputs[1:]
    epsilon = numbers.constant(parameters["epsilon"] + 0.0 * variance[:1, :1])
    factor = numbers.multiply(scale, numbers.unary("rsqrt", numbers.add(variance, epsilon))).reshape(spread)
    centred = numbers.add(image, numbers.multiply(mean, numbers.constant(-1.0 + 0.0 * mean[:1, :1])).reshape(spread))
    return (numbers.add(numbers.multiply(centred, factor), bias.reshape(spread)),)


def _onnx(
    inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    return [helper.make_node("BatchNormalization", inputs, outputs, epsilon=parameters["epsilon"])]


register(Operator("batchnorm", 5, _shape, _evaluate, _onnx, ("epsilon",)))
