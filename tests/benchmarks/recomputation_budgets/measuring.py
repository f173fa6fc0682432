"""One network under several shares: what is held, what was predicted, bits, and times in turns with PyTorch's."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from deep500.errors import BudgetError, PlanError
from deep500.registry import load_backend
from deep500.transformations.recomputation import find_regions
from deep500.transformations.recomputation.blocks import BlockPlans
from deep500.transformations.recomputation.node_times import batch_of
from deep500.transformations.recomputation.plan_file import CheckpointingPlan
from deep500.transformations.recomputation.planning import plan_checkpointing
from deep500.transformations.workshop.recomputation.chosen_plans import equal_segments, plan_of
from recipes.studies.recomputation_profile.measuring import StepRunner, equal, runner_of, time_in_turns
from recipes.studies.recomputation_profile.torch_budget import torch_runner
from tests.benchmarks.recomputation_budgets.networks import NETWORKS, Subject

TORCH = (0.8, 0.5, 0.3, 0.1)
"""Budgets of ``activation_memory_budget``, shares of saved bytes."""
SEGMENTS = (2, 3, 4, 6, 8)
"""Equal segments under ``torch.utils.checkpoint``."""


@dataclass(frozen=True)
class Rival:
    """Somebody else's way that holds no more than was asked; ``time`` is None where none does, ``peak`` then the least.

    Attributes:
        way: its name.
        peak: share of the peak without recomputation.
        time: over the step without recomputation; None if nothing was timed.
    """

    way: str
    peak: float
    time: float | None


@dataclass(frozen=True)
class Row:
    """One plan.

    Attributes:
        asked, held: shares of the measured peak; None: no plan fits.
        off: measured over predicted peak, less 1.
        same: whether gradients and running statistics are the same bits.
        regions, planning: how many run again, and seconds of processor time to plan.
        predicted: time of the step over that without, by the plan.
        time, low, high: of the step over that without, median and interval; None: not timed.
        rounds: in which it was timed.
        note: why there is no plan.
        budget, segments, blocks: PyTorch's own planner, and its checkpoints around equal segments and every block.
    """

    asked: float
    held: float | None = None
    off: float | None = None
    same: bool | None = None
    regions: int = 0
    planning: float = 0.0
    predicted: float | None = None
    time: float | None = None
    low: float | None = None
    high: float | None = None
    rounds: int = 0
    note: str = ""
    budget: Rival | None = None
    segments: Rival | None = None
    blocks: Rival | None = None


def measure(name: str, shares: Sequence[float], rounds: int, way: str, rivals: bool) -> dict[str, Any]:
    """The rows of one network, and what the step without recomputation takes.

    Args:
        name: of the network.
        shares: of the measured peak.
        rounds: of timed steps; 0: nothing is timed.
        way: how PyTorch follows our plans, ``"explicit"`` or ``"checkpoint"``.
        rivals: whether PyTorch's own ways take part.
    """
    subject = NETWORKS[name]()
    base, answer = runner_of(_executor(subject, None, way), subject[1])
    if base.peak is None:
        raise PlanError("got a backend that counts no bytes; expected one that does: measure on a processor or a GPU")
    runners, rows = {"": base}, list[Row]()
    for share in shares:
        row, runner = _planned(subject, share, way, base.peak, answer)
        rows.append(row)
        if runner is not None:
            runners[f"planned {share}"] = runner
    others = _others(subject, base.peak, shares, answer) if rivals else {}
    runners |= others
    timed = dict(zip(runners, time_in_turns(list(runners.values()), rounds, True), strict=True)) if rounds else {}
    shown = []
    for row in rows:
        own = timed.get(f"planned {row.asked}")
        times = {} if own is None else {**dict(zip(("time", "low", "high"), own.ratio, strict=True)), "rounds": rounds}
        kinds = {"budget": "activation_memory_budget", "segments": "checkpoint", "blocks": "every block"}
        found = {key: _best(row.asked, base.peak, kind, others, timed) for key, kind in kinds.items()}
        shown.append(asdict(row) | times | {key: rival and asdict(rival) for key, rival in found.items()})
    seconds = timed[""].seconds.median if timed else None
    load = os.getloadavg()[0]
    return {"network": name, "recompute": way, "peak": base.peak, "seconds": seconds, "load": load, "rows": shown}


def _executor(subject: Subject, plan: CheckpointingPlan | None, way: str) -> Any:
    executor = load_backend("pytorch").from_model(subject[0], recompute=way)
    executor.set_checkpointing(plan)
    return executor


def _planned(
    subject: Subject, share: float, way: str, peak: int, answer: dict[str, np.ndarray]
) -> tuple[Row, StepRunner | None]:
    begin = time.process_time()
    try:
        plan = plan_checkpointing(_executor(subject, None, way), share, subject[1])
    except (BudgetError, PlanError) as error:
        return Row(share, planning=time.process_time() - begin, note=str(error)), None
    planning = time.process_time() - begin
    runner, got = runner_of(_executor(subject, plan, way), subject[1])
    held = runner.peak or 0
    same, off = equal(got, answer), held / plan.predicted_peak - 1
    predicted = plan.predicted_time / (plan.predicted_time - plan.predicted_extra)
    return Row(share, held / peak, off, same, len(plan.regions), planning, predicted), runner


def _others(
    subject: Subject, peak: int, shares: Sequence[float], answer: dict[str, np.ndarray]
) -> dict[str, StepRunner]:
    """PyTorch's own planner at several budgets, the fewest equal segments within each share, and every block."""
    network, inputs = subject
    runners = {}
    for budget in TORCH:
        runners[f"activation_memory_budget {budget}"] = torch_runner(
            _executor(subject, None, "checkpoint"), inputs, budget
        )
    batch = batch_of(network, inputs)
    regions = find_regions(network, batch)
    for count in SEGMENTS:
        if count >= len(regions.innermost()):
            break
        plan = plan_of(network, batch, regions, equal_segments(regions, count), f"{count} segments")
        runner, got = runner_of(_executor(subject, plan, "checkpoint"), inputs)
        if not equal(got, answer):
            raise PlanError(f"got other bits with {count} segments; expected the same: look for what draws numbers")
        runners[f"checkpoint, {count} segments"] = runner
    for depth, plan in enumerate(BlockPlans(network, batch, regions, "none").every_block()):
        runner, got = runner_of(_executor(subject, plan, "checkpoint"), inputs)
        if not equal(got, answer):
            raise PlanError(f"got other bits with every block of depth {depth + 1} again; expected the same")
        runners[f"every block, depth {depth + 1}"] = runner
    return runners


def _best(asked: float, peak: int, kind: str, others: dict[str, StepRunner], timed: dict[str, Any]) -> Rival | None:
    """The quickest way of a kind within a share, or the one with the least peak where none is."""
    ways = {name: runner.peak / peak for name, runner in others.items() if name.startswith(kind) and runner.peak}
    if not ways:
        return None
    within = [name for name, share in ways.items() if share <= asked]
    if not within:
        least = min(ways, key=lambda name: ways[name])
        return Rival(least, ways[least], None)
    times = {name: timed[name].ratio.median if timed else None for name in within}
    best = min(within, key=lambda name: times[name] or ways[name])
    return Rival(best, ways[best], times[best])
