"""Where gradients flow in a network, which nodes are expanded for that, and which ones no gradient can pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from deep500.errors import UnsupportedOperator
from deep500.networks.custom import is_custom
from deep500.networks.gradients.expansion import expand_nodes
from deep500.networks.gradients.rules import FLAT, RULES, ZERO
from deep500.networks.gradients.rules.custom import find_rule, why_not
from deep500.networks.graph import Graph
from deep500.networks.node import Node
from deep500.networks.rewrite import extend_outputs
from deep500.tensors import TensorDescriptor


@dataclass
class Flow:
    """Where gradients flow: the values between the targets and the loss, and the inputs of each node among them."""

    values: set[str]
    inputs: dict[str, frozenset[int]]  # node -> indices of what it reads (see :func:`reads`) that needs a gradient
    descriptors: Mapping[str, TensorDescriptor]


def find_flow(network: Graph, losses: Iterable[str], targets: Iterable[str], flat: bool = False) -> Flow:
    """The part of a network through which a gradient flows from ``losses`` to ``targets``.

    A value is part of it if a target reaches it going forward *and* a loss reaches it going backward. Both walks are
    needed: the forward one alone would differentiate towards outputs other than the loss, the backward one alone would
    run through inputs and frozen layers (and refuse operators there) although no gradient of them is wanted. ``flat``:
    operators that round count, too.
    """
    descriptors = network.descriptors()
    edges = {node.name: _differentiable(node, descriptors, flat) for node in network.nodes}
    reached = set(targets)
    for node in network.nodes:
        if any(value in reached for _, value in edges[node.name]):
            reached.update(v for v in node.writes if is_floating(v, descriptors))
    needed = set(losses)
    for node in reversed(network.nodes):
        if needed.intersection(node.writes):
            needed.update(value for _, value in edges[node.name])
    values = reached & needed
    inputs = {}
    for node in network.nodes:  # a node counts if it lies between two such values
        indices = frozenset(i for i, value in edges[node.name] if value in values)
        if indices and values.intersection(node.writes):
            inputs[node.name] = indices
    return Flow(values, inputs, descriptors)


def reads(node: Node) -> tuple[str, ...]:
    """Values that a node reads, as gradients count them: its inputs, then those that its sub-graphs capture."""
    return (*node.inputs, *node.captured)


def is_floating(value: str, descriptors: Mapping[str, TensorDescriptor]) -> bool:
    """Whether a value may carry a gradient: reals of any kind, sequences of them, and what is unknown."""
    dtype = descriptors[value].dtype if value in descriptors else None
    return dtype is None or "float" in dtype or "complex" in dtype


def _differentiable(node: Node, descriptors: Mapping[str, TensorDescriptor], flat: bool) -> list[tuple[int, str]]:
    """(index, value) of what a gradient may reach through a node; captured values count on after the inputs."""
    zero = node.op_type in ZERO and not node.domain and not (flat and node.op_type in FLAT)
    if zero or not any(is_floating(v, descriptors) for v in node.writes):
        return []
    rule = RULES.get((node.domain, node.op_type))
    blocked = rule.blocks(node) if rule else frozenset()
    return [(i, v) for i, v in enumerate(reads(node)) if v and i not in blocked and is_floating(v, descriptors)]


def prepare(work: Graph, losses: Sequence[str], targets: Sequence[str]) -> tuple[Flow, list[tuple[Node, str]]]:
    """Expand operators without a rule and give nodes the outputs that their rules read; ``work`` is edited.

    Returns where gradients flow after that, and the nodes that no gradient can pass, each with the reason.
    """
    flow = find_flow(work, losses, targets)
    # An expansion may bring operators that have no rule either (a function's body may hold a function), and it may show
    # that no gradient flows through some: the flow is computed anew until there is nothing to expand.
    while expand_nodes(work, [*(missing := _without_rule(work, flow)), *_control_flow(work, flow)], flow.descriptors):
        flow = find_flow(work, losses, targets)
    rules = {name: find_rule(work.node(name), flow.descriptors) for name in flow.inputs if name not in missing}
    outputs = {name: rule.outputs for name, rule in rules.items() if rule is not None and rule.outputs > 1}
    extend_outputs(work, outputs)
    if any(is_custom(work.node(name)) for name in outputs):  # their rules read the dtypes of all outputs
        flow = find_flow(work, losses, targets)
    without = [(work.node(name), _why_not(work.node(name), flow)) for name in missing]
    return flow, [*without, *refused_operands(work, flow)]


def refused_operands(network: Graph, flow: Flow) -> list[tuple[Node, str]]:
    """Nodes into whose operands a gradient would flow that no backend has."""
    refused = []
    for name, indices in flow.inputs.items():
        node = network.node(name)
        rule = RULES.get((node.domain, node.op_type))
        refused += [
            (node, f"{rule.refused[i]} has no gradient: do not train it") for i in indices if rule and i in rule.refused
        ]
    return refused


def _without_rule(network: Graph, flow: Flow) -> list[str]:
    """Nodes that a gradient would have to pass and that have no rule."""
    return [name for name in flow.inputs if find_rule(network.node(name), flow.descriptors) is None]


def _control_flow(network: Graph, flow: Flow) -> list[str]:
    """If and Loop nodes that a gradient passes: where what they do is known they are written out despite their rule."""
    return [name for name in flow.inputs if network.node(name).op_type in ("If", "Loop")]


def _why_not(node: Node, flow: Flow) -> str:
    """The reason why a gradient cannot pass a node, for the error message."""
    if "Sequence" in node.op_type and not node.domain:
        return "sequences need lengths and positions that are known when the network is built"
    if is_custom(node):
        return why_not(node, flow.descriptors) or "no rule"
    if node.op_type in ("LSTM", "GRU", "RNN"):
        return (
            "recurrent operators need a sequence length that is known when the network is built, and have no gradient "
            "with peepholes, clip, input_forget or activations with numbers of their own"
        )
    return "no rule"


def refusal(refused: Sequence[tuple[Node, str]]) -> UnsupportedOperator:
    listed = "; ".join(
        f"{n.domain + '.' if n.domain else ''}{n.op_type} in node {n.name!r} ({why})" for n, why in refused
    )
    return UnsupportedOperator(
        f"got {len(refused)} node(s) that a gradient cannot pass: {listed}; expected operators with a gradient rule: "
        "enter one with @deep500.networks.gradients.rules.gradient_rule, or leave out of wrt what lies behind them"
    )
