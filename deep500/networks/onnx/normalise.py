"""Bring the graphs of other exporters into the form that networks have, without changing what they compute.

* ``Constant`` nodes and weights of sub-graphs become parameters; an ``Identity`` of an initializer is that initializer,
  or one of its own if it holds one number (exporters share equal arrays behind Identity nodes);
* BatchNormalization with ``training_mode=1`` whose running statistics are unread, and Dropout with a constant true
  ``training_mode``, which PyTorch exports of a network in training, become the forms that follow the executor's mode;
* Scans of opset 8 keep the batch axis that ONNX's converter drops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from itertools import count

import numpy as np
import onnx
from onnx import helper, numpy_helper

from deep500.errors import NetworkError
from deep500.networks.node import defined, graphs_of
from deep500.networks.onnx.scopes import lift_weights
from deep500.networks.onnx.trainable import judge
from deep500.networks.onnx.tying import Arrays, reads, resolve_identities, set_nodes

_MOST_ELEMENTS = 2**31


def densify(sparse: onnx.SparseTensorProto) -> np.ndarray:
    """A sparse tensor as an ordinary array; raises NetworkError if it does not fit into 2^31 elements."""
    shape = tuple(sparse.dims)
    total = int(np.prod(shape, dtype=object))
    if total > _MOST_ELEMENTS:
        raise NetworkError(
            f"got a sparse tensor of shape {shape}; expected at most {_MOST_ELEMENTS} elements: store it differently"
        )
    values = numpy_helper.to_array(sparse.values)
    indices = numpy_helper.to_array(sparse.indices)
    dense = np.zeros(shape, values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


def normalise(graph: onnx.GraphProto, arrays: Arrays, constants: set[str], by_tracing: bool = False) -> bool:
    """Rewrite the graph and its arrays in place, adding the names of arrays that are not weights to ``constants``.

    Args:
        graph, arrays, constants: of a file; they are changed.
        by_tracing: whether PyTorch's older exporter wrote it.

    Returns:
        Whether arrays that were stored once are parted.
    """
    arrays |= lift_weights(graph)
    constants |= _lift_constants(graph, arrays)
    weights = judge(graph, arrays, constants).trainable if by_tracing else None
    parted = resolve_identities(graph, arrays, constants, weights)
    _own_statistics(graph, arrays)
    read = {value for node in graph.node for value in reads(node)} | {v.name for v in graph.output}
    for node in graph.node:
        if node.domain == "" and node.op_type == "BatchNormalization":
            _follow_mode(node, read, arrays)
        elif node.domain == "" and node.op_type == "Dropout" and len(node.input) == 3:
            switch = arrays.get(node.input[2])
            if switch is not None and bool(switch):
                inputs = [node.input[0], node.input[1]] if node.input[1] else [node.input[0]]
                del node.input[:]
                node.input.extend(inputs)
                if len(node.output) == 2 and node.output[1] not in read:
                    del node.output[1:]  # a mask that exporters name in training mode
    read = {value for node in graph.node for value in reads(node)} | {v.name for v in graph.output}
    for name in constants - read:
        arrays.pop(name, None)
    return parted


def _lift_constants(graph: onnx.GraphProto, arrays: Arrays) -> set[str]:
    """Move the values of Constant nodes into ``arrays``; returns their names."""
    lifted = set()
    others = []
    inner = {v for node in graph.node for g in graphs_of(node) for v in defined(g)}
    for node in graph.node:
        is_constant = node.op_type == "Constant" and node.domain == "" and len(node.attribute) == 1
        if is_constant and node.output[0] not in inner:  # parameters must not be hidden in sub-graphs
            arrays[node.output[0]] = _constant(node.attribute[0])
            lifted.add(node.output[0])
        else:
            others.append(node)
    set_nodes(graph, others)
    return lifted


def _constant(attribute: onnx.AttributeProto) -> np.ndarray:
    """The array that a Constant node's only attribute holds, in any of its forms."""
    value = helper.get_attribute_value(attribute)
    if attribute.name == "value":
        return np.asarray(numpy_helper.to_array(value))
    if attribute.name == "sparse_value":
        return densify(value)
    if attribute.name.startswith("value_string"):
        texts = [v.decode() for v in (value if isinstance(value, list) else [value])]
        return np.array(texts if isinstance(value, list) else texts[0], object)
    return np.array(value, np.float32 if "float" in attribute.name else np.int64)


def _follow_mode(node: onnx.NodeProto, read: set[str], arrays: Arrays) -> None:
    """Let a BatchNormalization follow the executor's mode unless its running statistics are outputs that are read.

    Statistics that the graph computes are no running ones: ``F.batch_norm`` of weights (NFNet) uses the batch's always.
    """
    training = any(a.name == "training_mode" and a.i for a in node.attribute)
    if training and not read & set(node.output[1:]) and arrays.keys() >= set(node.input[3:5]):
        attributes = [a for a in node.attribute if a.name != "training_mode"]
        del node.attribute[:], node.output[1:]
        node.attribute.extend(attributes)


