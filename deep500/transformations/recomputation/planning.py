"""`plan_checkpointing`: from a network or an executor and a budget of memory to a plan, with one call.

Find regions, measure them where there is an executor with inputs, place recomputations, count what the rewritten step
holds. A plan's prediction is counted value by value on the network that will run, or rests on measured stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from deep500.errors import BudgetError, PlanError
from deep500.networks.execution.capabilities import MeasuresStages, measure_stages
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.execution.input_check import InputCheck
from deep500.networks.graph import Graph
from deep500.networks.hashing import structure_hash
from deep500.networks.losses import add_loss
from deep500.networks.network import Network
from deep500.networks.objects import as_network
from deep500.operators.registry import DOMAIN
from deep500.progress import numbered, progress, stage
from deep500.transformations.recomputation.blocks import BlockPlans, scope_blocks
from deep500.transformations.recomputation.budgets import budget_bytes, check_budget, check_points
from deep500.transformations.recomputation.chain import (
    counted_stages,
    innermost_regions,
    keep_all,
    linked_regions,
    plan_chain,
    simulate_chain,
)
from deep500.transformations.recomputation.counting import Counted, Counter, peak_bytes
from deep500.transformations.recomputation.lower_bound import with_bound
from deep500.transformations.recomputation.measured_trees import plan_tree, staged_regions
from deep500.transformations.recomputation.node_times import SAMPLES, batch_of, first_size, measured_regions
from deep500.transformations.recomputation.plan_file import CheckpointingPlan, PlannedRegion, undominated
from deep500.transformations.recomputation.region_tree import simulate
from deep500.transformations.recomputation.regions import NetworkRegions, find_regions
from deep500.transformations.recomputation.rehearsing import Counts, Planner, Rehearsals
from deep500.transformations.recomputation.training_step import check_batch

Target = GraphExecutor | Network

_SLOTS = 400  # of a chain whose bytes are counted

CROSSINGS = (1, 2, 3, 4)
"""Activations that may cross a cut; more than one beside the skip connections of a U-Net, say."""

_WORTH = 0.01  # of a step: where finer cuts gained less, still finer ones are not tried

_FINE = 0.2  # of all that is kept: where no stretch between cuts has more, finer ones only cost time to plan

PLANNING = "planning recomputation"


def plan_checkpointing(
    target: Target | Any,
    budget: float | int = 0.5,
    inputs: Mapping[str, Any] | None = None,
    loss: str = "loss",
    batch: int | None = None,
    profile: NetworkRegions | None = None,
    *,
    example: Any = None,
) -> CheckpointingPlan:
    """Choose what a training step computes again so that it fits a budget of memory, for the least extra time.

    Hand the result to ``executor.set_checkpointing(plan)``, or keep it with ``plan.save(path)``.

    Args:
        target: an executor, on whose backend times are then measured if there are inputs; a network; or any model that
            :func:`deep500.networks.as_network` takes. A model without ``loss`` is given a cross entropy.
        budget: a share of the peak without recomputation (float in (0, 1]), or bytes (int). With an executor that
            counts bytes (``plan.measured``) both the peak and what the plan holds are measured: steps of this backend,
            with and without the plan, by ``executor.step_memory``. Elsewhere they are counted in the network: all
            values that nodes write, gradients of parameters included. Inputs, parameters and what kernels need inside
            never count.
        inputs: a batch for training. Without it operations are counted in the place of times (``plan.time_unit``).
        loss: the scalar that is differentiated.
        batch: number of samples, where there are no inputs.
        profile: what :func:`deep500.transformations.recomputation.measured_regions` gave for the target, to plan for
            several budgets without measuring again.
        example: inputs to trace a model of a framework with.

    Raises:
        BudgetError: no plan fits; ``smallest`` and the message say which budget one fits.
        PlanError: a budget of 0, below it or a share above 1; no batch size; a network in which nothing can run again;
            a profile of another network, batch size or backend.
        InputError: inputs that the network does not take.

    Example:
        >>> import deep500 as d5
        >>> import deep500.frameworks.reference as d5ref
        >>> executor = d5ref.from_model(d5.add_loss(d5.networks.create("resnet", depth=8)))
        >>> plan = plan_checkpointing(executor, 0.8, batch=16)
        >>> executor.set_checkpointing(plan)
        >>> plan.predicted_peak <= plan.budget, plan.time_unit, plan.backend
        (True, 'FLOP', 'none')
        >>> plan_checkpointing(executor, 1000, batch=16)
        Traceback (most recent call last):
        deep500.errors.BudgetError: got a budget of 1000 bytes; expected at least ...
    """
    check_budget(budget)
    if profile is not None and not isinstance(profile, NetworkRegions):
        raise PlanError(
            f"got {type(profile).__name__} as a profile; expected what measured_regions returned: leave it out"
        )
    with progress(PLANNING):
        subject = PlanningSubject(planned(target, example, loss), inputs, loss, batch)
        if profile is not None:
            profile.check(subject.network, subject.batch, target.backend if isinstance(target, GraphExecutor) else None)
        return subject.plan(budget, profile)


def checkpointing_front(
    target: Target | Any,
    inputs: Mapping[str, Any] | None = None,
    points: int = 9,
    loss: str = "loss",
    batch: int | None = None,
    *,
    example: Any = None,
) -> list[CheckpointingPlan]:
    """Plans from the smallest peak to that without recomputation, none of which another beats in memory and in time.

    Args:
        target, inputs, loss, batch, example: see :func:`plan_checkpointing`.
        points: how many budgets are tried, at least 2.

    Returns:
        by rising ``predicted_peak`` and falling ``predicted_extra``.

    Raises:
        PlanError: see :func:`plan_checkpointing`.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> front = checkpointing_front(add_loss(create("resnet", depth=8)), batch=8, points=3)
        >>> front[0].predicted_peak < front[-1].predicted_peak, front[-1].predicted_extra
        (True, 0)
    """
    check_points(points)
    with progress(PLANNING):
        return PlanningSubject(planned(target, example, loss), inputs, loss, batch).front(points)


def planned(target: Target | Any, example: Any, loss: str) -> Target:
    """An executor or network as it is; of anything else the network, with a loss."""
    if isinstance(target, (GraphExecutor, Network)):
        return target
    network = as_network(target, example)
    return network if network.has_value(loss) else add_loss(network, loss=loss)


class PlanningSubject:
    """PlanningSubject of a plan: a network, its batch size, and where times are measured."""

    def __init__(self, target: Target, inputs: Mapping[str, Any] | None, loss: str, batch: int | None) -> None:
        self.executor = target if isinstance(target, GraphExecutor) and inputs is not None else None
        self.network = target if isinstance(target, Network) else target.network.copy()
        self.inputs, self.loss = inputs, loss
        _check_visible(self.network)
        self.batch = _batch(self.network, batch) if inputs is None else _batch_given(self.network, inputs)
        if batch not in (None, self.batch):
            raise PlanError(f"got batch={batch} and inputs of {self.batch} samples; expected the same: leave batch out")
        self.backend = "none" if self.executor is None else self.executor.backend
        self.counted = find_regions(self.network, self.batch, loss)
        self.holds_whole = True  # memory does, a step without a plan; else nothing is measured but steps of plans

    def plan(self, budget: float | int, profile: NetworkRegions | None) -> CheckpointingPlan:
        """The quickest plan of the coarsest cuts and, if these leave a large stretch whole, of finer ones that gain."""
        best: CheckpointingPlan | None = None
        errors: list[BudgetError] = []
        with self.rehearsals() as rehearsals:
            limit = budget_bytes(budget, rehearsals.full or 0)
            for _, cuts in groupby(self.planners(profile), key=itemgetter(0)):
                plans = list[CheckpointingPlan]()
                for _, planners in cuts:
                    try:
                        plans.append(rehearsals.quickest(planners, limit))
                    except BudgetError as error:
                        errors.append(error)
                if not plans:
                    continue
                quickest = min(plans, key=_share)
                gain = _share(best) - _share(quickest) if best else _share(quickest) * self.has_large_stretch
                best = min(best or quickest, quickest, key=_share)
                if gain < _WORTH:
                    break
            if best is None and profile is None and self.measures_stages:
                for planner in self._of_blocks(self.counted):  # with counted operations for times
                    try:
                        best = rehearsals.within(planner, limit)
                    except BudgetError as error:
                        errors.append(error)
            if best is not None and best.regions and profile is None and self.executor is not None:
                return rehearsals.timed(best, self.executor)
        if best is None:
            raise with_bound(min(errors, key=lambda error: error.smallest or 0), self.counted.step)
        return best

    @property
    def has_large_stretch(self) -> bool:
        """Return whether cuts that one activation crosses leave a large part of what is kept in one piece."""
        return max(region.full_tape for region in self.counted.innermost()) > _FINE * self.counted.root.full_tape

    def front(self, points: int) -> list[CheckpointingPlan]:
        """Plans at evenly spaced budgets for all cuts; steps are measured of those that no model beats."""
        planners = [planner for _, planners in self.planners(None) for planner in planners]
        smallest = [planner.smallest() for planner in numbered("the smallest plan", planners)]
        low, full = min(plan.predicted_peak for plan in smallest), max(planner.full for planner in planners)
        limits = dict.fromkeys(low + (full - low) * i // (points - 1) for i in range(1, points))
        plans = list(smallest)
        for limit in numbered("budget", limits):
            for planner in planners:
                with suppress(BudgetError):
                    plans.append(planner.within(limit))
        with self.rehearsals() as rehearsals:
            plans = [rehearsals.measured(plan) for plan in numbered("a step of plan", undominated(plans))]
        return [replace(plan, budget=plan.predicted_peak) for plan in undominated(plans)]

    @contextmanager
    def rehearsals(self) -> Iterator[Rehearsals]:
        """Steps on an executor like the given one, if there is one with inputs that counts bytes; else counts."""
        if self.executor is not None and self.inputs is not None:
            with self.executor.rehearsal() as twin:
                measured = Rehearsals(twin, self.inputs, self.loss, peak_bytes(self.counted.step.network))
                self.holds_whole = measured.whole
                if measured.full is not None:
                    yield measured
                    return
        yield Counts(_counter(self.network, self.counted))

    def planners(self, profile: NetworkRegions | None) -> Iterator[tuple[int, list[Planner]]]:
        """Of cuts that one activation crosses (or of a profile), then of those that up to four cross, where others.

        With the number of activations that may cross.

        Stages are planned as a chain, each of which reads the one before it alone and whose plans may let any stretch
        run again, and as a tree of regions: measured where the backend keeps stages apart, counted elsewhere.
        """
        regions, seen = self.counted if profile is None else profile, set[tuple[str, ...]]()
        measured = profile is None and self.measures_stages
        if not measured:
            regions = self._timed() if profile is None else profile
            yield from ((CROSSINGS[0], [planner]) for planner in self._of_blocks(regions))
        times = regions.times if regions.time_unit == "s" else None
        for crossing in CROSSINGS:
            if crossing > 1:
                stage(f"cuts that {crossing} activations cross")
                regions = find_regions(self.network, self.batch, self.loss, crossing, times)
            for parts_of in (linked_regions, innermost_regions) if measured else (innermost_regions,):
                parts = parts_of(regions)
                cuts = tuple(part.name for part in parts)
                if cuts in seen or (measured and len(parts) < 2):
                    continue
                seen.add(cuts)
                if measured:
                    yield crossing, [self._measured(regions, parts, parts_of is linked_regions)]
                else:
                    yield crossing, counted_planners(self.network, self.batch, regions, self.backend)
        if not seen:
            yield 1, counted_planners(self.network, self.batch, self.counted, self.backend)

    @property
    def measures_stages(self) -> bool:
        """Return whether the executor keeps stages apart and there is a batch to measure them with."""
        return self.holds_whole and self.inputs is not None and isinstance(self.executor, MeasuresStages)

    def _of_blocks(self, regions: NetworkRegions) -> list[Planner]:
        """A planner of the network's own blocks; none where names have no scopes."""
        if len(regions.step.forward) < 2 or not scope_blocks(regions.step):
            return []
        blocks = BlockPlans(self.network, self.batch, regions, self.backend)
        return [Planner(blocks.counter.full, blocks.within)]

    def _measured(self, regions: NetworkRegions, parts: Sequence[PlannedRegion], chain: bool) -> Planner:
        """On parts as measured stages: a chain, or a tree of them."""
        assert self.inputs is not None, "measured with inputs"
        values = [part.values for part in parts]
        stages = measure_stages(self.executor, values, self.inputs, self.loss, SAMPLES)
        assert stages is not None, "only asked where they are measured"
        network, batch, backend = self.network, self.batch, self.backend
        if chain:
            full = simulate_chain(stages, keep_all(stages)).peak
            return Planner(full, lambda limit: plan_chain(network, batch, regions, stages, limit, backend, parts=parts))
        tree = staged_regions(regions, stages)
        return Planner(simulate(tree.root, ()).peak, lambda limit: plan_tree(network, batch, tree, limit, backend))

    def _timed(self) -> NetworkRegions:
        """The regions, with times where they can be measured."""
        whole = self.holds_whole and len(self.counted.step.forward) > 1
        if self.executor is None or self.inputs is None or not whole:
            return self.counted
        return measured_regions(self.executor, self.inputs, self.loss)


