"""From a network and a budget to a plan: find regions, place checkpoints, count what the rewritten step holds.

The model of nested regions (:mod:`deep500.training.checkpointing.regions`) bounds the bytes from above, by little; a
plan's own prediction is counted value by value on the network that will run. The solver is given the difference, and
less of it until the plan fits.
"""

from __future__ import annotations

from dataclasses import dataclass

from deep500.errors import BudgetError
from deep500.networks.executor import Recomputation
from deep500.networks.graph import Network
from deep500.training.checkpointing.failures import budget_bytes, unreachable
from deep500.training.checkpointing.liveness import live_bytes, value_bytes
from deep500.training.checkpointing.nested import Placement, optimal_placement, smallest_placement
from deep500.training.checkpointing.plan_file import CheckpointingPlan, PlannedRegion, structure_hash
from deep500.training.checkpointing.recompute import Recomputing, recomputing
from deep500.training.checkpointing.regions import NetworkRegions, find_regions
from deep500.training.checkpointing.step import Step, training_step
from deep500.training.checkpointing.sweep import simulate
from deep500.training.checkpointing.tree import per_instance

_ROUNDS = 12


def plan_network(network: Network, budget: float | int, batch: int, loss: str = "loss",
                 regions: NetworkRegions | None = None, backend: str = "none") -> CheckpointingPlan:  # fmt: skip
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
        backend: where those times were measured.

    Raises:
        BudgetError: none is found; names the peak of the smallest placement that the model of nested regions has.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> plan = plan_network(add_loss(create("resnet", depth=8)), 0.9, batch=2)
        >>> plan.predicted_peak <= plan.budget, len(plan.regions) > 0, plan.time_unit
        (True, True, 'FLOP')
    """
    found = find_regions(network, batch, loss) if regions is None else regions
    planner = _Planner(found)
    limit = budget_bytes(budget, planner.full)
    planned = planner.within(limit)
    return CheckpointingPlan(
        structure_hash(network), batch, loss, backend, planned.regions, limit, planned.peak,
        found.root.step_time + planned.extra, planned.extra, found.time_unit, planned.method,
    )  # fmt: skip


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


def held(network: Network) -> int:
    """Most bytes of values that nodes write, held at once when they run in order and are freed early.

    Example:
        >>> net = Network(); net.add_input("x", (8, 3)); net.add_node("Relu", ["x"], ["y"])
        >>> held(net)
        96
    """
    return max(live_bytes(network.nodes, value_bytes(network), kept=network.outputs), default=0)


@dataclass(frozen=True)
class _Planned:
    regions: tuple[PlannedRegion, ...]
    peak: int
    extra: float
    method: str


class _Planner:
    """Placements by the model, checked by counting."""

    def __init__(self, found: NetworkRegions) -> None:
        self.found, self.root = found, per_instance(found.root)
        self.places = {region.name: region.place for region in found.root.walk()}
        self.full = held(found.step.network)
        self.times = found.times

    def within(self, limit: int) -> _Planned:
        if self.full <= limit:
            return _Planned((), self.full, 0, "optimal")
        slack = max(0, simulate(self.root, ()).peak - self.full)
        for _ in range(_ROUNDS):
            try:
                placement = optimal_placement(self.root, limit + slack)
            except BudgetError:
                break
            planned = self._count(placement)
            if planned.peak <= limit:
                return planned
            slack = min(slack, placement.outcome.peak - limit) - max(planned.peak - limit, 1)
        smallest = self._count(smallest_placement(self.root))
        if smallest.peak > limit:
            raise unreachable(
                limit, smallest.peak, self.full, "the smallest placement that the model of nested regions has"
            )
        return smallest

    def _count(self, placement: Placement) -> _Planned:
        """What the rewritten step holds and repeats."""
        names = placement.checkpointed
        values = [tuple(v for node in self.found.nodes[name] for v in node.writes) for name in names]
        again = recomputing(self.found.step, values)
        planned = tuple(PlannedRegion(n, self.places[n], v) for n, v in zip(names, values, strict=True))
        extra = sum(self.times[node.writes[0]] for node in again.repeated)
        return _Planned(planned, held(again.network), extra, placement.method)
