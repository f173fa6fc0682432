"""Trees of regions with measured bytes and times, and plans for them: for networks that are no chain.

A backend that keeps stages apart measures the innermost regions (``executor.measure_stages``); what is nested around
them follows. What a region records is what its innermost regions record, and what it hands on are whole tensors. So
any tree of regions is planned with the allocator's bytes, skip connections included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from deep500.errors import PlanError
from deep500.networks.graph import Graph
from deep500.networks.hashing import structure_hash
from deep500.transformations.recomputation.budgets import budget_bytes
from deep500.transformations.recomputation.chain import Stage
from deep500.transformations.recomputation.placement import Placement, optimal_placement
from deep500.transformations.recomputation.plan_file import CheckpointingPlan, PlannedRegion
from deep500.transformations.recomputation.region_tree import Region, per_instance, simulate
from deep500.transformations.recomputation.regions import NetworkRegions

_GAP = 0.01  # of the extra time: what is measured is not more certain, and to prove the rest may take minutes


def staged_regions(regions: NetworkRegions, stages: Sequence[Stage]) -> NetworkRegions:
    """The same regions with what was measured in the place of what was counted; times are seconds.

    Times of single nodes (``times``) stay counted operations, since only regions were measured.

    Args:
        regions: the regions.
        stages: one for each innermost region, in order.

    Raises:
        PlanError: there are not as many.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation import Mode, find_regions
        >>> regions = find_regions(add_loss(create("resnet", depth=8)), batch=2)
        >>> stage = Stage("", output=10, modes=(Mode(0.1, 0.2, saved=100),), forward=0.1)
        >>> twin = staged_regions(regions, [stage] * 5)
        >>> twin.root.full_tape, round(twin.root.step_time, 6), twin.time_unit
        (500, 1.5, 's')
    """
    count = len(regions.innermost())
    if len(stages) != count:
        raise PlanError(f"got {len(stages)} measured stages; expected {count}, one for each innermost region")
    return replace(regions, root=_with_stages(regions.root, iter(stages)), time_unit="s")


def _with_stages(region: Region, stages: Iterator[Stage]) -> Region:
    if region.children:
        children = tuple(_with_stages(child, stages) for child in region.children)
        return replace(region, children=children, advance=max(child.advance for child in children))
    stage = next(stages)
    mode = stage.modes[0]
    return replace(
        region,
        own_tape=(mode.saved,),
        snapshot=stage.output,
        time=stage.forward,
        backward_time=mode.backward,
        advance=stage.overhead,
        overhead=stage.delta + mode.backward_overhead,
    )


def plan_tree(
    network: Graph, batch: int, regions: NetworkRegions, budget: float | int, backend: str
) -> CheckpointingPlan:
    """The plan with the least extra time for measured regions, by the program for nested ones; exact for their model.

    Args:
        network, batch: what to plan for.
        regions: from :func:`staged_regions`; every instance of a region is decided for itself.
        budget: bytes (int), or a share of the peak without recomputation (float in (0, 1]).
        backend: where they were measured.

    Raises:
        BudgetError: no plan fits; names the smallest budget that one fits.
    """
    root = per_instance(regions.root)
    limit = budget_bytes(budget, simulate(root, ()).peak)
    return replace(
        as_tree_plan(network, batch, regions, optimal_placement(root, limit, gap=_GAP), backend), budget=limit
    )


def as_tree_plan(
    network: Graph, batch: int, regions: NetworkRegions, placement: Placement, backend: str
) -> CheckpointingPlan:
    """A placement on measured regions as a plan for the network, predicted by their model; its budget is its peak."""
    names, outcome = set(placement.recomputed), placement.outcome
    recomputed = tuple(
        PlannedRegion(region.name, region.place, regions.values(region))
        for region in regions.root.walk()
        if region.name in names
    )
    return CheckpointingPlan(
        structure_hash(network),
        batch,
        regions.step.loss,
        backend,
        recomputed,
        outcome.peak,
        outcome.peak,
        outcome.time,
        outcome.extra,
        regions.time_unit,
        placement.method,
    )