def _share(plan: CheckpointingPlan) -> float:
    """Extra time as a share of the step: stages are measured anew for other cuts, and come out a little different."""
    return plan.predicted_extra / plan.predicted_time


def _check_visible(network: Graph) -> None:
    for node in network.nodes:
        if node.domain.startswith(f"{DOMAIN}."):  # a backend's, around a module, function or session
            raise PlanError(
                f"got node {node.name!r} ({node.domain}.{node.op_type}), a model of its own whose operators cannot be "
                "seen; expected a Network of operators: build it with deep500.networks and use from_model"
            )


def _batch_given(network: Graph, inputs: Any) -> int:
    if not isinstance(inputs, Mapping):
        raise PlanError(f"got {type(inputs).__name__} for inputs; expected a batch for training: give arrays by name")
    batch = batch_of(network, inputs)
    InputCheck(network.inputs)(inputs)
    return batch


def _batch(network: Graph, batch: int | None) -> int:
    symbolic = any(isinstance(size, str) for d in network.inputs.values() for size in d.shape or ())
    if batch is None and symbolic:
        raise PlanError(
            f"got no batch size for network {network.name!r}; expected one, for which the plan holds: give batch="
        )
    if batch is None:
        return first_size(network)
    check_batch(batch)
    if not symbolic and batch != first_size(network):
        raise PlanError(
            f"got batch={batch} for network {network.name!r}, all of whose sizes are numbers; expected "
            f"{first_size(network)}: leave batch out"
        )
    return int(batch)


