"""From a network and a budget to a plan: find regions, place checkpoints, count what the rewritten step holds.

A plan's prediction is counted value by value on the network that will run.
"""

from __future__ import annotations

from deep500.errors import PlanError
from deep500.networks.execution.executor import Recomputation
from deep500.networks.execution.modes import training_network
from deep500.networks.network import Network
from deep500.transformations.recomputation.counting import Counted, Counter
from deep500.transformations.recomputation.counting import held as held
from deep500.transformations.recomputation.failures import budget_bytes, check_budget, check_points
from deep500.transformations.recomputation.plan_file import (
    CheckpointingPlan,
    PlannedRegion,
    structure_hash,
    undominated,
)
from deep500.transformations.recomputation.recompute import Recomputing, recomputing
from deep500.transformations.recomputation.regions import NetworkRegions, find_regions
from deep500.transformations.recomputation.step import Step, training_step


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
        budget: bytes (int), or a share of the peak without checkpoints (float in (0, 1]). Counted are all values that
            nodes write, gradients of parameters included; inputs, parameters and what kernels need inside are not.
        batch: number of samples.
        loss: the scalar that is differentiated.
        regions: what :func:`find_regions` found for it, with measured times; found here, with counted operations in
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
    found = find_regions(network, batch, loss) if regions is None else regions
    found.check(network, batch, backend)
    backend = found.backend if backend is None else backend
    counter = _counter(network, found)
    limit = budget_bytes(budget, counter.full)
    return _as_plan(network, batch, found, counter.within(limit), limit, backend)


def plan_front(
    network: Network,
    batch: int,
    loss: str = "loss",
    points: int = 9,
    regions: NetworkRegions | None = None,
    backend: str | None = None,
) -> list[CheckpointingPlan]:
    """The plans at evenly spaced budgets from the smallest peak to that without checkpoints: memory against time.

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
    found = find_regions(network, batch, loss) if regions is None else regions
    found.check(network, batch, backend)
    backend = found.backend if backend is None else backend
    counter = _counter(network, found)
    smallest = counter.smallest().peak
    limits = dict.fromkeys(smallest + (counter.full - smallest) * i // (points - 1) for i in range(points))
    return undominated(_as_plan(network, batch, found, counter.within(limit), limit, backend) for limit in limits)


def _counter(network: Network, found: NetworkRegions) -> Counter:
    counter = Counter(found)
    if not counter.names or len(found.step.forward) < 2:
        raise PlanError(
            f"got network {network.name!r} with {len(found.step.forward)} operator(s), none of which may run again; "
            "expected several, between which values are kept: train it without a plan"
        )
    return counter


def _as_plan(
    network: Network, batch: int, found: NetworkRegions, counted: Counted, budget: int, backend: str
) -> CheckpointingPlan:
    regions = tuple(
        PlannedRegion(r.name, r.place, tuple(v for node in found.nodes[r.name] for v in node.writes))
        for r in found.root.walk()
        if r.name in counted.names
    )
    return CheckpointingPlan(
        structure_hash(network),
        batch,
        found.step.loss,
        backend,
        regions,
        budget,
        counted.peak,
        found.root.step_time + counted.extra,
        counted.extra,
        found.time_unit,
        counted.method,
    )


def planned_step(network: Network, plan: Recomputation) -> tuple[Step, Recomputing]:
    """The training step of a network, without and with the plan.

    Raises:
        PlanError: the plan was made for another network.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> net = add_loss(create("resnet", depth=8))
        >>> step, again = planned_step(net, plan_network(net, 0.9, batch=2))
        >>> again.network.outputs == step.network.outputs, len(again.repeated) > 0
        (True, True)
    """
    plan.check(network, plan.batch)
    step = training_step(network, plan.batch, plan.loss)
    return step, recomputing(step, [region.values for region in plan.regions])


def executed_step(network: Network, plan: Recomputation | None, loss: str = "loss") -> tuple[Network, dict[str, str]]:
    """One step as a network, and the value that replaces each running statistic; the plan's step if there is one.

    For backends that train by executing the emitted gradient.

    Raises:
        PlanError: the plan was made for another network.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> net = add_loss(create("mlp", shape=(4,), classes=3))
        >>> step, updates = executed_step(net, None)
        >>> "fc1.weight.grad" in step.values() or len(step.nodes) > len(net.nodes), updates
        (True, {})
    """
    if plan is not None:
        step, again = planned_step(network, plan)
        return again.network, step.updates
    training, updates = training_network(network)
    return training.with_gradient(loss), updates
