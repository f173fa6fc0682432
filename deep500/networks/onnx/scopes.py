"""Names and arrays of sub-graphs: names that hide others around them, valid in ONNX, and weights that stand inside.

A :class:`~deep500.networks.network.Network` gives every name one meaning, so such names get a number on reading, and
its parameters are its own, so bodies capture their weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import numpy_helper


def reveal(graph: onnx.GraphProto) -> None:
    """Rename, in place, what sub-graphs define under names that graphs around them have.

    Example:
        >>> from onnx import parser
        >>> graph = parser.parse_graph('''g (bool c, float[2] x) => (float[2] y) {
        ...     y = If (c) <then_branch = t () => (float[2] a) <float[2] x = {1, 2}> {a = Neg(x)},
        ...                 else_branch = e () => (float[2] b) {b = Abs(x)}>}''')
        >>> reveal(graph)
        >>> then, otherwise = (a.g for a in graph.node[0].attribute)
        >>> then.initializer[0].name, then.node[0].input[0], otherwise.node[0].input[0]
        ('x_1', 'x_1', 'x')
    """
    if any(True for node in graph.node for _ in _bodies(node)):
        _reveal_in(graph, set(_local_names(graph)), set(_every(graph)))


def lift_weights(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Take floating arrays of several elements out of sub-graphs, in place, and let these capture them; returns them.

    Left are those that a body gives or takes: an output cannot be captured.

    Example:
        >>> from onnx import parser
        >>> graph = parser.parse_graph('''g (bool c, float[2] x) => (float[2] y) {
        ...     y = If (c) <then_branch = t () => (float[2] a) <float[2] w = {1, 2}> {a = Mul(x, w)},
        ...                 else_branch = e () => (float[2] b) <float[2] w = {3, 4}> {b = Mul(x, w)}>}''')
        >>> {name: array.tolist() for name, array in lift_weights(graph).items()}
        {'w_1': [1.0, 2.0], 'w_2': [3.0, 4.0]}
    """
    inner = list(_within(graph))
    defined = Counter(name for body in (graph, *inner) for name in _local_names(body))
    taken, lifted = set(_every(graph)) if inner else set(), dict[str, np.ndarray]()
    for body in inner:
        passed = {value.name for value in (*body.input, *body.output)}
        for tensor in [t for t in body.initializer if t.name not in passed]:
            array = np.asarray(numpy_helper.to_array(tensor))
            if array.size < 2 or array.dtype.kind in "iubOSU":
                continue
            name = tensor.name
            if defined[name] > 1:
                name = _fresh(name, taken)
                _rename(body, {tensor.name: name})
            lifted[name] = array
            body.initializer.remove(tensor)
    return lifted


def _within(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for body in _bodies(node):
            yield body
            yield from _within(body)


def _reveal_in(graph: onnx.GraphProto, around: set[str], taken: set[str]) -> None:
    for node in graph.node:
        for body in _bodies(node):
            names = {}
            for name in dict.fromkeys(_local_names(body)):
                if name in around:
                    names[name] = _fresh(name, taken)
            if names:
                _rename(body, names)
            _reveal_in(body, around | set(_local_names(body)), taken)


def _fresh(name: str, taken: set[str]) -> str:
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    taken.add(f"{name}_{number}")
    return f"{name}_{number}"


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Follow the renaming wherever a name is written or read, but not into bodies that define it for themselves."""
    for described in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        described.name = names.get(described.name, described.name)
    for sparse in graph.sparse_initializer:
        sparse.values.name = names.get(sparse.values.name, sparse.values.name)
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]
        for body in _bodies(node):
            hidden = set(_local_names(body))
            _rename(body, {old: new for old, new in names.items() if old not in hidden})


def _local_names(graph: onnx.GraphProto) -> Iterator[str]:
    """The names that a graph itself defines."""
    yield from (v.name for v in graph.input)
    yield from (t.name for t in graph.initializer)
    yield from (s.values.name for s in graph.sparse_initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _every(graph: onnx.GraphProto) -> Iterator[str]:
    """All names in a graph and its sub-graphs."""
    yield from _local_names(graph)
    for node in graph.node:
        yield from node.input
        for body in _bodies(node):
            yield from _every(body)


def _bodies(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs
