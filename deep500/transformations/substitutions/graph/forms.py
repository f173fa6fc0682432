"""How ONNX operators are said in the rule language: one short function per operator, None where it cannot be said.

A `ShapeMismatch` counts as None: the node stays opaque.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.networks.node import Node
from deep500.transformations.substitutions.graph.store import Value
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.specification import Shape

if TYPE_CHECKING:
    from deep500.transformations.substitutions.graph.importing import Importer

Values = tuple[Value, ...] | None


def _identity(g: Importer, node: Node) -> Values:
    return (g.value(node, 0),)


def _dropout(g: Importer, node: Node) -> Values:
    return (g.value(node, 0),) if not g.training and len(node.writes) == 1 and len(node.inputs) < 3 else None


def _activation(op: str) -> Callable[[Importer, Node], Values]:
    def form(g: Importer, node: Node) -> Values:
        exact = node.attribute("approximate", b"none") in ("none", b"none")
        return g.store.add(op, g.value(node, 0)) if exact else None

    return form


# -- sums and products --------------------------------------------------------------------------------------------
def _vector_axis(whole: Shape, other: Shape) -> int | None:
    """The only axis along which ``other``, broadcast against ``whole``, is longer than 1."""
    full = (1,) * (len(whole) - len(other)) + tuple(other)
    axes = [axis for axis, size in enumerate(full) if size != 1]
    fits = len(full) == len(whole) and len(axes) == 1 and full[axes[0]] == whole[axes[0]]
    return axes[0] if fits else None


def combine(g: Importer, names: tuple[str, str, str], left: Value, right: Value) -> Values:
    """A sum or product with ONNX's broadcasting, as far as it is one of equal shapes, a scalar, or a vector.

    ``names`` are those of the elementwise operator, the one with a scalar and the one with a vector.
    """
    elementwise, scalar, vector = names
    shapes = g.store.shape(left), g.store.shape(right)
    if shapes[0] == shapes[1]:
        return g.store.add(elementwise, left, right)
    if np.prod(shapes[0]) < np.prod(shapes[1]) or len(shapes[0]) < len(shapes[1]):
        left, right = right, left
        shapes = shapes[::-1]
    whole, other = shapes
    if len(other) <= len(whole) and np.prod(other) == 1:
        return g.store.add(scalar, left, _reshaped(g, right, ()))
    axis = _vector_axis(whole, other)
    return None if axis is None else g.store.add(vector, left, _reshaped(g, right, (whole[axis],)), axis=axis)


def _reshaped(g: Importer, value: Value, shape: Shape) -> Value:
    array = g.store.arrays.get(value.node)
    if array is not None:
        return g.store.constant(array.reshape(shape))
    return value if g.store.shape(value) == shape else g.store.add("reshape", value, shape=shape)[0]


ADD, MULTIPLY = ("add", "shift", "bias"), ("mul", "scale", "gain")


def _binary(names: tuple[str, str, str], inverse: Callable[[Any], Any] | None = None) -> Callable[..., Values]:
    def form(g: Importer, node: Node) -> Values:
        right = g.value(node, 1)
        if inverse is not None:
            array = g.array(node, 1)
            if array is None or str(array.dtype) not in ("float32", "float64"):
                return None
            right = g.store.constant(inverse(array).astype(array.dtype))
        return combine(g, names, g.value(node, 0), right)

    return form


def _sum(g: Importer, node: Node) -> Values:
    total = g.value(node, 0)
    for position in range(1, len(node.inputs)):
        (total,) = g.store.add("add", total, g.value(node, position))
    return (total,)


# -- products of matrices and convolutions ------------------------------------------------------------------------
def _matmul(g: Importer, node: Node) -> Values:
    left, right = g.value(node, 0), g.value(node, 1)
    shape, width = g.store.shape(left), g.store.shape(right)
    if len(width) != 2 or len(shape) < 2:
        return None
    if len(shape) == 2:
        return g.store.add("matmul", left, right)
    rows = int(np.prod(shape[:-1]))
    (flat,) = g.store.add("reshape", left, shape=(rows, shape[-1]))
    (product,) = g.store.add("matmul", flat, right)
    return g.store.add("reshape", product, shape=(*shape[:-1], width[-1]))


def _gemm(g: Importer, node: Node) -> Values:
    if node.attribute("alpha") != 1.0 or (len(node.inputs) > 2 and node.attribute("beta") != 1.0):
        return None
    sides = [g.value(node, 0), g.value(node, 1)]
    for position, name in enumerate(("transA", "transB")):
        if node.attribute(name):
            (sides[position],) = g.store.add("transpose", sides[position], perm=(1, 0))
    product = g.store.add("matmul", *sides)
    return combine(g, ADD, product[0], g.value(node, 2)) if len(node.inputs) > 2 and node.inputs[2] else product


def window(node: Node, image: Shape, kernel: Shape) -> dict[str, Any] | None:
    """Kernel, strides and explicit pads of a two-dimensional window; None where it is not one."""
    if len(image) != 4 or len(kernel) != 2:
        return None
    strides = tuple(node.attribute("strides", None) or (1, 1))
    dilations = tuple(node.attribute("dilations", None) or (1, 1))
    pads = tuple(node.attribute("pads", None) or (0, 0, 0, 0))
    auto = node.attribute("auto_pad", "NOTSET")
    auto = auto.decode() if isinstance(auto, bytes) else auto
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        total = [
            max((-(-n // s) - 1) * s + d * (k - 1) + 1 - n, 0)
            for n, k, s, d in zip(image[2:], kernel, strides, dilations, strict=True)
        ]
        less, more = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
        pads = (*less, *more) if auto == "SAME_UPPER" else (*more, *less)
    elif auto == "VALID":
        pads = (0, 0, 0, 0)
    return {"kernel": tuple(kernel), "strides": strides, "pads": pads, "dilations": dilations}


def _conv(g: Importer, node: Node) -> Values:
    kernel = g.shape(node, 1)
    known = window(node, g.shape(node, 0), kernel[2:])
    if known is None:
        return None
    image = g.store.add("conv", g.value(node, 0), g.value(node, 1), **known, groups=node.attribute("group"))
    if len(node.inputs) < 3 or not node.inputs[2]:
        return image
    return g.store.add("bias", image[0], g.value(node, 2), axis=1)


def _pool(op: str) -> Callable[[Importer, Node], Values]:
    def form(g: Importer, node: Node) -> Values:
        known = window(node, g.shape(node, 0), tuple(node.attribute("kernel_shape")))
        plain = not node.attribute("ceil_mode") and not node.attribute("storage_order", 0) and len(node.writes) == 1
        if known is None or not plain or known.pop("dilations") != (1, 1):
            return None
        if op == "avgpool":
            known["count_padding"] = bool(node.attribute("count_include_pad"))
        return g.store.add(op, g.value(node, 0), **known)

    return form


def _batch_normalization(g: Importer, node: Node) -> Values:
    """In evaluation mode: x * f + (bias - mean * f) with f = scale / sqrt(variance + epsilon), in float64."""
    arrays = [g.array(node, position) for position in range(1, 5)]
    if g.training or node.attribute("training_mode") or len(node.writes) > 1 or any(one is None for one in arrays):
        return None
    dtype = g.store.dtype(g.value(node, 0))
    scale, bias, mean, variance = (np.asarray(one, np.float64) for one in arrays)
    factor = scale / np.sqrt(variance + node.attribute("epsilon"))
    vectors = [g.store.constant(one.astype(dtype)) for one in (factor, bias - mean * factor)]
    (scaled,) = g.store.add("gain", g.value(node, 0), vectors[0], axis=1)
    return g.store.add("bias", scaled, vectors[1], axis=1)


# -- layout -------------------------------------------------------------------------------------------------------
def _concat(g: Importer, node: Node) -> Values:
    axis = node.attribute("axis") % len(g.shape(node, 0))
    whole = g.value(node, 0)
    for position in range(1, len(node.inputs)):
        (whole,) = g.store.add("concat", whole, g.value(node, position), axis=axis)
    return (whole,)


def _split(g: Importer, node: Node) -> Values:
    shape = g.shape(node, 0)
    axis = node.attribute("axis") % len(shape)
    sizes = g.array(node, 1)
    if sizes is None:
        part = -(-shape[axis] // len(node.outputs))
        sizes = np.full(len(node.outputs), part)
        sizes[-1] = shape[axis] - part * (len(node.outputs) - 1)
    return _cut(g, g.value(node, 0), axis, [int(one) for one in sizes]) if len(node.writes) == len(sizes) else None


def _cut(g: Importer, value: Value, axis: int, sizes: Sequence[int]) -> tuple[Value, ...]:
    found = []
    for size in sizes[:-1]:
        first, value = g.store.add("split", value, axis=axis, cut=size)
        found.append(first)
    return (*found, value)


def _transpose(g: Importer, node: Node) -> Values:
    rank = len(g.shape(node, 0))
    return g.store.add("transpose", g.value(node, 0), perm=tuple(node.attribute("perm") or range(rank)[::-1]))


def _reshape(g: Importer, node: Node) -> Values:
    """Reshape, Flatten, Squeeze and Unsqueeze: the same elements in another shape."""
    shape, dtype = g._type(node.outputs[0])
    constant = len(node.inputs) < 2 or not node.inputs[1] or g.array(node, 1) is not None
    same = np.prod(shape) == np.prod(g.shape(node, 0)) and dtype == g.store.dtype(g.value(node, 0))
    return (
        g.store.add("reshape", g.value(node, 0), shape=shape)
        if constant and same and min(shape, default=1) > 0
        else None
    )


FORMS: dict[str, Callable[[Any, Node], Values]] = {
    "Add": _binary(ADD),
    "AveragePool": _pool("avgpool"),
    "BatchNormalization": _batch_normalization,
    "Concat": _concat,
    "Conv": _conv,
    "Div": _binary(MULTIPLY, lambda array: 1.0 / array),
    "Dropout": _dropout,
    "Flatten": _reshape,
    "Gemm": _gemm,
    "Identity": _identity,
    "MatMul": _matmul,
    "MaxPool": _pool("maxpool"),
    "Mul": _binary(MULTIPLY),
    "Reshape": _reshape,
    "Split": _split,
    "Squeeze": _reshape,
    "Sub": _binary(ADD, lambda array: -array),
    "Sum": _sum,
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
    **{op_type: _activation(op) for op, op_type in ACTIVATIONS.items()},
}