def _own_statistics(graph: onnx.GraphProto, arrays: Arrays) -> None:
    """Give running statistics arrays of their own where something else reads theirs.

    Exporters store equal arrays once, and those of an untrained BatchNormalization are zeros and ones as its bias and
    scale are: updating the statistics would change the weights. Nodes that share all four are one layer, used again.
    """
    normalizations = [n for n in graph.node if n.domain == "" and n.op_type == "BatchNormalization"]
    layers = {tuple(node.input[1:5]) for node in normalizations}
    uses = Counter(value for node in graph.node if node not in normalizations for value in {*reads(node)})
    uses.update(value for layer in layers for value in layer)
    taken = {value for node in graph.node for value in (*reads(node), *node.output)} | arrays.keys()
    renamed: dict[tuple[str, ...], list[str]] = {}
    for layer in sorted(layers):
        names = list(layer)
        for place, what in ((2, "running_mean"), (3, "running_var")):
            name = names[place]
            if name in arrays and uses[name] > 1:
                uses[name] -= 1
                names[place] = next(
                    fresh for k in count(1) if (fresh := f"{names[0]}.{what}{f'.{k}' * (k > 1)}") not in taken
                )
                taken.add(names[place])
                arrays[names[place]] = np.array(arrays[name])
        renamed[layer] = names
    for node in normalizations:
        node.input[1:5] = renamed[tuple(node.input[1:5])]


# -- Scan of opset 8 ---------------------------------------------------------------------------------------------------
def find_scans(graph: onnx.GraphProto) -> set[str]:
    """The Scans of a graph, by the name of the first output."""
    return {node.output[0] for node in graph.node if node.op_type == "Scan" and not node.domain}


def restore_batch_axis(graph: onnx.GraphProto, scans: Container[str], before: onnx.GraphProto) -> None:
    """Give Scans back the batch axis that they had in opset 8, in front of everything; in place.

    ONNX's version converter only takes that axis off the declared shapes, which changes what the node means. Here an
    outer Scan without states walks over the batch, and its body is the node that the converter made. Sequences of
    different lengths (the input ``sequence_lens``), which later opsets cannot express, are refused by the converter.

    Args:
        graph: what the converter made of ``before``.
        scans: :func:`find_scans` of ``before``.
        before: the graph as it was, from which the shapes of the inputs are taken again.
    """
    shapes = {value.name: value.type for value in before.input}
    for value in graph.input:
        if value.name in shapes:
            value.type.CopyFrom(shapes[value.name])
    for node in graph.node:
        if node.op_type == "Scan" and node.output[0] in scans:
            _nest(node)


def write_out(graph: onnx.GraphProto, opset: int) -> None:
    """Write nodes of older opsets so that ONNX's converter, which does not know what they meant, can do no harm.

    Before opset 11 a Pad that repeats what is there may have a value, which nothing reads; before 13 Hardmax takes all
    axes from its own on as one.
    """
    nodes = list(graph.node)
    for node in nodes:
        for inner in graphs_of(node):
            write_out(inner, opset)
        if node.op_type == "Pad" and opset < 11:
            mode = next((a.s for a in node.attribute if a.name == "mode"), b"constant")
            others = [a for a in node.attribute if a.name != "value" or mode == b"constant"]
            del node.attribute[:]
            node.attribute.extend(others)
    if opset < 13 and any(node.op_type == "Hardmax" for node in nodes):
        del graph.node[:]
        for node in nodes:
            graph.node.extend(_of_rows(node) if node.op_type == "Hardmax" else [node])


def _of_rows(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """An operator on the rows that an input is coerced to."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    x, y = node.input[0], node.output[0]
    shape, rows, results = (f"{y}/{part}" for part in ("shape", "rows", "results"))
    return [
        helper.make_node("Shape", [x], [shape]),
        helper.make_node("Flatten", [x], [rows], axis=axis),
        helper.make_node(node.op_type, [rows], [results], node.name, axis=1),
        helper.make_node("Reshape", [results, shape], [y]),
    ]


def restore_places(graph: onnx.GraphProto, opset: int) -> None:
    """Let nodes of older opsets sample where they did, which ONNX's converter leaves to newer defaults.

    Resize and Upsample read ``x / scale`` before opset 11, RoiAlign had no half pixels before 16.
    """
    for node in graph.node:
        way = {"Resize": "asymmetric" if opset < 11 else "", "RoiAlign": "output_half_pixel" if opset < 16 else ""}
        old = way.get(node.op_type, "")
        if old and not any(a.name == "coordinate_transformation_mode" for a in node.attribute):
            node.attribute.append(helper.make_attribute("coordinate_transformation_mode", old))
            if node.op_type == "Resize":
                node.attribute.append(helper.make_attribute("nearest_mode", "floor"))
        for inner in graphs_of(node):
            restore_places(inner, opset)


def _nest(node: onnx.NodeProto) -> None:
    """Turn a Scan into one over the batch whose body is the Scan."""
    body = next(a.g for a in node.attribute if a.name == "body")
    scanned = next(a.i for a in node.attribute if a.name == "num_scan_inputs")
    inputs = [_of_sample(v, i >= len(node.input) - scanned) for i, v in enumerate(body.input)]
    outputs = [_of_sample(v, i >= len(node.input) - scanned) for i, v in enumerate(body.output)]
    inner = onnx.NodeProto()
    inner.CopyFrom(node)
    inner.input[:], inner.output[:] = [v.name for v in inputs], [v.name for v in outputs]
    over_batch = helper.make_graph([inner], f"{body.name}_of_sample", inputs, outputs)
    del node.attribute[:]
    node.attribute.append(helper.make_attribute("body", over_batch))
    node.attribute.append(helper.make_attribute("num_scan_inputs", len(node.input)))


def _of_sample(value: onnx.ValueInfoProto, scanned: bool) -> onnx.ValueInfoProto:
    """A value of the inner body as the outer one sees it: what is scanned has its steps in front."""
    outer = onnx.ValueInfoProto()
    outer.CopyFrom(value)
    outer.name = f"{value.name}_of_sample"
    tensor = outer.type.tensor_type
    if scanned and tensor.HasField("shape"):
        sizes = list(tensor.shape.dim)
        del tensor.shape.dim[:]
        tensor.shape.dim.add()
        tensor.shape.dim.extend(sizes)
    return outer
