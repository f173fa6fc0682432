"""Choices of regions by hand on trees of measured ones, to compare plans with."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from deep500.networks.graph import Graph
from deep500.transformations.recomputation.placement import Placement
from deep500.transformations.recomputation.plan_file import CheckpointingPlan
from deep500.transformations.recomputation.region_tree import Outcome, Region, per_instance, simulate
from deep500.transformations.recomputation.regions import NetworkRegions, live_out
from deep500.transformations.workshop.recomputation.chosen_plans import equal_segments, plan_of


def _predicted(plan: CheckpointingPlan, outcome: Outcome) -> CheckpointingPlan:
    return replace(
        plan,
        budget=outcome.peak,
        predicted_peak=outcome.peak,
        predicted_time=outcome.time,
        predicted_extra=outcome.extra,
    )


def segment_plan(
    network: Graph, batch: int, regions: NetworkRegions, backend: str, count: int | None = None
) -> CheckpointingPlan:
    """Equal segments of measured regions, see :func:`equal_segments`, predicted as regions around their leaves."""
    segments, rest = equal_segments(regions, count), iter(regions.innermost())
    children = []
    for number in range(len(segments) + 1):
        missing = set(segments[number].values) if number < len(segments) else None
        run = list(rest) if missing is None else []
        while missing:
            run.append(next(rest))
            missing.difference_update(regions.values(run[-1]))
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
