"""From one profiled step of an executor to what plans are made on: measured stages, or the graph with counted bytes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from deep500.networks import Network
from deep500.networks.execution.capabilities import measure_stages
from deep500.networks.execution.executor import GraphExecutor
from deep500.transformations.recomputation import find_regions
from deep500.transformations.recomputation.chain import innermost_regions
from deep500.transformations.recomputation.measured_trees import staged_regions
from deep500.transformations.recomputation.node_times import measured_regions
from recipes.studies.recomputation_profile.subjects import PlanSubject
from recipes.studies.recomputation_profile.ways import ChainPlanner, TreePlanner, WayPlanner


def planner_for(
    subject: PlanSubject, network: Network, executor: GraphExecutor, arrays: Mapping[str, np.ndarray], passes: int
) -> WayPlanner:
    """Profile one network.

    A backend that keeps stages apart measures them: bytes by its allocator, times by a clock. Elsewhere bytes are those
    of the graph, and only times are measured.

    Args:
        subject, network: what is profiled.
        executor: of the network.
        arrays: its inputs.
        passes: how often times are taken.
    """
    regions = find_regions(network, subject.batch, crossing=subject.crossing)
    stages = measure_stages(executor, [region.values for region in innermost_regions(regions)], arrays, passes=passes)
    if stages is None:
        times = measured_regions(executor, arrays, samples=passes).times
        regions = find_regions(network, subject.batch, crossing=subject.crossing, times=times)
        return WayPlanner(network, subject.batch, regions, executor.backend, executor, arrays)
    regions = staged_regions(regions, stages)
    if subject.chain:
        return ChainPlanner(network, subject.batch, regions, executor.backend, chain=tuple(stages))
    return TreePlanner(network, subject.batch, regions, executor.backend)