def plan_network(
    network: Network,
    budget: float | int,
    batch: int,
    loss: str = "loss",
    regions: NetworkRegions | None = None,
    backend: str | None = None,
) -> CheckpointingPlan:
    """The plan with the least extra time that we find within a budget, for executors that free values early.

    Every instance of a region is decided for itself.

    Args:
        network: with a loss.
        budget: bytes (int), or a share of the peak without recomputation (float in (0, 1]). Counted are all values that
            nodes write, gradients of parameters included; inputs, parameters and what kernels need inside are not.
        batch: number of samples.
        loss: the scalar that is differentiated.
        regions: what :func:`find_regions` gives for it, with measured times; made here, with counted operations in
            the place of times, if None.
        backend: where those times were measured; as the regions say if None.

    Raises:
        BudgetError: none is found; names the smallest peak of all that were counted.
        PlanError: a budget that is none, a network in which nothing can run again, or regions of another network,
            batch size or backend.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> plan = plan_network(add_loss(create("resnet", depth=8)), 0.9, batch=2)
        >>> plan.predicted_peak <= plan.budget, len(plan.regions) > 0, plan.time_unit
        (True, True, 'FLOP')
    """
    check_budget(budget)
    regions = find_regions(network, batch, loss) if regions is None else regions
    regions.check(network, batch, backend)
    planners = counted_planners(network, batch, regions, regions.backend if backend is None else backend)
    counts = Counts(_counter(network, regions))
    return counts.quickest(planners, budget_bytes(budget, counts.counter.full))


