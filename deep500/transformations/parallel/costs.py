"""Model of a step's time on several ranks: latency and bytes of collectives, operations and bytes of nodes.

Collectives take ``messages * latency + volume * byte_time + summed * sum_time`` (the a-b model; Thakur et al. 2005, doi
10.1177/1094342005051521); a node takes the longer of its operations and the bytes that it touches; both take a start.
What the first three are of ranks that are there, :func:`deep500.distributed.pingpong.measured_costs` measures.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from deep500.networks.flops import count_flops
from deep500.transformations.parallel.shardings import Resharding

if TYPE_CHECKING:
    from deep500.transformations.parallel.dividing import StepGraph

ROUND_NUMBERS = "round numbers for processes of one machine, not measured"
"""Where the default costs come from."""

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
        sum_time: of a byte that is added to another rank's; 0 where ``byte_time`` has it in it.
        cut: of a collective, at which a step is cut in pieces that frameworks run one by one.
    """

    latency: float = 2e-5
    byte_time: float = 5e-10
    operation_time: float = 5e-11
    memory_time: float = 1e-10
    start: float = 2e-6
    sum_time: float = 0.0
    cut: float = 0.0

    def collective(self, resharding: Resharding) -> float:
        """Seconds of a change of sharding.

        Example:
            >>> from deep500.transformations.parallel.shardings import PARTIAL, R, conversion
            >>> StepCosts(latency=1, byte_time=1, start=0).collective(conversion(PARTIAL, R, (4,), 8, 2))
            34.0
        """
        if not resharding.messages:
            return 0.0
        moved = resharding.volume * self.byte_time + resharding.summed * self.sum_time
        return self.start + self.cut + resharding.messages * self.latency + moved

    def data(self) -> dict[str, float]:
        """The constants as JSON holds them."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{1e6 * self.latency:.3g} us a message, {1e9 * self.byte_time:.3g} ns a byte"
            f"{f', {1e9 * self.sum_time:.3g} ns a byte of a sum' if self.sum_time else ''}, "
            f"{1e6 * self.cut:.3g} us a collective, {1e9 * self.operation_time:.3g} ns an operation"
        )


USUAL_COSTS = StepCosts(cut=1e-4)
"""Round numbers for processes of one machine that train by :class:`~deep500.distributed.schemes.DividedNetwork`."""


def node_seconds(graph: StepGraph, model: StepCosts) -> dict[str, float]:
    """Seconds of each node on one rank, without its start.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.parallel.dividing import StepGraph
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
            touched((*node.reads, *node.outputs)) * model.memory_time,
        )
        for node in graph.nodes
    }
