"""Fold what exporters compute at run time although it is known at compile time: sizes, axes, masks, constants.

A node whose inputs are all known is replaced by its value. Shapes of values are known as far as inference tells them,
and where a Reshape or an Expand is told sizes by a computation, what inference says of its result replaces the
computation, one unknown size written as -1. So the arithmetic on shapes that exporters write out disappears.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from deep500.networks.execution.program import Program, constant_value
from deep500.networks.execution.slicing import needed_nodes, values_read
from deep500.networks.node import Node
from deep500.tensors import Dim, TensorDescriptor

MOST = 1 << 16  # elements of a value that is computed when the network is compiled
_DTYPES = frozenset({"bool", "int32", "int64", "float32", "float64"})

Values: TypeAlias = dict[str, np.ndarray]
Evaluate: TypeAlias = Callable[[Node, Values], list[np.ndarray] | None]
"""Runs a node on known inputs, by the backend's own kernels; None if it cannot."""


def fold(program: Program, known: Callable[[str], np.ndarray | None], evaluate: Evaluate) -> Program:
    """The program without what is known already; its further constants are the program's own.

    Args:
        program: stays as it is.
        known: the value of a parameter that may stand in the code, None for all others.
        evaluate: computes a node. What it cannot compute stays a node.

    Example:
        >>> nodes = [Node("Constant", (), ("a",), "a", "", {"value": np.array([2, -1])}),
        ...          Node("Neg", ("a",), ("b",), "b"), Node("Reshape", ("x", "b"), ("y",), "y")]
        >>> folded = fold(Program(["x"], ["y"], nodes), lambda name: None, lambda node, values: [-values["a"]])
        >>> [str(node) for node in folded.nodes], folded.constants["b"].tolist()
        (['y = Reshape(x, b)  # y'], [-2, 1])
    """
    folding = _Folding(program, known, evaluate)
    nodes = [settled for node in program.nodes if (settled := folding.settle(node)) is not None]
    nodes = needed_nodes(nodes, program.outputs)
    read = values_read(nodes, program.outputs)
    constants = {name: value for name, value in folding.values.items() if name in read}
    return replace(program, nodes=nodes, constants=constants)


