"""Plans chosen by hand or by a rule instead of a solver: equal segments, every region, a placement of the greedy guide.

They are counted like those of :func:`deep500.transformations.recomputation.plan_network`, so figures can be compared.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from math import isqrt

from deep500.networks.graph import Graph
from deep500.networks.hashing import structure_hash
from deep500.transformations.recomputation.budgets import PlanError
from deep500.transformations.recomputation.counting import peak_bytes
from deep500.transformations.recomputation.plan_file import CheckpointingPlan, PlannedRegion
from deep500.transformations.recomputation.regions import NetworkRegions
from deep500.transformations.recomputation.rewriting import recomputing


def plan_of(
    network: Graph,
    batch: int,
    regions: NetworkRegions,
    recomputed: Sequence[PlannedRegion],
    method: str,
    backend: str = "none",
) -> CheckpointingPlan:
    """The plan in which these regions run again; its budget is what it needs.

    Args:
        network, batch: for which the plan holds.
        regions: its regions at that batch size, with the times that count.
        recomputed: any two nested or disjoint; see :func:`regions_named` and :func:`equal_segments`.
        method: how they were chosen.
        backend: where the times were measured.

    Raises:
        PlanError: regions that overlap, or values that the network does not have.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation import find_regions
        >>> network = add_loss(create("resnet", depth=8))
        >>> regions = find_regions(network, batch=2)
        >>> plan = plan_of(network, 2, regions, equal_segments(regions), "sqrt(n)")
        >>> plan.predicted_peak == plan.budget, plan.predicted_extra > 0
        (True, True)
    """
    again = recomputing(regions.step, [region.values for region in recomputed])
    peak, extra = peak_bytes(again.network), sum(regions.times[node.writes[0]] for node in again.repeated)
    return CheckpointingPlan(
        structure_hash(network),
        batch,
        regions.step.loss,
        backend,
        tuple(recomputed),
        peak,
        peak,
        regions.root.step_time + extra,
        extra,
        regions.time_unit,
        method,
    )


def regions_named(regions: NetworkRegions, names: Collection[str]) -> list[PlannedRegion]:
    """The regions of these names, outer ones before those in them.

    Raises:
        PlanError: there is no such region.
    """
    chosen = [region for region in regions.root.walk() if region.name in names and region is not regions.root]
    if missing := set(names) - {region.name for region in chosen}:
        raise PlanError(f"got regions {sorted(missing)[:4]}; expected names of the tree of regions: print it")
    return [PlannedRegion(region.name, region.place, regions.values(region)) for region in chosen]


def equal_segments(regions: NetworkRegions, count: int | None = None) -> list[PlannedRegion]:
    """Runs of about equally many leaves, all but the last of which run again (Chen et al. 2016, arXiv 1604.06174).

    Args:
        regions: the regions.
        count: of segments; the rounded square root of the number of leaves if None.

    Raises:
        PlanError: there are not as many leaves.
    """
    parts = regions.innermost()
    root = isqrt(len(parts))
    count = root + (len(parts) - root * root > root) if count is None else count
    if not 1 <= count <= len(parts):
        raise PlanError(f"got {count} segments; expected 1 to {len(parts)}, one region each at least: ask for fewer")
    ends = [len(parts) * i // count for i in range(count + 1)]
    runs = [parts[begin:end] for begin, end in pairwise(ends[:-1])]
    return [
        PlannedRegion(
            f"segment {i}", f"segment {i}", tuple(value for region in run for value in regions.values(region))
        )
        for i, run in enumerate(runs, 1)
    ]
