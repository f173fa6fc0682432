"""Parallel plans in recipes, the key ``parallel``: the network is divided among the ranks, and the plan kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deep500.errors import RecipeError
from deep500.results.division import write_division

MODEL = "model"
"""The axis of a mesh on which the key divides the network."""

_ODD = {
    "scheme": "one of them: a plan is a scheme",
    "memory": "checkpointing, as no rank works on pieces of its batch: give the same number to it",
}

PARALLEL_PLAN_FILE = "parallel_plan.json"
"""Name of the plan among the results."""


def is_wish(value: Any) -> bool:
    """Whether the key takes a value: ``"auto"``, ``"measured"``, a plan's path, bytes that a rank may hold, or pins.

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
    odd = {key: why for key, why in _ODD.items() if values[key] is not None}
    if values["mesh"] is not None and MODEL not in values["mesh"]:
        odd["mesh"] = f"an axis {MODEL!r}, on which the network is divided: name one of its axes so"
    if not isinstance(values["checkpointing"], int | float | None):
        odd["checkpointing"] = "a budget, bytes or a share of what a rank's step holds: give a number"
    for key, expected in odd.items() if values["parallel"] is not None else ():
        raise RecipeError(f"got parallel={values['parallel']!r} with {key}={values[key]!r}; expected {expected}")


def dividing(optimizer: Any) -> Any:
    """The scheme that divides the network, also within others; None if there is none."""
    schemes = optimizer.around_each() if hasattr(optimizer, "around_each") else []
    return next((scheme for scheme in schemes if hasattr(scheme, "take_plan")), None)


def take_over_plan(folder: Path, optimizer: Any) -> None:
    """Let a run that goes on do so by the plan that it kept, where it is on as many ranks."""
    kept_file, scheme = folder / PARALLEL_PLAN_FILE, dividing(optimizer)
    if scheme is not None and kept_file.is_file():
        scheme.take_plan(str(kept_file))


def keep_plan(folder: Path, optimizer: Any) -> str | None:
    """Write the plan of a run among its results; a sentence on it, None without one."""
    scheme = dividing(optimizer)
    if scheme is None or scheme.plan is None:
        return None
    plan = scheme.plan
    plan.save(folder / PARALLEL_PLAN_FILE)
    write_division(folder, plan, scheme.explain())
    return f"parallel: {plan.about()}; {PARALLEL_PLAN_FILE}"
