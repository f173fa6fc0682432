"""Trees of regions with measured bytes and times, and plans for them: for networks that are no chain.

A backend that keeps stages apart measures the innermost regions (``executor.measure_stages``); what is nested around
them follows. What a region records is what its innermost regions record, and what it hands on are whole tensors, whose
bytes the graph knows. So any tree of regions is planned with the allocator's bytes, skip connections included.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from deep500.errors import PlanError
from deep500.networks.network import Network
from deep500.transformations.recomputation.budgets import budget_bytes
from deep500.transformations.recomputation.chain import Stage
from deep500.transformations.recomputation.placement import Placement, optimal_placement
from deep500.transformations.recomputation.plan_file import CheckpointingPlan
from deep500.transformations.recomputation.region_tree import Outcome, Region, per_instance, simulate
from deep500.transformations.recomputation.regions import NetworkRegions, live_out
from deep500.transformations.workshop.recomputation.chosen_plans import equal_segments, plan_of, regions_named


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
        own=(mode.saved,),
        snapshot=stage.output,
        time=stage.forward,
        backward_time=mode.backward,
        advance=stage.overhead,
        overhead=stage.delta + mode.backward_overhead,
    )


def plan_tree(
    network: Network, batch: int, regions: NetworkRegions, budget: float | int, backend: str
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
    return replace(as_tree_plan(network, batch, regions, optimal_placement(root, limit), backend), budget=limit)


def as_tree_plan(
    network: Network, batch: int, regions: NetworkRegions, placement: Placement, backend: str
) -> CheckpointingPlan:
    """A placement on measured regions as a plan for the network, predicted by their model; its budget is its peak."""
    plan = plan_of(network, batch, regions, regions_named(regions, placement.recomputed), placement.method, backend)
    return _predicted(plan, placement.outcome)


def _predicted(plan: CheckpointingPlan, outcome: Outcome) -> CheckpointingPlan:
    return replace(
        plan,
        budget=outcome.peak,
        predicted_peak=outcome.peak,
        predicted_time=outcome.time,
        predicted_extra=outcome.extra,
    )


def segment_plan(
    network: Network, batch: int, regions: NetworkRegions, backend: str, count: int | None = None
) -> CheckpointingPlan:
    """Equal segments of measured regions, see :func:`equal_segments`, predicted as regions around their leaves."""
    segments, rest = equal_segments(regions, count), iter(regions.innermost())
    children = []
    for number in range(len(segments) + 1):
        wanted = set(segments[number].values) if number < len(segments) else None
        run = list(rest) if wanted is None else []
        while wanted:
            run.append(next(rest))
            wanted.difference_update(regions.values(run[-1]))
        nodes = [node for leaf in run for node in regions.nodes[leaf.name]]
        snapshot = sum(regions.step.sizes[value] for value in live_out(regions.step, nodes))
        advance = max(leaf.advance for leaf in run)
        children.append(Region(f"segment {number + 1}", (0,) * (len(run) + 1), tuple(run), snapshot, advance=advance))
    root = per_instance(Region("network", (0,) * (len(children) + 1), tuple(children)))
    outcome = simulate(root, [segment.name for segment in segments])
    plan = plan_of(network, batch, regions, segments, "segments", backend)
    return _predicted(plan, outcome)


def placement_of(regions: NetworkRegions, names: Collection[str], method: str) -> Placement:
    """The cost of a choice of regions by name, by simulation."""
    return Placement(tuple(names), simulate(per_instance(regions.root), names), method)
