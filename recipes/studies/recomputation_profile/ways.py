"""Ways to spend memory and time on one network: plans for budgets, and what they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from deep500.errors import BudgetError
from deep500.networks import Network
from deep500.networks.execution.executor import GraphExecutor
from deep500.transformations.recomputation import CheckpointingPlan, NetworkRegions, Stage
from deep500.transformations.recomputation.chain import (
    ChainPlacement,
    Recompute,
    as_plan,
    keep_all,
    plan_chain,
    simulate_chain,
)
from deep500.transformations.recomputation.counting import peak_bytes
from deep500.transformations.recomputation.measured_trees import as_tree_plan, plan_tree
from deep500.transformations.recomputation.placement import Placement
from deep500.transformations.recomputation.plan_file import PlannedRegion
from deep500.transformations.recomputation.planning import plan_checkpointing
from deep500.transformations.recomputation.region_tree import Region, locations, per_instance, simulate
from deep500.transformations.workshop.recomputation.baselines import every_stage, everything, greedy, segmented
from deep500.transformations.workshop.recomputation.chosen_plans import equal_segments, plan_of, regions_named
from deep500.transformations.workshop.recomputation.measured_trees import placement_of, segment_plan

NONE, PLANNED, GREEDY, SEGMENTS, EVERY, EVERYTHING, TORCH = (
    "none",
    "planned",
    "greedy",
    "sqrt(n)",
    "every",
    "all",
    "torch",
)
"""Families of ways, as legends have them."""
FREE, SLIGHT = "greedy, no more than everything", "greedy, 10 % more"


@dataclass(frozen=True)
class Way:
    """One way: its name in the tables, its family, its plan (None: no recomputation), or why there is none."""

    label: str
    family: str
    plan: CheckpointingPlan | None = None
    refused: str = ""


@dataclass(frozen=True)
class WayPlanner:
    """Plans on the tree of regions, whose bytes are counted in the graph.

    Attributes:
        network, batch: what is planned for.
        regions: its regions with their times.
        backend: where these were measured, ``"none"`` if operations were counted.
        executor, inputs: what plans are tried on before they are handed out; None: they are counted.
    """

    network: Network
    batch: int
    regions: NetworkRegions
    backend: str = "none"
    executor: GraphExecutor | None = None
    inputs: Mapping[str, np.ndarray] | None = None

    @property
    def full(self) -> tuple[int, float]:
        """Predicted peak and time without recomputation."""
        return peak_bytes(self.regions.step.network), self.regions.root.step_time

    def plan(self, budget: float | int) -> CheckpointingPlan:
        """The plan with the least extra time; raises BudgetError."""
        target = self.network if self.executor is None else self.executor
        return plan_checkpointing(target, budget, self.inputs, batch=self.batch, profile=self.regions)

    def segments(self) -> CheckpointingPlan:
        """About as many segments as regions in each, all but the last of them run again."""
        return self._plan(equal_segments(self.regions), "segments")

    def every(self) -> CheckpointingPlan:
        """Every innermost region runs again by itself."""
        return self._plan(
            regions_named(self.regions, [region.name for region in self.regions.innermost()]), "every region"
        )

    def everything(self) -> CheckpointingPlan:
        """All candidates run again, nested ones as often as they are nested: where the profile starts."""
        return self._plan(regions_named(self.regions, list(locations(per_instance(self.regions.root)))), "everything")

    def guide(self, budget: int) -> CheckpointingPlan:
        """Plan what the greedy guide leaves recomputed; raises BudgetError."""
        placement = greedy(per_instance(self.regions.root), budget)
        return self._plan(regions_named(self.regions, placement.recomputed), "greedy")

    def _plan(self, regions: Sequence[PlannedRegion], method: str) -> CheckpointingPlan:
        return plan_of(self.network, self.batch, self.regions, regions, method, self.backend)


@dataclass(frozen=True)
class ChainPlanner(WayPlanner):
    """Plans on a chain whose stages, the innermost regions, were measured: bytes by the allocator, times by a clock."""

    chain: tuple[Stage, ...] = ()

    @property
    def full(self) -> tuple[int, float]:
        """Predicted peak and time without recomputation."""
        return simulate_chain(self.chain, keep_all(self.chain))[:2]

    def plan(self, budget: float | int) -> CheckpointingPlan:
        """The quickest plan for the chain; raises BudgetError."""
        return plan_chain(self.network, self.batch, self.regions, self.chain, budget, self.backend)

    def segments(self) -> CheckpointingPlan:
        """Plan as :meth:`WayPlanner.segments`."""
        return self._placed(segmented(self.chain))

    def every(self) -> CheckpointingPlan:
        """Plan as :meth:`WayPlanner.every`."""
        return self._placed(every_stage(self.chain))

    def guide(self, budget: int) -> CheckpointingPlan:
        """Plan as :meth:`WayPlanner.guide`, on the stages as regions beside each other."""
        parts = tuple(_region(i, stage) for i, stage in enumerate(self.chain))
        on = greedy(Region("network", (0,) * (len(parts) + 1), parts), budget).recomputed
        plan = tuple(Recompute(i, i, (keep,)) if str(i) in on else keep for i, keep in enumerate(keep_all(self.chain)))
        return self._placed(ChainPlacement(plan, simulate_chain(self.chain, plan), "greedy"))

    def _placed(self, placement: ChainPlacement) -> CheckpointingPlan:
        return as_plan(self.network, self.batch, self.regions, placement, placement.outcome.peak, self.backend)


@dataclass(frozen=True)
class TreePlanner(WayPlanner):
    """Plans on nested regions whose bytes and times were measured."""

    @property
    def full(self) -> tuple[int, float]:
        """Predicted peak and time without recomputation."""
        return simulate(self.regions.root, ())[:2]

    def plan(self, budget: float | int) -> CheckpointingPlan:
        """The plan with the least extra time; raises BudgetError."""
        return plan_tree(self.network, self.batch, self.regions, budget, self.backend)

    def segments(self) -> CheckpointingPlan:
        """Plan as :meth:`WayPlanner.segments`."""
        return segment_plan(self.network, self.batch, self.regions, self.backend)

    def every(self) -> CheckpointingPlan:
        """Plan as :meth:`WayPlanner.every`."""
        return self._placed(
            placement_of(self.regions, [region.name for region in self.regions.innermost()], "every region")
        )

    def everything(self) -> CheckpointingPlan:
        """Plan as :meth:`WayPlanner.everything`."""
        return self._placed(everything(per_instance(self.regions.root)))

    def guide(self, budget: int) -> CheckpointingPlan:
        """Plan as :meth:`WayPlanner.guide`."""
        return self._placed(greedy(per_instance(self.regions.root), budget))

    def _placed(self, placement: Placement) -> CheckpointingPlan:
        return as_tree_plan(self.network, self.batch, self.regions, placement, self.backend)


def _region(number: int, stage: Stage) -> Region:
    mode = stage.modes[0]
    return Region(
        str(number),
        (mode.saved,),
        snapshot=stage.output,
        time=stage.forward,
        backward_time=mode.backward,
        advance=stage.overhead,
        overhead=mode.backward_overhead,
    )


def ways_of(planner: WayPlanner, budgets: Sequence[float], guided: Sequence[float], nested: bool) -> Iterator[Way]:
    """No recomputation, a plan for every budget, segments, every region, and the guide at some of the budgets.

    Budgets that cannot be met say so, with the smallest that can. Where regions are nested also everything, and where
    the guide leads from there without more memory, and with a tenth more.
    """
    yield Way("no recomputation", NONE)
    for budget in budgets:
        yield planned(planner, budget, label_of(budget))
    yield _way("sqrt(n) segments", SEGMENTS, planner.segments)
    yield _way("every region", EVERY, planner.every)
    for budget in guided:
        yield _way(f"greedy, {100 * budget:g} %", GREEDY, partial(planner.guide, int(budget * planner.full[0])))
    if nested:
        start = planner.everything()
        yield Way("everything", EVERYTHING, start)
        yield _way(FREE, GREEDY, partial(planner.guide, start.predicted_peak))
        yield _way(SLIGHT, GREEDY, partial(planner.guide, int(1.1 * start.predicted_peak)))


def planned(planner: WayPlanner, budget: float | int, label: str) -> Way:
    """A plan of ours within a share of the peak, or within a number of bytes."""
    return _way(label, PLANNED, partial(planner.plan, budget))


def label_of(budget: float) -> str:
    """The name of the plan for a share of the peak."""
    return f"planned, {100 * budget:g} %"


def _way(label: str, family: str, make: Callable[[], CheckpointingPlan]) -> Way:
    try:
        return Way(label, family, make())
    except BudgetError as error:  # a row of the table, not its end
        return Way(label, family, refused=str(error))
