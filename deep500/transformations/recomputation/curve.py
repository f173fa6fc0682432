"""What is held over one training step, node by node: the curve whose highest point a plan lowers."""

from __future__ import annotations

from typing import NamedTuple

from deep500.transformations.recomputation.liveness import live_bytes, value_bytes
from deep500.transformations.recomputation.recompute import Recomputing
from deep500.transformations.recomputation.regions import NetworkRegions


class MemoryCurve(NamedTuple):
    """Bytes over the course of a step: ``held[i]`` from ``at[i]`` to ``at[i + 1]``.

    Attributes:
        at: one number more than ``held``, never falling, from 0 to the time of the step.
        held: bytes.
        turn: when the backward pass begins, None where that is not known.
    """

    at: tuple[float, ...]
    held: tuple[int, ...]
    turn: float | None = None

    @property
    def peak(self) -> int:
        """Most bytes held."""
        return max(self.held, default=0)


def memory_curve(found: NetworkRegions, again: Recomputing | None = None) -> MemoryCurve:
    """The predicted curve, for executors that run nodes in order and free every value after its last reader.

    Args:
        found: the regions of the network, whose times and time unit the curve has.
        again: the step with a plan, see :func:`deep500.transformations.recomputation.planned_step`; None for that
        without.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation import find_regions, plan_network, planned_step
        >>> network = add_loss(create("resnet", depth=8))
        >>> found, plan = find_regions(network, batch=2), plan_network(network, 0.9, batch=2)
        >>> without, planned = memory_curve(found), memory_curve(found, planned_step(network, plan)[1])
        >>> planned.peak == plan.predicted_peak < without.peak, planned.at[-1] > without.at[-1]
        (True, True)
    """
    step = found.step
    network, repeated = (step.network, ()) if again is None else (again.network, again.repeated)
    known, backward = {node.name for node in step.network.nodes}, {node.name for node in step.backward}
    source = iter(repeated)  # duplicates stand in the network in the order in which they are listed
    clock, turn, at = 0.0, None, [0.0]
    for node in network.nodes:
        original = node if node.name in known else next(source)
        if turn is None and (node.name in backward or node.name not in known):
            turn = clock
        clock += found.times.get(original.writes[0], 0.0)  # running statistics: not timed, as every plan has them
        at.append(clock)
    return MemoryCurve(tuple(at), tuple(live_bytes(network.nodes, value_bytes(network), kept=network.outputs)), turn)
