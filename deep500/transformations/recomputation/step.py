"""One training step as a network, taken apart: what runs forward, what reverses it, and what is kept in between.

The gradient is the one that :meth:`deep500.networks.Network.with_gradient` emits, so what is kept is what it reads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deep500.errors import NetworkError
from deep500.networks.execution.modes import training_network
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.transformations.recomputation.liveness import value_bytes, with_batch


@dataclass(frozen=True)
class Step:
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
    def kept(self) -> set[str]:
        """Values that the backward nodes read and the forward ones write: what is recorded."""
        written = {value for node in self.forward for value in node.writes}
        return written.intersection(value for node in self.backward for value in node.reads)


def training_step(network: Network, batch: int, loss: str = "loss") -> Step:
    """The step of a network with ``batch`` samples.

    Raises:
        PlanError: sizes that do not follow from the inputs'.
        NetworkError, UnsupportedOperator: there is no such loss, or no gradient of it.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> step = training_step(add_loss(create("mlp", shape=(4,), classes=3)), 8)
        >>> len(step.forward), sorted(step.kept)[:2], step.sizes["loss"]
        (6, ['output', 'relu1'], 4)
    """
    training, updates = training_network(with_batch(network, batch))
    whole = training.with_gradient(loss)
    if not training.gradient(loss):
        raise NetworkError(
            f"got loss {loss!r}, which no trainable parameter influences; expected one that does: name another"
        )
    own = {value for node in training.nodes for value in node.writes}
    forward = {node.name for node in needed(whole, own & set(whole.values()))}
    path = tuple(needed(whole, [loss]))
    backward = tuple(node for node in whole.nodes if node.name not in forward)
    return Step(whole, updates, loss, path, backward, value_bytes(whole))


def needed(network: Network, values: Iterable[str]) -> list[Node]:
    """The nodes on which values depend, in order.

    Example:
        >>> from deep500.networks import create
        >>> [node.name for node in needed(create("mlp"), ["flatten"])]
        ['flatten']
    """
    wanted, chosen = set(values), []
    for node in reversed(network.nodes):
        if wanted.intersection(node.writes):
            wanted.update(node.reads)
            chosen.append(node)
    return chosen[::-1]
