"""ONNX's own `Gradient` operator (domain ``ai.onnx.preview.training``), replaced by the nodes of the gradient.

``Gradient(xs=["a", "b"], y="c")`` yields dc/da and dc/db. Its inputs must be the values that ``xs`` (and ``zs``) name:
ONNX also allows to evaluate the gradient at other values, which would need a second copy of the graph and is refused.
"""

from __future__ import annotations

from deep500.errors import UnsupportedOperator
from deep500.networks.graph import AnyGraph
from deep500.networks.losses import gradient_name
from deep500.networks.node import Node
from deep500.networks.rewrite import supersede

DOMAIN = "ai.onnx.preview.training"


def replace_gradient_nodes(network: AnyGraph) -> AnyGraph:
    """The network with every Gradient node replaced by what it stands for; the network itself if it has none.

    Raises:
        UnsupportedOperator: a Gradient node at other values than those that it names, or operators without a rule.
        NetworkError: ``y`` is not a floating value with one element.
    """
    gradients = [node for node in network.nodes if node.domain == DOMAIN and node.op_type == "Gradient"]
    for node in gradients:
        network = _replace(network, node)
    return network


def _replace(network: AnyGraph, node: Node) -> AnyGraph:
    """A copy in which the emitted gradients take over the names of one Gradient node's outputs."""
    xs, zs = list(node.attribute("xs")), list(node.attribute("zs") or ())
    if list(node.inputs) != xs + zs:
        raise UnsupportedOperator(
            f"node {node.name!r} (Gradient): got inputs {list(node.inputs)}; expected {xs + zs}, which xs and zs name: "
            "connect it to those"
        )
    from deep500.networks.gradients.autodiff import with_gradient  # most networks hold no such node

    extended = with_gradient(network, node.attribute("y"), xs)
    for name in xs:
        extended.remove_output(gradient_name(name))
    successors = {output: gradient_name(x) for x, output in zip(xs, node.outputs, strict=False) if output}
    supersede(extended, {node.name: successors})
    return extended
