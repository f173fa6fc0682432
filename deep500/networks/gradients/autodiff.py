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

import numpy as np

from deep500.errors import NetworkError, UnsupportedOperator, nearest
from deep500.networks.emit import Emitter
from deep500.networks.gradients.reach import Flow, find_flow, is_floating, prepare, reads, refusal, refused_operands
from deep500.networks.gradients.rules import GradContext
from deep500.networks.gradients.rules.custom import find_rule
from deep500.networks.graph import AnyGraph, Graph
from deep500.networks.losses import find_loss, gradient_name
from deep500.networks.node import Node
from deep500.networks.quantization import differentiable
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
    backward = _BackwardWalk.over(work, [loss], targets)
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
    backward = _BackwardWalk.over(network, list(seeds), targets)
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
    if refused := refused_operands(network, flow):
        raise refusal(refused)
    return [(name, gradient_name(name)) for name in network.trainable() if name in flow.values]


class _BackwardWalk:
    """The walk from the loss to the targets over a private copy of the network."""

    def __init__(self, work: Graph, flow: Flow, refused: list[tuple[Node, str]]) -> None:
        self.work, self.flow = work, flow
        self.emitter = Emitter(work, "grad/")
        self.totals: dict[str, str] = {}  # value -> its gradient, of the readers that were passed
        self.shapes: dict[str, str] = {}  # value -> its Shape node's output, which rules share
        self.refused = refused

    @classmethod
    def over(cls, work: Graph, losses: Sequence[str], targets: Sequence[str]) -> _BackwardWalk:
        return cls(work, *prepare(work, losses, targets))

    def run(self, seeds: Mapping[str, str], targets: Sequence[str], named: bool = True) -> list[str]:
        """Emit the gradients; ``named`` makes them outputs under their names. Returns their values."""
        self.totals = dict(seeds)
        for node in reversed(self.work.nodes):
            if node.name in self.flow.inputs:
                self._pass(node)
        if self.refused:
            raise refusal(self.refused)
        self.emitter.prefix = "grad/"
        totals = [self.totals.get(name) or self._zeros(name) for name in targets]
        for name, total in zip(targets, totals if named else (), strict=False):
            self.emitter("Identity", total, output=gradient_name(name))
            if name in self.flow.descriptors:  # what inference loses inside control flow
                self.work.declare({gradient_name(name): self.flow.descriptors[name]})
            self.work.add_output(gradient_name(name))
        return totals

    def seed(self, loss: str) -> str:
        """The gradient of the loss with respect to itself: 1 in its shape."""
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
            return  # prepare has put it among the refused
        grads = [self.totals.get(value) for value in node.outputs]
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
        for i, (value, result) in enumerate(zip(reads(node), results, strict=False)):
            if i in needed and result is not None:
                self._contribute(value, str(result))

    def _contribute(self, value: str, part: str) -> None:
        """Add to the gradient of a value what one of its readers gives, at once: no part waits for the others."""
        if value in self.totals:
            self.emitter.prefix = f"grad/{value}/"
            part = self.emitter("Add", self.totals[value], part)
        self.totals[value] = part

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
    if not is_floating(loss, network.descriptors()):
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
        if not is_floating(name, descriptors):
            raise NetworkError(f"got {name!r} of {descriptors[name]} in wrt; expected a floating value: leave it out")
        if network.has_value(gradient_name(name)):
            raise NetworkError(
                f"got {name!r} in wrt while {gradient_name(name)!r} exists; expected that name to be free: take the "
                "gradient with respect to an Identity of it"
            )
