"""Two-dimensional convolution with every attribute explicit, and the two rewrites of its kernel.

Layouts are ONNX's: images (batch, channels, height, width), kernels (outputs, channels per group, height, width), pads
(top, left, bottom, right). ``enlarge`` pads a kernel with zeros around its centre; ``merge_groups`` writes the kernel
of a convolution with ``groups / factor`` groups that computes the same, with zero blocks between the former groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from onnx import NodeProto, helper, numpy_helper

from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array
from deep500.transformations.substitutions.operators.layout import integers
from deep500.transformations.substitutions.operators.specification import Operator, Parameters, Shape, register, require


def out_size(size: int, kernel: int, before: int, after: int, stride: int, dilation: int = 1) -> int:
    """Positions of a window along one axis (ONNX ``Conv``, explicit pads, floor)."""
    return (size + before + after - dilation * (kernel - 1) - 1) // stride + 1


def windows(image: Array, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> Array:
    """View of a padded (b, n, c, h, w) array: (b, n, c, out h, out w, kernel h, kernel w)."""
    extent = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    view = sliding_window_view(image, extent, (-2, -1))
    dilated = view[..., :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    return np.asarray(dilated)


def pad(image: Array, pads: Sequence[int]) -> Array:
    """Pad the last two axes with zeros; ``pads`` as in ONNX."""
    top, left, bottom, right = pads
    return np.pad(image, [(0, 0)] * (image.ndim - 2) + [(top, bottom), (left, right)])


def _conv_shape(shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    image, kernel = shapes
    groups, (sh, sw), (top, left, bottom, right) = parameters["groups"], parameters["strides"], parameters["pads"]
    fits = len(image) == len(kernel) == 4 and groups > 0 and image[1] == kernel[1] * groups
    fits = fits and kernel[0] % groups == 0 and tuple(parameters["kernel"]) == kernel[2:]
    what = f"conv with {groups} groups and kernel {parameters['kernel']}"
    require(fits, what, f"{image} and {kernel}", "(n, c, h, w) and (o, c / groups, kernel), groups dividing c and o")
    dh, dw = parameters["dilations"]
    height = out_size(image[2], kernel[2], top, bottom, sh, dh)
    width = out_size(image[3], kernel[3], left, right, sw, dw)
    require(
        height > 0 and width > 0, what, f"{image} and {kernel}", "an image, padded, at least as large as the kernel"
    )
    return ((image[0], kernel[0], height, width),)


def _conv(numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    image, kernel = inputs
    groups, count = parameters["groups"], image.shape[1]
    view = windows(pad(image, parameters["pads"]), kernel.shape[-2:], parameters["strides"], parameters["dilations"])
    batch, _, channels, height, width, *_ = view.shape
    parts = view.reshape(batch, count, groups, channels // groups, height, width, *kernel.shape[-2:])
    columns = parts.transpose(0, 2, 3, 6, 7, 1, 4, 5).reshape(batch, groups, -1, count * height * width)
    rows = kernel.reshape(len(kernel), groups, kernel.shape[1] // groups, -1)
    products = numbers.matmul(rows, columns)
    products = products.reshape(len(products), kernel.shape[1], count, height, width)
    return (products.transpose(0, 2, 1, 3, 4),)


def _conv_onnx(
    inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    lists = {name: list(parameters[name]) for name in ("strides", "pads", "dilations")}
    attributes = {**lists, "kernel_shape": list(parameters["kernel"]), "group": parameters["groups"]}
    return [helper.make_node("Conv", inputs, outputs, **attributes)]


def _margins(parameters: Parameters) -> tuple[int, int]:
    source, target = parameters["source"], parameters["target"]
    odd = all(k % 2 == 1 for k in (*source, *target)) and all(a <= b for a, b in zip(source, target, strict=True))
    require(
        odd, f"enlarge to {target}", source, "odd kernels, none larger than its target: others have no common centre"
    )
    return (target[0] - source[0]) // 2, (target[1] - source[1]) // 2


def _enlarge_shape(shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    _margins(parameters)
    fits = len(shapes[0]) == 4 and shapes[0][2:] == tuple(parameters["source"])
    require(fits, "enlarge", shapes[0], f"a kernel (o, c, {parameters['source']})")
    return ((*shapes[0][:2], *parameters["target"]),)


def _enlarge(numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    rows, columns = _margins(parameters)
    return (pad(inputs[0], (rows, columns, rows, columns)),)


def _enlarge_onnx(
    inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    rows, columns = _margins(parameters)
    pads = f"{outputs[0]}_pads"
    return [
        integers(pads, [0, 0, rows, columns, 0, 0, rows, columns]),
        helper.make_node("Pad", [inputs[0], pads], outputs),
    ]


def _merge_shape(shapes: Sequence[Shape], parameters: Parameters) -> tuple[Shape, ...]:
    (kernel,), groups, factor = shapes, parameters["groups"], parameters["factor"]
    fits = len(kernel) == 4 and groups > 0 and factor > 0 and groups % factor == 0 and kernel[0] % groups == 0
    require(fits, f"merge {groups} groups by {factor}", kernel, "a factor of the groups, which divide the outputs")
    return ((kernel[0], kernel[1] * factor, *kernel[2:]),)


def block_mask(outputs: int, channels: int, groups: int, factor: int) -> Array:
    """Ones where merging ``groups`` by ``factor`` keeps a weight: (outputs, channels * factor, 1, 1)."""
    own = np.arange(outputs) // (outputs // groups) % factor
    block = np.arange(channels * factor) // channels
    return (own[:, None] == block[None, :]).astype(np.float32)[:, :, None, None]


def _merge(numbers: Arithmetic, inputs: Sequence[Array], parameters: Parameters) -> tuple[Array, ...]:
    (kernel,), factor = inputs, parameters["factor"]
    mask = block_mask(kernel.shape[1], kernel.shape[2], parameters["groups"], factor)
    return (numbers.multiply(np.tile(kernel, (1, 1, factor, 1, 1)), numbers.constant(mask)[None]),)


def _merge_onnx(
    inputs: Sequence[str], outputs: Sequence[str], parameters: Parameters, shapes: Sequence[Shape]
) -> list[NodeProto]:
    (kernel,), factor, name = shapes, parameters["factor"], outputs[0]
    mask = numpy_helper.from_array(block_mask(kernel[0], kernel[1], parameters["groups"], factor))
    return [
        integers(f"{name}_repeats", [1, factor, 1, 1]),
        helper.make_node("Tile", [inputs[0], f"{name}_repeats"], [f"{name}_tiled"]),
        helper.make_node("Constant", [], [f"{name}_mask"], value=mask),
        helper.make_node("CastLike", [f"{name}_mask", inputs[0]], [f"{name}_blocks"]),
        helper.make_node("Mul", [f"{name}_tiled", f"{name}_blocks"], outputs),
    ]


_CONV = ("kernel", "strides", "pads", "dilations", "groups")
register(Operator("conv", 2, _conv_shape, _conv, _conv_onnx, _CONV, shaped=frozenset({"groups"})))
register(Operator("enlarge", 1, _enlarge_shape, _enlarge, _enlarge_onnx, ("source", "target")))
register(
    Operator("merge_groups", 1, _merge_shape, _merge, _merge_onnx, ("groups", "factor"), shaped=frozenset({"groups"}))
)
