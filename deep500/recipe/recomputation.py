"""Recomputation in recipes, the key ``checkpointing``: one plan for all seeds and ranks, kept with the results.

Rank 0, or the first that computes, makes the plan on a batch of its own; the others take it over. A resumed run takes
the plan that it began with, so that a profile taken on another day changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deep500.distributed import Communicator
from deep500.errors import BudgetError, Deep500Error, PlanError, RecipeError
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.network import Network
from deep500.results.recomputation import Choice, RecomputationRecord, record_of
from deep500.transformations.recomputation.counting import peak_bytes
from deep500.transformations.recomputation.plan_file import CheckpointingPlan, load_plan, plan_from
from deep500.transformations.recomputation.regions import find_regions
from deep500.transformations.recomputation.verify import Verification

if TYPE_CHECKING:
    from deep500.transformations.memory_plan import MemoryPlan

MEMORY_PLAN_FILE = "memory_plan.json"
PLAN_FILE = "checkpointing_plan.json"
"""Names of the plans in a results folder."""

FACTS = ("batch", "budget", "predicted_peak", "predicted_extra", "predicted_time", "time_unit", "backend")
"""Attributes of a plan that the manifest repeats."""


def plan_of_run(
    asked: Any, executor: GraphExecutor, sampler: Any, comm: Communicator, folder: Path | None, earlier: Path | None
) -> CheckpointingPlan | None:
    """The plan of a run, the same on every rank; None if the recipe asks for none.

    Args:
        asked: the key's value: a budget, a plan, a path of one, or None.
        executor: of this rank.
        sampler: of this rank's training batches, without prefetching.
        comm: of the run.
        folder: of the recipe, where paths are looked for that the current folder does not have.
        earlier: the plan file of a run that is resumed, None for a new one.

    Raises:
        RecipeError: batches of different sizes.
        PlanError, BudgetError: see :func:`deep500.plan_checkpointing`; a plan for another network or batch size.
    """
    if asked is None:
        return None

    def make(count: int) -> dict[str, Any]:
        plan = _plan(asked, executor, sampler, folder, earlier)
        plan.check(executor.network, count)
        return plan.data()

    plan = plan_from(agreed("checkpointing", make, sampler, comm), "the plan of this run")
    _save_if_short(plan.peak_without)
    return plan


def memory_plan_of_run(
    asked: Any, executor: GraphExecutor, sampler: Any, comm: Communicator, folder: Path | None, earlier: Path | None
) -> MemoryPlan | None:
    """The plan of the key ``memory``, the same on every rank; None if the recipe asks for none.

    Args:
        asked: the key's value: a share, bytes, a path of a plan, or None.
        executor, sampler, comm, folder, earlier: see :func:`plan_of_run`.

    Raises:
        RecipeError: batches of different sizes.
        PlanError, BudgetError: see :func:`deep500.plan_memory`; a plan for another network.
    """
    if asked is None:
        return None

    from deep500.transformations.memory_plan import load_memory_plan, memory_plan_from

    def make(count: int) -> dict[str, Any]:
        if earlier is not None or isinstance(asked, (str, Path)):
            plan = load_memory_plan(earlier or _beside(asked, folder))
            plan.apply(executor.network.copy())
            return plan.data()
        from deep500.transformations.memory_planning import plan_memory

        return plan_memory(executor, asked, first_batch(sampler)).data()

    plan = memory_plan_from(agreed("memory", make, sampler, comm), "the memory plan of this run")
    _save_if_short(plan.peak_without)
    return plan


def _save_if_short(counted: int) -> None:
    """Do as planning does where memory is short, for plans that came from a file."""
    from deep500.measure.allocation import save_memory
    from deep500.transformations.recomputation.rehearsing import is_short

    if is_short(counted):
        save_memory()


def memory_plan_of_record(asked: Any, folder: Path) -> MemoryPlan | None:
    """The plan with which a recorded run trained; None if its recipe asked for none.

    Raises:
        PlanError: the folder holds no such plan.
    """
    if asked is None:
        return None
    from deep500.transformations.memory_plan import load_memory_plan

    return load_memory_plan(folder / MEMORY_PLAN_FILE)


def refuse_memory(values: Mapping[str, Any], where: str) -> None:
    """Raise RecipeError where the key ``memory`` would have no effect.

    Args:
        values: of the recipe's keys.
        where: the steps run, in words.
    """
    if values["memory"] is not None:
        raise RecipeError(
            f"got memory={values['memory']!r} in {where}; expected none, since no memory is planned there: leave it out"
        )


def agreed(key: str, make: Callable[[int], dict[str, Any]], sampler: Any, comm: Communicator) -> dict[str, Any]:
    """Let the first rank with a batch make something for the size of all batches, and share it with the others.

    Raises:
        RecipeError: batches of different sizes.
        PlanError, BudgetError: as it raised there.
    """
    sizes = sorted({len(positions) for positions in sampler.batches(0)})
    everywhere = comm.gather_facts(sizes)
    counts = sorted({size for sizes in everywhere for size in sizes} - {0})
    if len(counts) != 1:
        raise RecipeError(
            f"{key}: got training batches of {counts} samples on {comm.size} rank(s); expected one size, for "
            "which the plan holds: choose a batch_size that the ranks divide, and a train_sampler that drops the last "
            "batch (drop_last_batch=True)"
        )
    leader = next(rank for rank, sizes in enumerate(everywhere) if counts[0] in sizes)
    outcome: dict[str, Any] = {}
    if comm.rank == leader:
        try:
            outcome = {"plan": make(counts[0])}
        except BudgetError as error:
            outcome = {"error": str(error), "smallest": error.smallest}
        except Deep500Error as error:
            outcome = {"error": str(error)}
    shared = comm.gather_facts(outcome)[leader]
    if "smallest" in shared:
        raise BudgetError(f"{key}: {shared['error']}", shared["smallest"])
    if "error" in shared:
        raise PlanError(f"{key}: {shared['error']}")
    data: dict[str, Any] = shared["plan"]
    return data


def _plan(
    asked: Any, executor: GraphExecutor, sampler: Any, folder: Path | None, earlier: Path | None
) -> CheckpointingPlan:
    if earlier is not None:
        return load_plan(earlier)
    if isinstance(asked, CheckpointingPlan):
        return asked
    if isinstance(asked, (int, float)):
        from deep500.transformations.recomputation.planning import plan_checkpointing

        return plan_checkpointing(executor, asked, first_batch(sampler))
    return load_plan(_beside(asked, folder))


def _beside(asked: Any, folder: Path | None) -> Path:
    """The path of a plan, in the current folder or the recipe's."""
    path = Path(asked)
    beside = path if folder is None else folder / path
    return path if path.exists() or not beside.exists() else beside


