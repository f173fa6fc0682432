"""Nodes between the features of tokens and their loss, rewritten to work on rows: one for each token of each sample.

What stands between is often the same for every (sample, token), in whatever order axes lie: (items, tokens, width) goes
through a product, is transposed to (items, classes, tokens) and meets labels (items, tokens). In *row form* every such
value has one leading axis of all (sample, token) pairs and the axes of its features behind it, so that it can be cut
anywhere along the rows. A rule per operator says how; what has none is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deep500.networks.emit import Emitter
from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.tensors import TensorDescriptor
from deep500.transformations.batch_axes import ELEMENTWISE, LOSSES, SUMS, Mixes, constant_numbers, rank_of, reduced_axes

Layout = tuple[tuple[int, ...] | None, ...]
"""Of each axis of a value the axes of the rows that it walks, first to last; None for an axis of features."""


def _features(layout: Layout) -> list[int]:
    return [axis for axis, rows in enumerate(layout) if rows is None]


@dataclass
class RowForm:
    """Nodes in row form.

    Attributes:
        network: whose nodes they are.
        described: its values.
        starts: values from which the nodes begin: features of rows along their last axis.
        shared: values that all rows share, such as parameters.
        layouts: of the values known so far.
        nodes: in row form, on values of the same names.
        constants: parameters that these need, by name.
        reshaped: shared values under new names: which, and in what shape.
    """

    network: Graph
    described: Mapping[str, TensorDescriptor]
    starts: Sequence[str]
    shared: set[str]
    layouts: dict[str, Layout] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    reshaped: dict[str, tuple[str, list[int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        leading = {self._shape(name)[:-1] for name in self.starts}
        if len(leading) != 1 or () in leading:
            raise Mixes(f"the values {list(self.starts)} from which it begins have rows of their own: {leading}")
        rank = len(leading.pop())
        for name in self.starts:
            self.layouts[name] = (*((axis,) for axis in range(rank)), None)

    def add(self, node: Node, end: bool) -> None:
        """Add a node; ``end`` says that its result is the sum over all rows.

        Raises:
            Mixes: no rule, or rows that do not stay apart.
        """
        rule = _RULES.get(node.op_type) if not node.domain else None
        if end and not node.domain and node.op_type in SUMS:
            return self._write(node, [node.inputs[0]], (), keepdims=0)
        if rule is None:
            raise Mixes("no rule says that it keeps the rows of tokens apart")
        rule(self, node)
        return None

    def shape_in_rows(self, name: str) -> tuple[Any, ...]:
        """The shape of a value in row form."""
        shape, layout = self._shape(name), self.layouts[name]
        return ("rows", *(shape[axis] for axis in _features(layout)))

    def rows_of(self, op: Emitter, name: str) -> str:
        """Write the nodes that bring a value into row form; returns the name of the result."""
        layout, shape = self.layouts[name], self._shape(name)
        walked = sorted((rows[0], axis) for axis, rows in enumerate(layout) if rows is not None)
        order = [axis for _, axis in walked] + _features(layout)
        value = name if order == sorted(order) else op("Transpose", name, perm=order)
        if len(walked) == 1:
            return value
        sizes = [shape[axis] for axis in _features(layout)]
        if not all(isinstance(size, int) for size in sizes):
            raise Mixes(f"{name!r} has features of unknown size: {shape}")
        return op("Reshape", value, op.ints(-1, *sizes))

    # -- what rules use ---------------------------------------------------------------------------------------------
    def _shape(self, name: str) -> tuple[Any, ...]:
        rank_of(name, self.described)
        return self.described[name].shape or ()

    def _write(self, node: Node, inputs: Sequence[str], layout: Layout, **changed: Any) -> None:
        """Add a node whose results have a layout."""
        self._keep(node, inputs, dict.fromkeys(node.writes, layout), **changed)

    def _keep(self, node: Node, inputs: Sequence[str], layouts: Mapping[str, Layout], **changed: Any) -> None:
        attributes = {name: value for name, value in {**node.attributes, **changed}.items() if value is not None}
        self.nodes.append(Node(node.op_type, tuple(inputs), node.outputs, node.name, node.domain, attributes))
        self.layouts.update(layouts)

    def _integers(self, node: Node, numbers: Sequence[int]) -> str:
        name = f"{node.name}.in_rows"
        self.constants[name] = np.array(numbers, np.int64)
        return name

    def _only(self, node: Node, place: int = 0) -> Layout:
        """The layout of a node's first input, if the others are shared."""
        if any(name in self.layouts for i, name in enumerate(node.inputs) if i != place):
            raise Mixes("several of its inputs have rows")
        if node.inputs[place] not in self.layouts:
            raise Mixes(f"{node.inputs[place]!r} has no rows")
        return self.layouts[node.inputs[place]]

    def _demand(self, name: str, layout: Layout) -> None:
        """Let a value that comes from outside, such as labels, have a layout."""
        shape = self._shape(name)
        if self.layouts.setdefault(name, layout) != layout or len(shape) != len(layout):
            raise Mixes(f"{name!r} does not have one number for every row")
        if any(rows is not None and size == 1 for rows, size in zip(layout, shape, strict=True)):
            raise Mixes(f"{name!r} has one number for several rows")

    def _aligned(self, name: str, layout: Layout) -> str:
        """A shared value as it is broadcast against rows: without the axes, of size 1, that stand where rows do."""
        shape = self._shape(name)
        if len(shape) > len(layout):
            raise Mixes(f"{name!r} has more axes than what it is broadcast against")
        covered = list(zip(shape, layout[len(layout) - len(shape) :], strict=True))
        if any(rows is not None and size != 1 for size, rows in covered):
            raise Mixes(f"{name!r} has numbers of its own for some rows")
        if all(rows is None for _, rows in covered):
            return name
        sizes = [size for size, rows in covered if rows is None]
        new = f"{name}.of_{'x'.join(map(str, sizes))}"
        self.reshaped[new] = name, sizes
        return new

    def _feature(self, node: Node, layout: Layout, axis: int) -> int:
        """The place in row form of an axis that must be one of features."""
        axis %= len(layout)
        if layout[axis] is not None:
            raise Mixes("it goes over rows")
        return 1 + _features(layout).index(axis)


