"""Parallel plans in recipes, the key ``parallel``: the network is divided among the ranks, and the plan kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deep500.errors import RecipeError
from deep500.results.division import write_division

if TYPE_CHECKING:
    from deep500.distributed.schemes.divided import DividedNetwork

AUTO = "auto"
"""The value of the key for which the planner decides alone, by round numbers for the costs of messages."""

MEASURED = "measured"
"""The same by costs that the ranks measure; another launch may measure, and so plan, otherwise."""

PARALLEL_PLAN_FILE = "parallel_plan.json"
"""Name of the plan among the results."""


def is_wish(value: Any) -> bool:
    """Whether the key takes a value: ``"auto"``, ``"measured"``, the path of a plan, bytes that a rank may hold, or
    pins.

    Example:
        >>> [is_wish(value) for value in ("auto", 10_000, {"fc1": "n"}, 0, 0.5)]
        [True, True, True, False, False]
    """
    if isinstance(value, Mapping):
        return all(isinstance(word, str) for pair in value.items() for word in pair)
    if isinstance(value, int) and not isinstance(value, bool):
        return value > 0
    return value is None or isinstance(value, str | Path)


def check_parallel(values: Mapping[str, Any]) -> None:
    """Raise RecipeError for keys that do not go with ``parallel``."""
    if values["parallel"] is None:
        return
    for key in ("scheme", "mesh", "checkpointing", "memory"):
        if values[key] is not None:
            raise RecipeError(
                f"got parallel={values['parallel']!r} with {key}={values[key]!r}; expected one of them: a plan "
                "of the key parallel is a scheme, and plans the memory of parameters alone"
            )


def divided(asked: Any, optimizer: Any, comm: Any) -> DividedNetwork:
    """The optimizer in :class:`~deep500.distributed.schemes.divided.DividedNetwork`, as the key's value asks.

    Raises:
        InputError, PlanError, CommunicationError: as the scheme.
    """
    from deep500.distributed.schemes.divided import DividedNetwork

    if isinstance(asked, Mapping):
        return DividedNetwork(optimizer, comm, pins=asked)
    if isinstance(asked, int):
        return DividedNetwork(optimizer, comm, memory=asked)
    if asked == MEASURED:
        return DividedNetwork(optimizer, comm, costs="measured")
    return DividedNetwork(optimizer, comm, plan=None if asked == AUTO else str(asked))


def take_over_plan(folder: Path, optimizer: Any) -> None:
    """Let a run that goes on do so by the plan that it kept, where it is on as many ranks."""
    kept_file = folder / PARALLEL_PLAN_FILE
    if hasattr(optimizer, "take_plan") and optimizer.comm.size > 1 and kept_file.is_file():
        from deep500.transformations.parallel.plan_file import load_parallel_plan

        plan = load_parallel_plan(kept_file)
        if plan.ranks == optimizer.comm.size:
            optimizer.take_plan(plan)


def keep_plan(folder: Path, optimizer: Any) -> str | None:
    """Write the plan of a run among its results; a sentence on it, None without one."""
    plan = getattr(optimizer, "plan", None) if hasattr(optimizer, "take_plan") else None
    if plan is None:
        return None
    plan.save(folder / PARALLEL_PLAN_FILE)
    write_division(folder, plan, optimizer.explain())
    return f"parallel: {plan.about()}; {PARALLEL_PLAN_FILE}"
