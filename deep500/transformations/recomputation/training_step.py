"""One training step as a network, taken apart: what runs forward, what reverses it, and which bytes are held when.

The gradient is the one that :meth:`deep500.networks.Network.with_gradient` emits, so what is kept is what it reads. A
value is held from the node that writes it to its last reader, as executors that free values early do. Inputs and
parameters are held by others and do not count. Sizes are exact where shape inference is; what it does not know is an
error, not 0.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral

from deep500.errors import NetworkError, PlanError
from deep500.networks.execution.modes import training_network
from deep500.networks.flow import is_flow
from deep500.networks.graph import AnyGraph, Graph
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.operators.registry import DOMAIN, is_pure
from deep500.tensors import TensorDescriptor, numpy_dtype


def with_batch(network: AnyGraph, batch: int) -> AnyGraph:
    """A copy in which every symbolic size of an input is ``batch``.

    Example:
        >>> from deep500.networks import create
        >>> with_batch(create("mlp", shape=(4,), classes=3), 8).inputs["input"].shape
        (8, 4)
    """
    check_batch(batch)
    twin = network.copy()
    for name, described in network.inputs.items():
        shape = described.shape and tuple(batch if isinstance(size, str) else size for size in described.shape)
        twin.set_input(name, shape)
    return twin


def check_batch(batch: int) -> None:
    """Raise PlanError unless a batch size is a whole number above 0.

    Example:
        >>> check_batch(8)
    """
    if isinstance(batch, bool) or not isinstance(batch, Integral) or batch < 1:
        raise PlanError(f"got batch size {batch!r}; expected a whole number above 0: give the number of samples")


def value_bytes(network: Graph) -> dict[str, int]:
    """Bytes of every value that a node writes; all sizes of inputs must be numbers (see :func:`with_batch`).

    Raises:
        PlanError: sizes that inference does not know, by name.

    Example:
        >>> net = Network(); net.add_input("x", (8, 3)); net.add_node("Relu", ["x"], ["y"])
        >>> value_bytes(net)
        {'y': 96}
    """
    described = network.descriptors()
    sizes = {value: _bytes(described.get(value)) for node in network.nodes for value in node.writes}
    if unknown := [value for value, size in sizes.items() if size is None]:
        listed = ", ".join(f"{value!r} ({described.get(value)})" for value in unknown[:6])
        raise PlanError(
            f"got {len(unknown)} values of unknown size: {listed}; expected sizes that follow from the inputs': "
            "give the inputs numbers, or constants where shapes are computed"
        )
    return {value: size for value, size in sizes.items() if size is not None}


def _bytes(described: TensorDescriptor | None) -> int | None:
    if described is None or described.size is None or described.dtype is None or "(" in described.dtype:
        return None
    return described.size * numpy_dtype(described.dtype).itemsize


def live_bytes(nodes: Sequence[Node], sizes: Mapping[str, int], lasting: Collection[str] = ()) -> list[int]:
    """Bytes held while each node runs, what it reads and writes included.

    Args:
        nodes: in the order in which they run.
        sizes: bytes by value; what is not in it (inputs, parameters) does not count.
        lasting: values that are held to the end, such as outputs.

    Example:
        >>> net = Network(); net.add_input("x", (8, 3))
        >>> net.add_node("Relu", ["x"], ["a"]); net.add_node("Tanh", ["a"], ["b"]); net.add_node("Abs", ["b"], ["c"])
        >>> live_bytes(net.nodes, value_bytes(net))
        [96, 192, 192]
    """
    last: dict[str, int] = {}
    for i, node in enumerate(nodes):
        last.update(dict.fromkeys((*node.writes, *node.reads), i))
    ends: dict[int, list[str]] = {}
    for value, i in last.items():
        if value not in lasting:
            ends.setdefault(i, []).append(value)
    live, alive, totals = 0, set(), []
    for i, node in enumerate(nodes):
        new = [v for v in node.writes if v not in alive]
        alive.update(new)
        live += sum(sizes.get(v, 0) for v in new)
        totals.append(live)
        done = [v for v in ends.get(i, ()) if v in alive]
        alive.difference_update(done)
        live -= sum(sizes.get(v, 0) for v in done)
    return totals


@dataclass(frozen=True)
class TrainingStep:
    """A training step for one batch size.

    Attributes:
        network: in training mode, its gradients and the new running statistics among its outputs.
        updates: running statistic -> the value that replaces it.
        loss: the scalar that is differentiated.
        forward: the nodes on which the loss depends, in order: those that may run again.
        backward: the nodes that the gradient added.
        sizes: bytes of every value that a node writes.
    """

    network: Network
    updates: dict[str, str]
    loss: str
    forward: tuple[Node, ...]
    backward: tuple[Node, ...]
    sizes: dict[str, int]

    @property
    def recorded(self) -> set[str]:
        """Values that the backward nodes read and the forward ones write: what is recorded."""
        written = {value for node in self.forward for value in node.writes}
        return written.intersection(value for node in self.backward for value in node.reads)


def training_step(network: Network, batch: int, loss: str = "loss") -> TrainingStep:
    """The step of a network with ``batch`` samples.

    Raises:
        PlanError: sizes that do not follow from the inputs'.
        NetworkError, UnsupportedOperator: there is no such loss, or no gradient of it.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> step = training_step(add_loss(create("mlp", shape=(4,), classes=3)), 8)
        >>> len(step.forward), sorted(step.recorded)[:2], step.sizes["loss"]
        (6, ['output', 'relu1'], 4)
    """
    training, updates = training_network(with_batch(network, batch))
    whole = training.with_gradient(loss)
    if not training.gradient(loss):
        raise NetworkError(
            f"got loss {loss!r}, which no trainable parameter influences; expected one that does: name another"
        )
    whole.set_nodes(needed(whole, [*whole.outputs, loss, *updates.values()]))
    computed = {value for node in training.nodes for value in node.writes}
    forward = {node.name for node in needed(whole, computed & set(whole.values()))}
    path = tuple(needed(whole, [loss]))
    backward = tuple(node for node in whole.nodes if node.name not in forward)
    return TrainingStep(whole, updates, loss, path, backward, value_bytes(whole))


def needed(network: Graph, values: Iterable[str]) -> list[Node]:
    """The nodes on which values depend, in order.

    Example:
        >>> from deep500.networks import create
        >>> [node.name for node in needed(create("mlp"), ["flatten"])]
        ['flatten']
    """
    open_values, chosen = set(values), []
    for node in reversed(network.nodes):
        if open_values.intersection(node.writes):
            open_values.update(node.reads)
            chosen.append(node)
    return chosen[::-1]


def impurity(node: Node) -> str | None:
    """Reason why a node must not run again, None if it may.

    BatchNormalization may: only its running statistics are state, and those are written by nodes outside of regions,
    once. Custom operators may hold state that we cannot see, unless they are registered as pure; control flow
    may hold any operator.

    Example:
        >>> impurity(Node("Dropout", ("x",), ("y",), "drop"))
        'random numbers'
        >>> impurity(Node("Relu", ("x",), ("y",), "relu"))
    """
    if is_flow(node):
        return None
    if node.domain and not (node.domain == DOMAIN and is_pure(node.op_type)):
        return "custom operator, which may hold state: register_op(..., pure=True) says that it holds none"
    if node.is_random:
        return "random numbers"
    return "control flow" if node.graphs else None