def _elementwise(form: RowForm, node: Node) -> None:
    layouts = {form.layouts[name] for name in node.reads if name in form.layouts}
    if len(layouts) != 1:
        raise Mixes("its inputs have their rows along different axes")
    layout = layouts.pop()
    for name in node.reads:
        if name not in form.layouts and name not in form.shared:
            form._demand(name, layout)
    inputs = [form._aligned(name, layout) if name in form.shared else name for name in node.inputs]
    form._write(node, inputs, layout)


def _product(form: RowForm, node: Node) -> None:
    layout = form._only(node)
    if layout[-1] is not None or rank_of(node.inputs[1], form.described) != 2 or node.attribute("transA", 0):
        raise Mixes("it sums over rows, or has several matrices")
    if len(node.inputs) > 2 and node.inputs[2]:
        form._aligned(node.inputs[2], layout)
    inputs = [*node.inputs[:2], *(form._aligned(name, layout) for name in node.inputs[2:] if name)]
    form._write(node, inputs, layout)


def _transpose(form: RowForm, node: Node) -> None:
    layout = form._only(node)
    order = node.attribute("perm") or tuple(range(len(layout)))[::-1]
    new, before = tuple(layout[axis] for axis in order), _features(layout)
    moved = [before.index(axis) for axis in order if layout[axis] is None]
    form._write(node, node.inputs, new, perm=(0, *(1 + place for place in moved)))


def _along_features(form: RowForm, node: Node) -> None:
    """Softmax, LayerNormalization and their like: along one axis of features, or from one on."""
    layout, axis = form._only(node), int(node.attribute("axis", -1))
    place = form._feature(node, layout, axis)
    if node.op_type in ("LayerNormalization", "RMSNormalization") and None in layout[: axis % len(layout)]:
        raise Mixes("it goes over some of the features")
    if node.op_type in ("LayerNormalization", "RMSNormalization") and any(
        rows is not None for rows in layout[axis % len(layout) :]
    ):
        raise Mixes("it goes over rows")
    form._write(node, node.inputs, layout, axis=place)


def _reduce(form: RowForm, node: Node) -> None:
    layout, axes = form._only(node), reduced_axes(node, form.described, form.network)
    places = [form._feature(node, layout, axis) for axis in axes]
    left = tuple(rows for axis, rows in enumerate(layout) if node.attribute("keepdims", 1) or axis not in axes)
    form._write(node, [node.inputs[0], form._integers(node, places)], left)


def _reshape(form: RowForm, node: Node) -> None:
    """Rows, which all stand first, become one axis; features stay."""
    layout, shape = form._only(node), form._shape(node.inputs[0])
    first = len(layout) - len(_features(layout))
    rows = [part for part in layout[:first] if part is not None]
    walked = tuple(axis for part in rows for axis in part)
    target = constant_numbers(node, 1, form.network)
    if len(rows) < first or list(walked) != sorted(walked) or target != [-1, *shape[first:]]:
        raise Mixes(f"its shape {target} puts rows and features together")
    sizes = form._integers(node, target)
    form._write(node, [node.inputs[0], sizes], (walked, *layout[first:]))


def _loss(form: RowForm, node: Node) -> None:
    """Scores have their classes along axis 1, labels one number for every row."""
    scores, labels = node.inputs[:2]
    layout = form.layouts.get(scores, ())
    if labels in form.shared or len(layout) < 2 or layout[1] is not None or len(_features(layout)) != 1:
        raise Mixes("its scores have no classes along axis 1, or rows elsewhere")
    form._demand(labels, (layout[0], *layout[2:]))
    single = (layout[0], *layout[2:]) if node.attribute("reduction", "mean") == "none" else ()
    form._keep(node, node.inputs, dict(zip(node.outputs, (single, layout), strict=False)))


_RULES: dict[str, Callable[[RowForm, Node], None]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    **dict.fromkeys(LOSSES, _loss),
    **dict.fromkeys(SUMS, _reduce),
    **dict.fromkeys(("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization"), _along_features),
    "Gemm": _product,
    "MatMul": _product,
    "Reshape": _reshape,
    "Transpose": _transpose,
}
