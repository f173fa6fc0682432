"""Recomputation in divided networks: forward values that a rank's backward nodes read and it does not keep.

A rank's network holds forward and backward, so it is a step as :mod:`deep500.transformations.recomputation` plans one.
Results of collectives are kept, so the ranks meet as often as without a plan, in the same order.
"""

from __future__ import annotations

from deep500.errors import BudgetError
from deep500.networks.network import Network
from deep500.networks.node import Node
from deep500.transformations.parallel.joint import JointNetwork
from deep500.transformations.recomputation.budgets import budget_bytes
from deep500.transformations.recomputation.counting import Counter
from deep500.transformations.recomputation.planning import CROSSINGS
from deep500.transformations.recomputation.regions import regions_of
from deep500.transformations.recomputation.training_step import TrainingStep, needed, value_bytes

Regions = tuple[tuple[str, ...], ...]
"""Those that run again, each as the values that its nodes write."""


def backward_nodes(network: Network, joint: JointNetwork) -> tuple[Node, ...]:
    """The nodes of a rank that only gradients need."""
    forward = {node.name for node in needed(network, [*joint.outputs, *joint.updates.values()])}
    return tuple(node for node in network.nodes if node.name not in forward)


def rank_step(network: Network, joint: JointNetwork, loss: str) -> TrainingStep:
    """A rank's network as a step: what runs forward, and what reverses it."""
    path, backward = tuple(needed(network, [loss])), backward_nodes(network, joint)
    return TrainingStep(network, dict(joint.updates), loss, path, backward, value_bytes(network))


def choose_regions(step: TrainingStep, budget: float | int) -> tuple[Regions, tuple[int, int]]:
    """Regions by which a step fits a budget, of the coarsest cuts that do, and its peak with them and without.

    Args:
        step: of the first rank, whose pieces are the largest; on the others the same regions run again.
        budget: bytes of values that nodes write, or a share of what the step without a plan holds.

    Raises:
        BudgetError: none are found; ``smallest`` says for which budget they are.
    """
    errors = list[BudgetError]()
    for crossing in CROSSINGS:
        regions = regions_of(step, crossing)
        counter = Counter(regions)
        try:
            counted = counter.within(budget_bytes(budget, counter.full))
        except BudgetError as error:
            errors.append(error)
        else:
            again = (regions.values(region) for region in counter.root.walk() if region.name in counted.names)
            return tuple(again), (counted.peak, counter.full)
    raise min(errors, key=lambda error: error.smallest or 0)
