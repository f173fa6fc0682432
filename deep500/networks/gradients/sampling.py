"""GridSample written as gathers and weights, in any number of dimensions: gradients of the image and of the grid.

Coordinates, padding and interpolation are those of ONNX's specification, which are PyTorch's ``grid_sample``: linear
and nearest samples are padded by their coordinate, the taps of a cubic one (Keys 1981, a = -0.75) one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from deep500.networks.emit import Emitter
from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.networks.shapes import folded_value
from deep500.tensors import TensorDescriptor, dtype_to_onnx, numpy_dtype

Tap = tuple[str, str]
"""An index of whole numbers held as reals, and its weight, [batch, points] both."""
_CUBIC = -0.75


def expand_grid_sample(
    network: Graph, node: Node, descriptors: Mapping[str, TensorDescriptor]
) -> dict[str, str] | None:
    """Add nodes that compute what a GridSample does; None if its rank or dtype is unknown.

    Returns:
        for the node's output the value that equals it.
    """
    x, grid = (descriptors.get(v, TensorDescriptor(None, None)) for v in node.inputs)
    if x.shape is None or x.dtype is None or grid.dtype != x.dtype:
        return None
    return {node.outputs[0]: _Sampler(network, node, len(x.shape) - 2, x.dtype).sample()}


def expand_affine_grid(
    network: Graph, node: Node, descriptors: Mapping[str, TensorDescriptor]
) -> dict[str, str] | None:
    """Add nodes that compute what an AffineGrid does, one product with the grid of the identity; None if the size of
    the grid is not known, whose number of dimensions ONNX's function body loses.

    Returns:
        for the node's output the value that equals it.
    """
    size, dtype = folded_value(network, descriptors, node.inputs[1]), descriptors[node.inputs[0]].dtype
    if size is None or dtype is None:
        return None
    sizes = [int(n) for n in size[2:]]
    lines = [np.linspace(-1, 1, n) if n > 1 else np.zeros(1) for n in sizes]
    if not node.attribute("align_corners"):
        lines = [line * (n - 1) / n for line, n in zip(lines, sizes, strict=True)]
    places = np.stack(np.meshgrid(*lines, indexing="ij")[::-1], -1).reshape(-1, len(sizes))
    emit = Emitter(network, f"{node.name}/")
    base = emit.constant(np.concatenate([places, np.ones((len(places), 1))], 1).astype(numpy_dtype(dtype)))
    moved = emit("MatMul", base, emit("Transpose", node.inputs[0], perm=(0, 2, 1)))
    return {node.outputs[0]: emit("Reshape", moved, emit.ints(int(size[0]), *sizes, len(sizes)))}


class _Sampler:
    """One GridSample of an image [batch, channels, *sizes] at a grid [batch, *points, dimensions]."""

    def __init__(self, network: Graph, node: Node, dimensions: int, dtype: str) -> None:
        self.emit, self.node, self.dimensions, self.dtype = Emitter(network, f"{node.name}/"), node, dimensions, dtype
        self.align, self.mode = bool(node.attribute("align_corners")), node.attribute("mode")
        self.padding = node.attribute("padding_mode")

    def number(self, value: float) -> str:
        """A constant of the image's dtype."""
        return self.emit.constant(np.array(value, numpy_dtype(self.dtype)))

    def real(self, value: str) -> str:
        """Convert to the image's dtype."""
        return self.emit("Cast", value, to=dtype_to_onnx(self.dtype))

    def sample(self) -> str:
        """The sampled image [batch, channels, *points]."""
        emit, (x, grid) = self.emit, self.node.inputs
        shape = emit("Shape", x)
        sizes = [emit("Gather", shape, emit.constant(np.array(2 + d, np.int64))) for d in range(self.dimensions)]
        points = emit("Reshape", grid, emit.ints(0, -1, self.dimensions))
        taps = [self.taps(self.coordinate(points, self.dimensions - 1 - d), size) for d, size in enumerate(sizes)]
        image = emit("Reshape", x, emit.ints(0, 0, -1))
        channels = emit("Slice", shape, emit.ints(1), emit.ints(2))
        total = [self.corner(image, channels, corner, sizes) for corner in product(*taps)]
        spatial = emit("Slice", emit("Shape", grid), emit.ints(1), emit.ints(-1))
        out_shape = emit("Concat", emit("Slice", shape, emit.ints(0), emit.ints(2)), spatial, axis=0)
        return emit("Reshape", emit("Sum", *total), out_shape)

    def corner(self, image: str, channels: str, corner: Sequence[Tap], sizes: Sequence[str]) -> str:
        """One tap along each axis: what the image has there, times the product of the weights."""
        emit, place, weight = self.emit, "", ""
        for (index, share), size in zip(corner, sizes, strict=True):
            whole = emit("Cast", index, to=dtype_to_onnx("int64"))
            place = emit("Add", emit("Mul", place, size), whole) if place else whole
            weight = emit("Mul", weight, share) if weight else share
        wide = emit("Unsqueeze", place, emit.ints(1))
        repeated = emit("Concat", emit.ints(1), channels, emit.ints(1), axis=0)
        corners = emit("GatherElements", image, emit("Expand", wide, repeated), axis=2)
        return emit("Mul", corners, emit("Unsqueeze", weight, emit.ints(1)))

    def coordinate(self, points: str, axis: int) -> str:
        """One coordinate of all points [batch, points, dimensions], from -1 to 1."""
        return self.emit("Gather", points, self.emit.constant(np.array(axis, np.int64)), axis=2)

    def taps(self, coordinate: str, size: str) -> list[Tap]:
        """Where along one axis each point reads, and with what weights."""
        emit, length = self.emit, self.real(size)
        last = emit("Sub", length, self.number(1))
        moved = emit("Add", coordinate, self.number(1))
        if self.align:
            x = emit("Mul", moved, emit("Mul", last, self.number(0.5)))
        else:
            x = emit("Mul", emit("Sub", emit("Mul", moved, length), self.number(1)), self.number(0.5))
        if self.mode == "cubic":
            return [self.bounded(self.padded(index, last), share, last) for index, share in self.cubic(x)]
        x = self.padded(x, last)
        if self.mode == "nearest":
            return [self.bounded(emit("Round", x), self.number(1), last)]
        below = emit("Floor", x)
        part = emit("Sub", x, below)
        above = emit("Add", below, self.number(1))
        return [self.bounded(below, emit("Sub", self.number(1), part), last), self.bounded(above, part, last)]

    def cubic(self, x: str) -> list[Tap]:
        """Four taps with Keys's weights."""
        emit, number, a = self.emit, self.number, _CUBIC
        below = emit("Floor", x)
        part = emit("Sub", x, below)

        def polynomial(t: str, *factors: float) -> str:
            value = number(factors[0])
            for factor in factors[1:]:
                value = emit("Add", emit("Mul", value, t), number(factor))
            return value

        rest = emit("Sub", number(1), part)
        near, far = (a + 2, -(a + 3), 0.0, 1.0), (a, -5 * a, 8 * a, -4 * a)
        shares = [
            polynomial(emit("Add", part, number(1)), *far),
            polynomial(part, *near),
            polynomial(rest, *near),
            polynomial(emit("Add", rest, number(1)), *far),
        ]
        return [(emit("Add", below, number(k)), share) for k, share in zip((-1, 0, 1, 2), shares, strict=True)]

    def padded(self, x: str, last: str) -> str:
        """A coordinate moved to where the padding reads; as it is for zeros."""
        emit, number = self.emit, self.number
        if self.padding == "zeros":
            return x
        if self.padding == "reflection":
            first = number(0 if self.align else -0.5)
            span = last if self.align else emit("Add", last, number(1))
            span = emit("Max", span, number(1))  # an image of one sample: all reflections meet there
            away = emit("Abs", emit("Sub", x, first))
            turns = emit("Floor", emit("Div", away, span))
            rest = emit("Sub", away, emit("Mul", turns, span))
            odd = emit("Sub", turns, emit("Mul", number(2), emit("Floor", emit("Mul", turns, number(0.5)))))
            back = emit("Equal", odd, number(1))
            x = emit("Add", emit("Where", back, emit("Sub", span, rest), rest), first)
        return emit("Clip", x, number(0), last)

    def bounded(self, index: str, share: str, last: str) -> Tap:
        """An index within the image; what lay outside has no weight."""
        emit = self.emit
        inside = emit("Clip", index, self.number(0), last)
        return inside, emit("Where", emit("Equal", inside, index), share, self.number(0))
