"""Two edits of the ONNX models that converters write: inputs become parameters, values get other names.

Converters of frameworks without named parameters are given the parameters as inputs, so that none is folded or renamed;
here they become initializers again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from deep500.networks.protos import tensor_proto


def bind_inputs(model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> None:
    """Turn inputs of a model into initializers of these values; those that no node reads are left out.

    Example:
        >>> from onnx import parser
        >>> text = "g (float[2] x, float[2] w) => (float[2] y) { y = Mul(x, w) }"
        >>> model = parser.parse_model('<ir_version: 10, opset_import: ["": 20]>' + text)
        >>> bind_inputs(model, {"w": np.ones(2, "float32")})
        >>> [v.name for v in model.graph.input], [t.name for t in model.graph.initializer]
        (['x'], ['w'])
    """
    graph = model.graph
    inputs = [value for value in graph.input if value.name not in values]
    del graph.input[:]
    graph.input.extend(inputs)
    read = _read(graph)
    graph.initializer.extend(tensor_proto(array, name) for name, array in values.items() if name in read)


def rename_values(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Give values of a graph, its inner graphs included, other names; what has such a name gets a new one.

    Example:
        >>> from onnx import parser
        >>> graph = parser.parse_graph("g (float[2] a) => (float[2] b) { b = Relu(a) }")
        >>> rename_values(graph, {"a": "input", "b": "output"})
        >>> list(graph.node[0].input), graph.output[0].name
        (['input'], 'output')
    """
    changes = {old: new for old, new in names.items() if old != new}
    _rename(graph, {**{new: f"{new}__inner" for new in changes.values() if new not in changes}, **changes})


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for described in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        described.name = names.get(described.name, described.name)
    for node in graph.node:
        for values in (node.input, node.output):
            values[:] = [names.get(value, value) for value in values]
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner, names)


def _read(graph: onnx.GraphProto) -> set[str]:
    names = {value.name for value in graph.output}
    for node in graph.node:
        names.update(node.input)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                names |= _read(inner)
    return names
