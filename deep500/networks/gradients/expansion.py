"""Rewrite operators that have no rule into operators that have: ONNX's function bodies, unrolled recurrences and loops,
samples of a grid by gathers, sequences by the tensors that they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from deep500.faces import NamedParts
from deep500.networks.emit import Emitter
from deep500.networks.graph import Graph
from deep500.networks.node import Node, rename_captures
from deep500.networks.rewrite import supersede
from deep500.tensors import TensorDescriptor

Descriptors = Mapping[str, TensorDescriptor]
Expansion = Callable[[Graph, Node, Descriptors], "dict[str, str] | None"]
_HERE = "deep500.networks.gradients"
EXPANSIONS: Mapping[str, Expansion] = NamedParts(
    {
        **dict.fromkeys(("GRU", "LSTM", "RNN"), f"{_HERE}.unrolling:unroll"),
        "AffineGrid": f"{_HERE}.sampling:expand_affine_grid",
        "GridSample": f"{_HERE}.sampling:expand_grid_sample",
        "If": f"{_HERE}.loops:take_branch",
        "Loop": f"{_HERE}.loops:unroll_loop",
    }
)
"""Operators that are written as others where that can be, in place of the function body that ONNX may give them."""


def expand_nodes(network: Graph, names: Sequence[str], descriptors: Descriptors) -> bool:
    """Expand those of the named nodes that can be; returns whether any was.

    Args:
        network: is edited; expanded nodes keep the names of their outputs.
        names: nodes.
        descriptors: of the network's values.
    """
    replacements = {}
    for name in names:
        node = network.node(name)
        written = EXPANSIONS.get(node.op_type) if not node.domain else None
        successors = None if written is None else written(network, node, descriptors)
        if successors is None:
            successors = expand_function(network, node, descriptors)
        if successors is not None:
            replacements[name] = successors
    if replacements:
        supersede(network, replacements)
    if any("Sequence" in network.node(n).op_type for n in names if n not in replacements):
        from deep500.networks.gradients.sequences import lower_sequences

        return lower_sequences(network, descriptors) or bool(replacements)
    return bool(replacements)


def expand_function(network: Graph, node: Node, descriptors: Descriptors) -> dict[str, str] | None:
    """Add the nodes of an operator's function body under fresh names; None if ONNX defines none.

    Returns:
        for each output of the node the value that equals it.
    """
    from deep500.networks.bodies import expand

    body = expand(node, descriptors)
    if body is None or any(inner.op_type == node.op_type and inner.domain == node.domain for inner in body):
        return None
    return _insert(network, node, body)


def _insert(network: Graph, node: Node, body: Sequence[Node]) -> dict[str, str]:
    """Add a body's nodes under fresh names; returns for each output of ``node`` the value that equals it."""
    emitter = Emitter(network, f"{node.name}/")
    names = {v: v for v in node.inputs}
    for inner in body:
        outputs = [
            network.fresh_name(f"{emitter.prefix}{v.removeprefix(emitter.prefix)}") if v else "" for v in inner.outputs
        ]
        attributes = {k: rename_captures(value, lambda v: names.get(v, v)) for k, value in inner.attributes.items()}
        inputs = [names[v] if v else "" for v in inner.inputs]
        names.update(zip(inner.outputs, outputs, strict=True))
        network.add_node(inner.op_type, inputs, outputs, domain=inner.domain, **attributes)
    for value in node.writes:
        if network.producer(names[value]) is None:
            names[value] = emitter("Identity", names[value])
    return {value: names[value] for value in node.writes}
