"""Scan as it was in opset 8, with a batch axis in front of everything, in terms of today's Scan.

ONNX's version converter only takes that axis off the declared shapes, which changes what the node means. Here an outer
Scan without states walks over the batch, and its body is the node that the converter made. Sequences of different
lengths (the input ``sequence_lens``), which later opsets cannot express, are refused by the converter.
"""

from __future__ import annotations

from collections.abc import Container

import onnx
from onnx import helper


def scans(graph: onnx.GraphProto) -> set[str]:
    """The Scans of a graph, by the name of the first output."""
    return {node.output[0] for node in graph.node if node.op_type == "Scan" and not node.domain}


def scan_over_batch(graph: onnx.GraphProto, found: Container[str], before: onnx.GraphProto) -> None:
    """Give Scans the batch axis that they had in opset 8, in place.

    Args:
        graph: what the converter made of ``before``.
        found: :func:`scans` of ``before``.
        before: the graph as it was, from which the shapes of the inputs are taken again.
    """
    shapes = {value.name: value.type for value in before.input}
    for value in graph.input:
        if value.name in shapes:
            value.type.CopyFrom(shapes[value.name])
    for node in graph.node:
        if node.op_type == "Scan" and node.output[0] in found:
            _nest(node)


def _nest(node: onnx.NodeProto) -> None:
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
    twin = onnx.ValueInfoProto()
    twin.CopyFrom(value)
    twin.name = f"{value.name}_of_sample"
    tensor = twin.type.tensor_type
    if scanned and tensor.HasField("shape"):
        sizes = list(tensor.shape.dim)
        del tensor.shape.dim[:]
        tensor.shape.dim.add()
        tensor.shape.dim.extend(sizes)
    return twin
