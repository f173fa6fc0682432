"""Model of a step's time on several ranks: latency and bytes of collectives, operations and bytes of nodes.

Collectives by ring algorithms take ``messages * latency + volume * byte_time`` (the a-b model; Thakur et al. 2005, doi
10.1177/1094342005051521); a node takes the longer of its operations and the bytes that it touches; both take a start.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from deep500.networks.flops import count_flops
from deep500.transformations.parallel.dividing import StepGraph
from deep500.transformations.parallel.shardings import Resharding

_VIEWS = frozenset({"Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze"})  # they touch no element


@dataclass(frozen=True)
class StepCosts:
    """Constants of the model, in seconds; the defaults are round numbers for processes of one machine.

    Attributes:
        latency: of a message.
        byte_time: of a byte on its way.
        operation_time: of a floating-point operation.
        memory_time: of a byte that a node reads or writes.
        start: of a node, or of a collective.
    """

    latency: float = 2e-5
    byte_time: float = 5e-10
    operation_time: float = 5e-11
    memory_time: float = 1e-10
    start: float = 2e-6

    def collective(self, resharding: Resharding) -> float:
        """Seconds of a change of sharding.

        Example:
            >>> from deep500.transformations.parallel.shardings import PARTIAL, R, conversion
            >>> StepCosts(latency=1, byte_time=1, start=0).collective(conversion(PARTIAL, R, (4,), 8, 2))
            34.0
        """
        if not resharding.messages:
            return 0.0
        return self.start + resharding.messages * self.latency + resharding.volume * self.byte_time

    def data(self) -> dict[str, float]:
        """The constants as JSON holds them."""
        return asdict(self)


def node_seconds(graph: StepGraph, model: StepCosts) -> dict[str, float]:
    """Seconds of each node on one rank, without its start.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.parallel.joint import joint_network
        >>> network = add_loss(create("mlp", shape=(4,), hidden=(8,), classes=3))
        >>> graph = StepGraph(joint_network(network, {"input": (6, 4), "label": (6,)}), 2)
        >>> node_seconds(graph, StepCosts(operation_time=1, memory_time=0))["fc1"] >= 2 * 6 * 4 * 8
        True
    """
    operations = count_flops(graph.network)

    def touched(names: tuple[str, ...]) -> int:
        return sum(math.prod(graph.shapes[n]) * graph.itemsize(n) for n in names if n)

    return {
        node.name: 0.0
        if node.op_type in _VIEWS
        else max(
            (operations.get(node.name) or 0) * model.operation_time,
            touched((*node.inputs, *node.outputs)) * model.memory_time,
        )
        for node in graph.nodes
    }
