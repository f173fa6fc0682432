"""Gradients of quantised networks by the straight-through estimator, which is used only where it is asked for.

Rounding has a derivative of zero, so nothing before a ``QuantizeLinear`` has a gradient. The estimator takes rounding
for the identity: the gradient of a quantised and dequantised value goes to the value itself where the integer type
could hold it, and is zero where it was cut off (Bengio et al. 2013; PyTorch's ``fake_quantize``). It is written into
the network in operators of ONNX, so that it means the same in every backend: ``y`` becomes ``y + scale * (f - held)``,
where ``f`` is what rounding takes away from ``x / scale``, and ``held`` is ``f`` by way of whole numbers, which no
gradient passes. The term is zero (at most 2e-19 of the scale), its derivative is one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deep500.errors import InputError, UnsupportedOperator, nearest
from deep500.networks.emit import Emitter
from deep500.networks.graph import AnyGraph, Graph
from deep500.networks.node import Node
from deep500.networks.protos import UNKNOWN
from deep500.networks.rewrite import supersede
from deep500.tensors import TensorDescriptor, dtype_to_onnx, numpy_dtype

QUANTIZATIONS = ("straight_through",)
"""Values of the argument ``quantization``, besides None: quantised values have no gradient, as mathematics says."""
INTEGER_OPERATORS = frozenset({"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"})
"""Operators that compute with quantised values, which the estimator cannot pass."""
_BITS = 2.0**62  # what |f| <= 1/2 is multiplied with before it becomes an int64


def differentiable(network: AnyGraph, quantization: str | None = None) -> AnyGraph:
    """The network as gradients see it: itself for None, :func:`straight_through` of it for ``"straight_through"``.

    Raises:
        InputError: another ``quantization``.
    """
    if quantization is None:
        return network
    if quantization not in QUANTIZATIONS:
        raise InputError(
            f"got quantization={quantization!r}; expected None or one of {QUANTIZATIONS}: "
            f"{nearest(str(quantization), QUANTIZATIONS)}"
        )
    return straight_through(network)


def straight_through(network: AnyGraph) -> AnyGraph:
    """A copy whose pairs of QuantizeLinear and DequantizeLinear hand gradients on; its values are the network's.

    Args:
        network: stays as it is; quantised to integers, in ONNX's QDQ format. Weights that the file holds as integers
            have no gradient: keep them as floating parameters before a QuantizeLinear.

    Raises:
        UnsupportedOperator: quantised values that something else than DequantizeLinear reads, blocks of scales, or
            types that are no integers; every such node is named.

    Example:
        >>> net = Graph(); net.add_parameter("w", np.array([0.26, -0.4, 90.0], "float32"))
        >>> net.add_parameter("scale", np.array(0.5, "float32"), trainable=False)
        >>> net.add_parameter("zero", np.array(0, "int8"), trainable=False)
        >>> net.add_node("QuantizeLinear", ["w", "scale", "zero"], "q")
        >>> net.add_node("DequantizeLinear", ["q", "scale", "zero"], "y")
        >>> net.add_node("ReduceSum", "y", "loss", keepdims=0)
        >>> from deep500.networks import gradient_names
        >>> gradient_names(net, "loss"), gradient_names(straight_through(net), "loss")
        ([], [('w', 'w.grad')])
    """
    work, descriptors = network.copy(), network.descriptors()
    refused, replaced = _unfit(network, descriptors), dict[str, dict[str, str]]()
    for node in network.nodes:
        if node.op_type == "DequantizeLinear" and not node.domain:
            source = _quantizer(network, node.inputs[0])
            if source is not None and source.name not in refused:
                replaced[node.name] = {node.outputs[0]: _estimate(work, source, node, descriptors)}
    if refused:
        listed = "; ".join(f"{network.node(name).op_type} in node {name!r} ({why})" for name, why in refused.items())
        raise UnsupportedOperator(
            f"got {len(refused)} node(s) that a straight-through estimator cannot pass: {listed}; expected the QDQ "
            "format: QuantizeLinear to integers, by one scale or one for each channel, and DequantizeLinear after it"
        )
    supersede(work, replaced)
    return work


def _unfit(network: Graph, descriptors: Mapping[str, TensorDescriptor]) -> dict[str, str]:
    """Nodes that keep the estimator from being right, and why."""
    reasons = {}
    for node in network.nodes:
        inner = [proto.op_type for graph in node.graphs for proto in graph.node]
        if node.op_type in INTEGER_OPERATORS:
            reasons[node.name] = "it computes with quantised values"
        elif INTEGER_OPERATORS.union({"QuantizeLinear"}).intersection(inner):
            reasons[node.name] = "its sub-graph quantises"
        elif node.op_type == "QuantizeLinear" and not node.domain:
            others = [n.op_type for n in network.consumers(node.outputs[0]) if n.op_type not in _READERS]
            dtype = descriptors.get(node.outputs[0], UNKNOWN).dtype or "unknown"
            x, scale = (descriptors.get(v, UNKNOWN).shape for v in node.inputs[:2])
            if others:
                reasons[node.name] = f"its values are read by {', '.join(sorted(set(others)))}"
            elif "int" not in dtype:
                reasons[node.name] = f"to {dtype}"
            elif node.attribute("block_size") or scale is None or (scale and x is None):
                reasons[node.name] = "by blocks, or by scales of unknown shape"
    return reasons


_READERS = ("DequantizeLinear", "Identity")


def _quantizer(network: Graph, value: str) -> Node | None:
    """The QuantizeLinear that a value comes from."""
    node = network.producer(value)
    while node is not None and node.op_type == "Identity" and not node.domain:
        node = network.producer(node.inputs[0])
    return node if node is not None and node.op_type == "QuantizeLinear" and not node.domain else None


def _estimate(work: Graph, source: Node, node: Node, descriptors: Mapping[str, TensorDescriptor]) -> str:
    """Add the dequantised value with its straight-through term; returns its name."""
    emit = Emitter(work, f"{node.name}/straight_through/")
    dtype = descriptors[source.inputs[0]].dtype or "float32"
    wide = "float64" if dtype == "float64" else "float32"

    def number(value: float) -> str:
        return emit.constant(np.array(value, numpy_dtype(wide)))

    def real(value: str, source_dtype: str | None) -> str:
        return value if source_dtype == wide else emit("Cast", value, to=dtype_to_onnx(wide))

    x, scale = (real(v, descriptors[v].dtype) for v in source.inputs[:2])
    zero = source.inputs[2] if len(source.inputs) > 2 else ""
    shape, rank = descriptors[source.inputs[1]].shape or (), len(descriptors[source.inputs[0]].shape or ())
    spread = _axes(shape, rank, int(source.attribute("axis")))

    def along(value: str) -> str:
        return emit("Unsqueeze", value, emit.ints(*spread)) if spread else value

    scale = along(scale)
    steps = emit("Div", x, scale)
    rounded = emit("Round", steps)
    level = emit("Add", rounded, along(real(zero, None))) if zero else rounded
    low, high = _range(descriptors[source.outputs[0]].dtype or "uint8")
    inside = emit("And", emit("GreaterOrEqual", level, number(low)), emit("LessOrEqual", level, number(high)))
    part = emit("Where", inside, emit("Sub", steps, rounded), number(0))
    whole = emit("Cast", emit("Mul", part, number(_BITS)), to=dtype_to_onnx("int64"))
    real_part = emit("Mul", real(whole, None), number(1 / _BITS))
    term = emit("Mul", emit("Sub", part, real_part), scale)
    y = emit("DequantizeLinear", *node.inputs, **node.attributes)
    out = descriptors[node.outputs[0]].dtype or wide
    return emit("Add", y, term if out == wide else emit("Cast", term, to=dtype_to_onnx(out)))


def _axes(scale: tuple[object, ...], rank: int, axis: int) -> list[int]:
    """Axes that a scale for each channel lacks behind its own, to be broadcast; none for one scale."""
    if not scale or scale == (1,):
        return []
    return list(range(1, rank - axis % rank))


def _range(dtype: str) -> tuple[float, float]:
    """The least and the greatest number of an integer type, those of four and two bits included."""
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    return (0.0, 2.0**bits - 1) if dtype.startswith("u") else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)
