"""Plans that somebody chose instead of a solver: equal segments, every region, a placement of the greedy guide.

They are counted like those of :func:`deep500.transformations.recomputation.plan_network`, so figures can be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from math import isqrt

from deep500.networks.hashing import structure_hash
from deep500.networks.network import Network
from deep500.transformations.recomputation.budgets import PlanError
from deep500.transformations.recomputation.counting import held
from deep500.transformations.recomputation.plan_file import CheckpointingPlan, PlannedRegion
from deep500.transformations.recomputation.region_tree import Region
from deep500.transformations.recomputation.regions import NetworkRegions
from deep500.transformations.recomputation.rewriting import recomputing


def plan_of(
    network: Network,
    batch: int,
    found: NetworkRegions,
    regions: Sequence[PlannedRegion],
    method: str,
    backend: str = "none",
) -> CheckpointingPlan:
    """The plan in which these regions run again; its budget is what it needs.

    Args:
        network, batch: for which the plan holds.
        found: its regions at that batch size, with the times that count.
        regions: any two nested or disjoint; see :func:`named` and :func:`equal_segments`.
        method: how they were chosen.
        backend: where the times were measured.

    Raises:
        PlanError: regions that overlap, or values that the network does not have.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation import find_regions
        >>> network = add_loss(create("resnet", depth=8))
        >>> found = find_regions(network, batch=2)
        >>> plan = plan_of(network, 2, found, equal_segments(found), "sqrt(n)")
        >>> plan.predicted_peak == plan.budget, plan.predicted_extra > 0
        (True, True)
    """
    again = recomputing(found.step, [region.values for region in regions])
    peak, extra = held(again.network), sum(found.times[node.writes[0]] for node in again.repeated)
    return CheckpointingPlan(
        structure_hash(network),
        batch,
        found.step.loss,
        backend,
        tuple(regions),
        peak,
        peak,
        found.root.step_time + extra,
        extra,
        found.time_unit,
        method,
    )


def leaves(found: NetworkRegions) -> list[Region]:
    """The regions that hold no others, in order: together all of the forward pass."""
    return [region for region in found.root.walk() if not region.children]


def named(found: NetworkRegions, names: Collection[str]) -> list[PlannedRegion]:
    """The regions of these names, outer ones before those in them.

    Raises:
        PlanError: there is no such region.
    """
    regions = [region for region in found.root.walk() if region.name in names and region is not found.root]
    if missing := set(names) - {region.name for region in regions}:
        raise PlanError(f"got regions {sorted(missing)[:4]}; expected names of the tree of regions: print it")
    return [PlannedRegion(region.name, region.place, _values(found, [region])) for region in regions]


def equal_segments(found: NetworkRegions, count: int | None = None) -> list[PlannedRegion]:
    """Runs of about equally many leaves, all but the last of which run again (Chen et al. 2016, arXiv 1604.06174).

    Args:
        found: the regions.
        count: of segments; the rounded square root of the number of leaves if None.

    Raises:
        PlanError: there are not as many leaves.
    """
    parts = leaves(found)
    root = isqrt(len(parts))
    count = root + (len(parts) - root * root > root) if count is None else count
    if not 1 <= count <= len(parts):
        raise PlanError(f"got {count} segments; expected 1 to {len(parts)}, one region each at least: ask for fewer")
    ends = [len(parts) * i // count for i in range(count + 1)]
    runs = [parts[begin:end] for begin, end in pairwise(ends[:-1])]
    return [PlannedRegion(f"segment {i}", f"segment {i}", _values(found, run)) for i, run in enumerate(runs, 1)]


def _values(found: NetworkRegions, regions: Sequence[Region]) -> tuple[str, ...]:
    return tuple(value for region in regions for node in found.nodes[region.name] for value in node.writes)
