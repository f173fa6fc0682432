"""Gradients as a transformation of networks: (network, loss, wrt) -> network with further outputs, the gradients.

The nodes are walked backwards, each operator's rule (:mod:`deep500.networks.gradients.rules`) emits ONNX nodes, and
where a value is read several times the contributions are summed. A backend therefore needs forward kernels only.

* An operator without a rule is expanded if ONNX defines it as a function, recurrent ones are unrolled; what is left is
  one UnsupportedOperator naming every node, but only nodes through which a gradient really flows count.
* Custom operators bring their own ``backward``: :mod:`deep500.networks.gradients.rules.custom`.
* Zero stands for "the derivative is zero", never for "not implemented": see
  :data:`deep500.networks.gradients.rules.ZERO`.
* Sizes, axes, indices of Slice and Pad and exponents that are fixed parameters are read when the gradient is built, as
  are sizes that shape inference knows; all else, the batch size above all, is left to the run.
* The network means what ONNX says, so BatchNormalization with ``training_mode=0`` is differentiated as the affine map
  that it is; :func:`deep500.networks.execution.modes.training_network` puts a network into training mode first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from deep500.errors import NetworkError, UnsupportedOperator, nearest
from deep500.networks.custom import is_custom
from deep500.networks.emit import Emitter
from deep500.networks.gradients.expansion import expand_nodes
from deep500.networks.gradients.rules import FLAT, RULES, ZERO, GradContext
from deep500.networks.gradients.rules.custom import find_rule, why_not
from deep500.networks.graph import AnyGraph, Graph
from deep500.networks.losses import find_loss, gradient_name
from deep500.networks.node import Node
from deep500.networks.quantization import differentiable
from deep500.networks.rewrite import extend_outputs
from deep500.tensors import TensorDescriptor, numpy_dtype


def with_gradient(
    network: AnyGraph, loss: str = "loss", wrt: Iterable[str] | None = None, quantization: str | None = None
) -> AnyGraph:
    """A copy of a network whose further outputs are the gradients of a scalar.

    Args:
        network: stays as it is.
        loss: a floating value with one element.
        wrt: parameters, inputs or inner values; every trainable parameter that the loss depends on if None.
        quantization: None: quantised values have no gradient; ``"straight_through"``: that of
            :func:`deep500.networks.quantization.straight_through`.

    Returns:
        the copy; the gradient of ``name`` is its output ``gradient_name(name)``. What is in ``wrt`` but has no
        influence on the loss has a gradient of zeros.

    Raises:
        NetworkError: the loss or a name of ``wrt`` does not exist, or is not what it must be.
        UnsupportedOperator: a gradient would have to pass operators that have no rule; all of them are named.

    Example:
        >>> net = Graph(); net.add_input("x", (3,)); net.add_parameter("w", np.ones(3, "float32"))
        >>> net.add_node("Mul", ["x", "w"], ["y"]); net.add_node("ReduceSum", ["y"], ["loss"], keepdims=0)
        >>> with_gradient(net).outputs
        ['w.grad']
    """
    network = differentiable(network, quantization)
    _check_loss(network, loss)
    targets = [name for name, _ in gradient_names(network, loss)] if wrt is None else list(dict.fromkeys(wrt))
    _check_targets(network, targets)
    work = network.copy()
    backward = _Backward.of(work, [loss], targets)
    backward.run({loss: backward.seed(loss)}, targets)
    return work


def pull_back(network: Graph, seeds: Mapping[str, str], targets: Sequence[str]) -> list[str]:
    """Add to a network the gradient of a sum over values, each times its seed; how bodies of loops are differentiated.

    Args:
        network: is edited. All that it has without the new nodes it has afterwards too.
        seeds: for each value the one, of the same shape, that is its gradient.
        targets: values to differentiate with respect to.

    Returns:
        for each target the name of its gradient, zeros where nothing flows.

    Raises:
        UnsupportedOperator: as :func:`with_gradient`.
    """
    backward = _Backward.of(network, list(seeds), targets)
    return backward.run(seeds, targets, named=False)


def gradient_names(network: Graph, loss: str = "loss", quantization: str | None = None) -> list[tuple[str, str]]:
    """``[(parameter, name of its gradient)]`` for the trainable parameters that ``loss`` depends on.

    A parameter from which only rounding leads to the loss (:data:`~deep500.networks.gradients.rules.FLAT`) is among
    them, with a gradient of zeros; one that only decides (comparisons, indices, shapes) is not.

    Raises:
        UnsupportedOperator: a trainable parameter reaches an operand that has no gradient in any backend.
    """
    network = differentiable(network, quantization)
    find_loss(network, loss)
    flow = find_flow(network, [loss], network.trainable(), flat=True)
    if refused := _refused_operands(network, flow):
        raise _refusal(refused)
    return [(name, gradient_name(name)) for name in network.trainable() if name in flow.values]


@dataclass
class Flow:
    """Where gradients flow: the values between the targets and the loss, and the inputs of each node among them."""

    values: set[str]
    inputs: dict[str, frozenset[int]]  # node -> indices of what it reads (see _reads) that needs a gradient
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
            reached.update(v for v in node.writes if _floating(v, descriptors))
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


def _reads(node: Node) -> tuple[str, ...]:
    """What a node reads, as gradients count it: its inputs, then what its sub-graphs capture."""
    return (*node.inputs, *node.captured)


def _floating(value: str, descriptors: Mapping[str, TensorDescriptor]) -> bool:
    """Whether a value may carry a gradient: reals of any kind, sequences of them, and what is unknown."""
    dtype = descriptors[value].dtype if value in descriptors else None
    return dtype is None or "float" in dtype or "complex" in dtype


def _differentiable(node: Node, descriptors: Mapping[str, TensorDescriptor], flat: bool) -> list[tuple[int, str]]:
    """(index, value) of what a gradient may reach through a node; captured values count on after the inputs."""
    zero = node.op_type in ZERO and not node.domain and not (flat and node.op_type in FLAT)
    if zero or not any(_floating(v, descriptors) for v in node.writes):
        return []
    rule = RULES.get((node.domain, node.op_type))
    blocked = rule.blocks(node) if rule else frozenset()
    return [(i, v) for i, v in enumerate(_reads(node)) if v and i not in blocked and _floating(v, descriptors)]


def _prepare(work: Graph, losses: Sequence[str], targets: Sequence[str]) -> tuple[Flow, list[tuple[Node, str]]]:
    """Expand operators without a rule and give nodes the outputs that their rules read; ``work`` is edited.

    Returns where gradients flow after that, and the nodes that no gradient can pass, each with the reason.
    """
    flow = find_flow(work, losses, targets)
    # An expansion may bring operators that have no rule either (a function's body may hold a function), and it may show
    # that no gradient flows through some: the flow is computed anew until there is nothing to expand.
    while expand_nodes(work, [*(missing := _without_rule(work, flow)), *_control_flow(work, flow)], flow.descriptors):
        flow = find_flow(work, losses, targets)
    rules = {name: find_rule(work.node(name), flow.descriptors) for name in flow.inputs if name not in missing}
    wanted = {name: rule.outputs for name, rule in rules.items() if rule is not None and rule.outputs > 1}
    extend_outputs(work, wanted)
    if any(is_custom(work.node(name)) for name in wanted):  # their rules read the dtypes of all outputs
        flow = find_flow(work, losses, targets)
    without = [(work.node(name), _why_not(work.node(name), flow)) for name in missing]
    return flow, [*without, *_refused_operands(work, flow)]


def _refused_operands(network: Graph, flow: Flow) -> list[tuple[Node, str]]:
    """Nodes into whose operands a gradient would flow that no backend has."""
    found = []
    for name, indices in flow.inputs.items():
        node = network.node(name)
        rule = RULES.get((node.domain, node.op_type))
        found += [
            (node, f"{rule.refused[i]} has no gradient: do not train it") for i in indices if rule and i in rule.refused
        ]
    return found


def _without_rule(network: Graph, flow: Flow) -> list[str]:
    """Nodes that a gradient would have to pass and that have no rule."""
    return [name for name in flow.inputs if find_rule(network.node(name), flow.descriptors) is None]


def _control_flow(network: Graph, flow: Flow) -> list[str]:
    """If and Loop nodes that a gradient passes: where what they do is known they are written out despite their rule."""
    return [name for name in flow.inputs if network.node(name).op_type in ("If", "Loop")]


def _why_not(node: Node, flow: Flow) -> str:
    """What keeps a gradient from passing a node, for the error message."""
    if "Sequence" in node.op_type and not node.domain:
        return "sequences need lengths and positions that are known when the network is built"
    if is_custom(node):
        return why_not(node, flow.descriptors) or "no rule"
    if node.op_type in ("LSTM", "GRU", "RNN"):
        return "recurrent operators need a sequence length that is known when the network is built"
    return "no rule"


def _refusal(refused: Sequence[tuple[Node, str]]) -> UnsupportedOperator:
    listed = "; ".join(
        f"{n.domain + '.' if n.domain else ''}{n.op_type} in node {n.name!r} ({why})" for n, why in refused
    )
    return UnsupportedOperator(
        f"got {len(refused)} node(s) that a gradient cannot pass: {listed}; expected operators with a gradient rule: "
        "enter one with @deep500.networks.gradients.rules.gradient_rule, or leave out of wrt what lies behind them"
    )


class _Backward:
    """The walk from the loss to the targets over a private copy of the network."""

    def __init__(self, work: Graph, flow: Flow, refused: list[tuple[Node, str]]) -> None:
        self.work, self.flow = work, flow
        self.emitter = Emitter(work, "grad/")
        self.contributions: dict[str, list[str]] = {}  # value -> parts of its gradient, as far as they were emitted
        self.shapes: dict[str, str] = {}  # value -> its Shape node's output, which rules share
        self.refused = refused

    @classmethod
    def of(cls, work: Graph, losses: Sequence[str], targets: Sequence[str]) -> _Backward:
        return cls(work, *_prepare(work, losses, targets))

    def run(self, seeds: Mapping[str, str], targets: Sequence[str], named: bool = True) -> list[str]:
        """Emit the gradients; ``named`` makes them outputs under their names. Returns their values."""
        self.contributions = {value: [seed] for value, seed in seeds.items()}
        for node in reversed(self.work.nodes):
            if node.name in self.flow.inputs:
                self._pass(node)
        if self.refused:
            raise _refusal(self.refused)
        self.emitter.prefix = "grad/"
        totals = [self._total(name) or self._zeros(name) for name in targets]
        for name, total in zip(targets, totals if named else (), strict=False):
            self.emitter("Identity", total, output=gradient_name(name))
            if name in self.flow.descriptors:  # what inference loses inside control flow
                self.work.declare({gradient_name(name): self.flow.descriptors[name]})
            self.work.add_output(gradient_name(name))
        return totals

    def seed(self, loss: str) -> str:
        described = self.flow.descriptors.get(loss, TensorDescriptor())
        dtype = numpy_dtype(described.dtype or "float32")
        if described.shape is not None:  # it has one element: _check_loss
            return self.emitter.constant(np.ones((1,) * len(described.shape), dtype))
        return self.emitter("ConstantOfShape", self.emitter("Shape", loss), value=np.ones(1, dtype))

    def _pass(self, node: Node) -> None:
        """Turn the gradients of a node's outputs into contributions to those of its inputs.

        Nodes come in reverse order, so all readers of the outputs have contributed, and the sums are complete.
        """
        rule = find_rule(node, self.flow.descriptors)
        if rule is None:
            return  # _prepare has put it among the refused
        grads = [self._total(value) for value in node.outputs]
        if not any(grads):
            return
        self.emitter.prefix = f"grad/{node.name}/"
        needed = self.flow.inputs[node.name]
        context = GradContext(self.emitter, node, self.flow.descriptors, grads, needed, self.shapes, pull_back)
        try:
            results = rule.function(context)
        except UnsupportedOperator as error:
            self.refused.append((node, str(error)))
            return
        for i, (value, result) in enumerate(zip(_reads(node), results, strict=False)):
            if i in needed and result is not None:
                self.contributions.setdefault(value, []).append(str(result))

    def _total(self, value: str) -> str | None:
        """The gradient of a value, the sum of what its readers contribute (emitted once); None if none flows."""
        parts = self.contributions.get(value)
        if not parts or not value:
            return None
        if len(parts) > 1:
            self.emitter.prefix = f"grad/{value}/"
            parts[:] = [self.emitter("Add" if len(parts) == 2 else "Sum", *parts)]
        return parts[0]

    def _zeros(self, value: str) -> str:
        described = self.flow.descriptors.get(value, TensorDescriptor())
        zero = np.zeros(1, numpy_dtype(described.dtype or "float32"))
        return self.emitter("ConstantOfShape", self.emitter("Shape", value), value=zero)


def _check_loss(network: Graph, loss: str) -> None:
    find_loss(network, loss)
    described = network.descriptors().get(loss, TensorDescriptor(None, None))
    declared = {d for i in network.inputs.values() for d in i.shape or () if isinstance(d, str)}
    if any((isinstance(d, int) and d != 1) or d in declared for d in described.shape or ()):
        raise NetworkError(f"got loss {loss!r} of {described}; expected one element: reduce it, e.g. with ReduceMean")
    if not _floating(loss, network.descriptors()):
        raise NetworkError(
            f"got loss {loss!r} of {described}; expected a floating dtype: Cast it, or name another value"
        )


def _check_targets(network: Graph, targets: Sequence[str]) -> None:
    descriptors = network.descriptors()
    for name in targets:
        if not network.has_value(name):
            raise NetworkError(
                f"got {name!r} in wrt; expected a value of the network: {nearest(name, network.values())}"
            )
        if not _floating(name, descriptors):
            raise NetworkError(f"got {name!r} of {descriptors[name]} in wrt; expected a floating value: leave it out")
        if network.has_value(gradient_name(name)):
            raise NetworkError(
                f"got {name!r} in wrt while {gradient_name(name)!r} exists; expected that name to be free: take the "
                "gradient with respect to an Identity of it"
            )
