"""Networks as chains: the innermost regions one after the other, with plans by Rotor's dynamic programme.

Where only one activation crosses between the innermost regions they are the stages of a chain. Its plans may let any
stretch of stages run again, nested as deep as pays, not only the groups that names have scopes for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deep500.errors import PlanError
from deep500.networks.network import Network
from deep500.transformations.recomputation.chain import ChainPlan, Keep, Recompute, Stage, simulate_chain
from deep500.transformations.recomputation.failures import budget_bytes
from deep500.transformations.recomputation.plan_file import (
    CheckpointingPlan,
    PlannedRegion,
    structure_hash,
    undominated,
)
from deep500.transformations.recomputation.regions import NetworkRegions
from deep500.transformations.recomputation.rotor import ChainPlacement, keep_all, optimal_chain, smallest_chain

_SLOTS = 2000  # a budget's resolution is 0.05 %
_MANY = 40  # stages from which on a coarser one must do


@dataclass(frozen=True)
class Link:
    """An innermost region: its name, its static location, and the values that its nodes write."""

    name: str
    location: str
    values: tuple[str, ...]


def links(found: NetworkRegions) -> list[Link]:
    """The innermost regions in order; together they hold all nodes of the forward pass.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.regions import find_regions
        >>> [link.name for link in links(find_regions(add_loss(create("resnet", depth=8)), 2))][::2]
        ['conv1:relu1', 'layer2.0.conv1:layer2.0.relu2', 'avgpool:loss']
    """
    return [
        Link(r.name, r.place, tuple(value for node in found.nodes[r.name] for value in node.writes))
        for r in found.root.walk()
        if not r.children and r is not found.root
    ]


def plan_chain(
    network: Network,
    batch: int,
    found: NetworkRegions,
    chain: Sequence[Stage],
    budget: float | int,
    backend: str,
    slots: int | None = None,
) -> CheckpointingPlan:
    """The quickest plan within a budget for a network whose innermost regions are a chain with measured stages.

    Args:
        network, batch: what to plan for.
        found: the regions of the network at that batch size.
        chain: one stage for each of :func:`links`; times in seconds.
        budget: bytes (int), or a share of the peak of the chain without checkpoints (float in (0, 1]).
        backend: where the stages were measured.
        slots: see :func:`optimal_chain`; 2000 if None, fewer for more than 40 stages.

    Raises:
        BudgetError: no plan fits; names the smallest budget that one fits.
    """
    if slots is None:
        slots = _SLOTS if len(chain) <= _MANY else max(_SLOTS * _MANY // len(chain), 200)
    limit = budget_bytes(budget, simulate_chain(chain, keep_all(chain)).peak)
    return as_plan(network, batch, found, optimal_chain(chain, limit, slots), limit, backend)


def chain_front(
    network: Network, batch: int, found: NetworkRegions, chain: Sequence[Stage], points: int, backend: str
) -> list[CheckpointingPlan]:
    """Plans from the smallest peak of a chain to that without checkpoints, none beaten in memory and time by another.

    Args:
        network, batch, found, chain, backend: see :func:`plan_chain`.
        points: how many budgets, evenly spaced, at least 2.

    Raises:
        PlanError: fewer than 2 points.
    """
    if points < 2:
        raise PlanError(f"got {points} points; expected at least 2, the smallest peak and no checkpoint: ask for more")
    low, high = smallest_chain(chain).outcome.peak, simulate_chain(chain, keep_all(chain)).peak
    limits = dict.fromkeys(low + (high - low) * i // (points - 1) for i in range(points))
    return undominated(plan_chain(network, batch, found, chain, limit, backend) for limit in limits)


def as_plan(
    network: Network, batch: int, found: NetworkRegions, placement: ChainPlacement, budget: int, backend: str
) -> CheckpointingPlan:
    """A placement on the chain of a network's innermost regions as a plan for the network; see :func:`plan_chain`.

    Raises:
        PlanError: the placement is of another number of stages than the network has innermost regions.
    """
    parts, outcome = links(found), placement.outcome
    end = placement.plan[-1]
    if (end.stage if isinstance(end, Keep) else end.last) != len(parts) - 1:
        raise PlanError(
            f"got a placement that ends with {end}; expected the last of {len(parts)} stages, as the network has "
            "innermost regions: measure links(found)"
        )
    regions = tuple(_region(element, parts) for element in _recomputed(placement.plan))
    return CheckpointingPlan(
        structure_hash(network),
        batch,
        found.step.loss,
        backend,
        regions,
        budget,
        outcome.peak,
        outcome.time,
        outcome.extra,
        "s",
        placement.method,
    )


def _recomputed(plan: ChainPlan) -> Iterator[Recompute]:
    """What runs again, outermost first."""
    for element in plan:
        if not isinstance(element, Keep):
            yield element
            yield from _recomputed(element.plan)


def _region(element: Recompute, parts: Sequence[Link]) -> PlannedRegion:
    inside = parts[element.first : element.last + 1]
    first, last = inside[0], inside[-1]
    values = tuple(value for part in inside for value in part.values)
    if len(inside) == 1:
        return PlannedRegion(first.name, first.location, values)
    name = f"{first.values[0]}..{last.values[-1]}"
    return PlannedRegion(name, name, values)