class _Folding:
    """The values that are known so far."""

    def __init__(self, program: Program, known: Callable[[str], np.ndarray | None], evaluate: Evaluate) -> None:
        self.program, self.known, self.evaluate = program, known, evaluate
        self.values: Values = dict(program.constants)
        self.sizes: dict[str, tuple[Dim, ...]] = {}  # shapes, and parts of them, that are not known altogether
        # What a normalisation updates is no constant, though it does not train.
        self.moving = {n for node in program.nodes if node.op_type == "BatchNormalization" for n in node.inputs[3:5]}

    def settle(self, node: Node) -> Node | None:
        """The node as it is to run; None if its value is known now."""
        if set(node.writes) & set(self.program.outputs) or node.domain or node.graphs or node.is_random:
            return node
        outputs = self.computed(node)
        if outputs is None:
            return self.sized(node)
        self.values.update((name, value) for name, value in zip(node.outputs, outputs, strict=False) if name)
        return None

    def value(self, name: str) -> np.ndarray | None:
        """A known value, None for what only a run can tell."""
        if name in self.values:
            return self.values[name]
        return None if name in self.moving else self.known(name)

    def computed(self, node: Node) -> list[np.ndarray] | None:
        """The outputs of a node, if they are known."""
        if node.op_type == "Constant":
            return [constant_value(node)]
        if node.op_type == "Shape":
            shape = self.describe(node.inputs[0]).shape
            part = None if shape is None else shape[node.attribute("start", 0) : node.attribute("end")]
            return None if part is None else self.part(node, part)
        if node.op_type in ("Slice", "Gather") and node.inputs[0] in self.sizes:
            chosen = self.chosen(node, self.sizes[node.inputs[0]])
            return None if chosen is None else self.part(node, chosen)
        if node.op_type == "Size":
            size = self.describe(node.inputs[0]).size
            return None if size is None else [np.array(size, np.int64)]
        small = all((self.describe(v).size or 0) <= MOST for v in node.writes)
        if not small or any(self.describe(v).dtype not in _DTYPES for v in node.writes if v in self.described):
            return None
        values = {name: self.value(name) for name in node.reads}
        known = {name: value for name, value in values.items() if value is not None}
        if len(known) < len(values) or any(str(value.dtype) not in _DTYPES for value in known.values()):
            return None
        outputs = self.evaluate(node, known) if known else None
        return outputs if outputs is not None and all(value.size <= MOST for value in outputs) else None

    def part(self, node: Node, sizes: tuple[Dim, ...]) -> list[np.ndarray] | None:
        """Some sizes of a shape, if they are known; else they are remembered, for those who want fewer of them."""
        if not _static(sizes):
            self.sizes[node.outputs[0]] = sizes
            return None
        place = self.value(node.inputs[1]) if node.op_type == "Gather" else None
        return [np.array(sizes, np.int64).reshape(-1 if place is None else place.shape)]

    def chosen(self, node: Node, sizes: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
        """Sizes that a Slice or a Gather takes of a shape."""
        known = [self.value(name) for name in node.inputs[1:]]
        if any(value is None for value in known):
            return None
        numbers = [value.reshape(-1).tolist() for value in known if value is not None]
        if node.op_type == "Gather":
            return (
                tuple(sizes[place] for place in numbers[0])
                if all(-len(sizes) <= n < len(sizes) for n in numbers[0])
                else None
            )
        begin, end, _, step = (*numbers, [0], [1])[:4] if len(numbers) == 2 else (*numbers, [1])[:4]
        return sizes[slice(begin[0], end[0], step[0])] if step[0] > 0 else None

    @property
    def described(self) -> Mapping[str, TensorDescriptor]:
        return self.program.descriptors

    def describe(self, name: str) -> TensorDescriptor:
        """Dtype and shape of a value, as far as they are known before it is computed."""
        if name in self.values:
            return TensorDescriptor(str(self.values[name].dtype), self.values[name].shape)
        return self.described.get(name, TensorDescriptor(None, None))

    # -- sizes that a computation tells --------------------------------------------------------------------------------
    def sized(self, node: Node) -> Node:
        """A Reshape or an Expand with its sizes written down, as far as these are known."""
        if node.op_type not in ("Reshape", "Expand") or self.value(node.inputs[1]) is not None:
            return node
        before, after = self.describe(node.inputs[0]).shape, self.describe(node.outputs[0]).shape
        if after is None or node.attributes.get("allowzero"):
            return node
        sizes = _reshape(before, after) if node.op_type == "Reshape" else _expand(before, after)
        if sizes is None:
            return node
        name = f"{node.outputs[0]}:sizes"
        self.values[name] = np.array(sizes, np.int64)
        return replace(node, inputs=(node.inputs[0], name))


def _static(sizes: tuple[Dim, ...]) -> bool:
    return all(isinstance(n, int) for n in sizes)


def _reshape(before: tuple[Dim, ...] | None, after: tuple[Dim, ...]) -> list[int] | None:
    """Sizes for Reshape: symbols that stay in their place are 0, one further unknown size is -1."""
    sizes, unknown = [], 0
    for place, size in enumerate(after):
        if isinstance(size, int):
            if size == 0:
                return None  # would mean a copy
            sizes.append(size)
        elif size is not None and before is not None and place < len(before) and before[place] == size:
            sizes.append(0)
        else:
            unknown += 1
            sizes.append(-1)
    return sizes if unknown <= 1 else None


def _expand(before: tuple[Dim, ...] | None, after: tuple[Dim, ...]) -> list[int] | None:
    """Sizes for Expand: 1 keeps a size that is there."""
    if before is None:
        return None
    aligned: tuple[Dim, ...] = (*[1] * (len(after) - len(before)), *before)
    sizes = [
        n if isinstance(n, int) else 1 if n is not None and n == old else None
        for n, old in zip(after, aligned, strict=True)
    ]
    return None if None in sizes else [n for n in sizes if n is not None]


__all__ = ["MOST", "Evaluate", "fold"]
