"""Average and maximum pooling, with the rule whether padding counts among the averaged elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array
from deep500.transformations.substitutions.operators.convolution import out_size, pad, windows
from deep500.transformations.substitutions.operators.specification import Operator, Parameters, Shape, register, require


def _shape(shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    image, (kh, kw), (top, left, bottom, right) = shapes[0], parameters["kernel"], parameters["pads"]
    fits = len(image) == 4 and max(top, bottom) < kh and max(left, right) < kw
    require(fits, f"pool with kernel {(kh, kw)}", image, "(n, c, h, w) and pads smaller than the kernel")
    height = out_size(image[2], kh, top, bottom, parameters["strides"][0])
    width = out_size(image[3], kw, left, right, parameters["strides"][1])
    require(height > 0 and width > 0, f"pool with kernel {(kh, kw)}", image, "an image at least as large as the kernel")
    return ((image[0], image[1], height, width),)


def _views(image: Array, parameters: Parameters) -> tuple[Array, Array]:
    """Windows of the image and of the mask of elements that are no padding, both with one last axis."""
    kernel, strides, pads = parameters["kernel"], parameters["strides"], parameters["pads"]
    mask = np.ones((1, 1, 1, *image.shape[-2:]))
    both = (windows(pad(array, pads), kernel, strides, (1, 1)) for array in (image, mask))
    values, present = (view.reshape(*view.shape[:-2], -1) for view in both)
    return values, present


def _average(numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    values, present = _views(inputs[0], parameters)
    count = present.sum(-1)
    if parameters["count_padding"]:
        count = np.full_like(count, present.shape[-1])
    return (numbers.divide(numbers.total(values, -1), count),)


def _maximum(numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    values, present = _views(inputs[0], parameters)
    return (numbers.maximum(values, present > 0, -1),)


def _attributes(parameters: Parameters) -> dict[str, Any]:
    names = {"kernel_shape": "kernel", "strides": "strides", "pads": "pads"}
    return {attribute: list(parameters[name]) for attribute, name in names.items()}


def _average_onnx(
    inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    count = int(parameters["count_padding"])
    return [helper.make_node("AveragePool", inputs, outputs, count_include_pad=count, **_attributes(parameters))]


def _maximum_onnx(
    inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    return [helper.make_node("MaxPool", inputs, outputs, **_attributes(parameters))]


register(Operator("avgpool", 1, _shape, _average, _average_onnx, ("kernel", "strides", "pads", "count_padding")))
register(Operator("maxpool", 1, _shape, _maximum, _maximum_onnx, ("kernel", "strides", "pads")))