def plan_front(
    network: Network,
    batch: int,
    loss: str = "loss",
    points: int = 9,
    regions: NetworkRegions | None = None,
    backend: str | None = None,
) -> list[CheckpointingPlan]:
    """The plans at evenly spaced budgets from the smallest peak to that without recomputation: memory against time.

    Args:
        network, batch, loss, regions, backend: see :func:`plan_network`.
        points: how many budgets, at least 2.

    Returns:
        plans by rising peak and falling time; none needs as much of both as another.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> front = plan_front(add_loss(create("resnet", depth=8)), batch=2, points=3)
        >>> [len(plan.regions) > 0 for plan in front]
        [True, True, False]
    """
    check_points(points)
    regions = find_regions(network, batch, loss) if regions is None else regions
    regions.check(network, batch, backend)
    planners = counted_planners(network, batch, regions, regions.backend if backend is None else backend)
    counts = Counts(_counter(network, regions))
    smallest = min(counts.measured(planner.smallest()).predicted_peak for planner in planners)
    limits = dict.fromkeys(smallest + (counts.counter.full - smallest) * i // (points - 1) for i in range(points))
    return undominated(counts.quickest(planners, limit) for limit in limits)


def counted_planners(network: Graph, batch: int, regions: NetworkRegions, backend: str) -> list[Planner]:
    """Plans on regions whose bytes are counted value by value, for executors that free values early: a tree, a chain.

    Raises:
        PlanError: nothing in the network may run again.
    """
    counter = _counter(network, regions)

    def tree(limit: int) -> CheckpointingPlan:
        plan = _as_plan(network, batch, regions, counter.within(limit), limit, backend)
        return replace(plan, peak_without=counter.full)

    def chain(limit: int) -> CheckpointingPlan:
        plan = plan_chain(
            network, batch, regions, stages, limit, backend, max(_SLOTS * 40 // max(len(stages), 40), 100)
        )
        _, extra = counter.step([region.values for region in plan.regions])
        time = regions.root.step_time + extra
        return replace(plan, predicted_extra=extra, predicted_time=time, time_unit=regions.time_unit)

    planners = [Planner(counter.full, tree)]
    if len(linked_regions(regions)) == len(innermost_regions(regions)) > 1:
        stages = counted_stages(regions)
        planners.append(Planner(simulate_chain(stages, keep_all(stages)).peak, chain))
    return planners


def _counter(network: Graph, regions: NetworkRegions) -> Counter:
    counter = Counter(regions)
    if not counter.names or len(regions.step.forward) < 2:
        raise PlanError(
            f"got network {network.name!r} with {len(regions.step.forward)} operator(s), none of which may run again; "
            "expected several, between which values are kept: train it without a plan"
        )
    return counter


def _as_plan(
    network: Graph, batch: int, regions: NetworkRegions, counted: Counted, budget: int, backend: str
) -> CheckpointingPlan:
    recomputed = tuple(
        PlannedRegion(region.name, region.place, regions.values(region))
        for region in regions.root.walk()
        if region.name in counted.names
    )
    return CheckpointingPlan(
        structure_hash(network),
        batch,
        regions.step.loss,
        backend,
        recomputed,
        budget,
        counted.peak,
        regions.root.step_time + counted.extra,
        counted.extra,
        regions.time_unit,
        counted.method,
    )