def first_batch(sampler: Any) -> Mapping[str, Any]:
    """The first training batch, not taken from the sampler: batches are a function of their number."""
    batch: Mapping[str, Any] = sampler.batch(0, 0)
    return batch


def record_of_run(
    plan: CheckpointingPlan, network: Network, backend: str, checked: Verification | None
) -> RecomputationRecord:
    """The report's record of a plan: regions and memory over time by the graph, and peaks if they were measured.

    Args:
        plan: for the network.
        network: that is trained.
        backend: on which.
        checked: what a dry run measured.
    """
    regions = find_regions(network, plan.batch, plan.loss)
    measured, without = (None, None) if checked is None else (checked.measured, checked.without)
    base = plan.predicted_time - plan.predicted_extra
    choices = (
        Choice(
            "no recomputation",
            "none",
            0,
            plan.peak_without or peak_bytes(regions.step.network),
            base,
            without,
            note="measured when it was planned" if plan.measured else "predicted from the graph",
        ),
        Choice("planned", "planned", len(plan.regions), plan.predicted_peak, plan.predicted_time, measured),
    )
    return record_of(regions, plan, backend, choices)


def memory_facts(plan: MemoryPlan | None) -> dict[str, Any]:
    """The manifest's entry on a memory plan; nothing without one."""
    from deep500.measure.allocation import allocator_settings

    if plan is None:
        return {}
    facts = {name: getattr(plan, name) for name in ("budget", "peak", "peak_without", "operations", "bound", "method")}
    pieces = {"parts": len(plan.parts), "at_once": plan.at_once, "allocator": allocator_settings()}
    return {"memory": {"file": MEMORY_PLAN_FILE, **pieces, "measured": plan.measured, **facts}}


def facts_of(plan: CheckpointingPlan | None, checked: Verification | None) -> dict[str, Any]:
    """The manifest's entry on a plan; nothing without a plan. What was not measured is None."""
    if plan is None:
        return {}
    facts = {name: getattr(plan, name) for name in FACTS}
    peaks = {
        "measured_peak": None if checked is None else checked.measured,
        "measured_peak_without": None if checked is None else checked.without,
    }
    return {"checkpointing": {"file": PLAN_FILE, "regions": len(plan.regions), **facts, **peaks}}


def sentence(plan: CheckpointingPlan) -> str:
    """The console's line on a plan."""
    share = plan.predicted_extra / plan.predicted_time if plan.predicted_time else 0.0
    source = "operations" if plan.time_unit == "FLOP" else f"time on {plan.backend}"
    how = f"measured on {plan.backend}" if plan.measured else "counted in the network, not measured"
    return (
        f"checkpointing: {len(plan.regions)} regions run again, {share:.1%} of a step's {source}; predicted peak "
        f"{plan.predicted_peak:,} B ({how}), budget {plan.budget:,} B"
    )
