"""Parallel plans in recipes, the key ``parallel``: the network is divided among the ranks, and the plan kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
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

MODEL = "model"
"""The axis of a mesh on which the key divides the network."""

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
    got = f"got parallel={values['parallel']!r} with"
    for key in ("checkpointing", "memory"):
        if values[key] is not None:
            raise RecipeError(
                f"{got} {key}={values[key]!r}; expected one of them: a divided step is forward and backward in one "
                "network, from which nothing is computed again. Give parallel the bytes that a rank may hold, or "
                f"divide the batch on an axis around (mesh={{'data': 2, 'model': 2}}), or leave parallel out"
            )
    if values["scheme"] is not None:
        raise RecipeError(f"{got} scheme={values['scheme']!r}; expected one of them: a plan is a scheme")
    if values["mesh"] is not None and MODEL not in values["mesh"]:
        raise RecipeError(
            f"{got} mesh={values['mesh']!r}; expected an axis {MODEL!r}, on which the network is divided: such as "
            "{'data': 2, 'model': 2}"
        )


def division_scheme(asked: Any) -> partial[DividedNetwork]:
    """The scheme :class:`~deep500.distributed.schemes.divided.DividedNetwork` as the key's value asks for it."""
    from deep500.distributed.schemes.divided import DividedNetwork

    if isinstance(asked, Mapping):
        return partial(DividedNetwork, pins=asked)
    if isinstance(asked, int):
        return partial(DividedNetwork, memory=asked)
    if asked == MEASURED:
        return partial(DividedNetwork, costs="measured")
    return partial(DividedNetwork, plan=None if asked == AUTO else str(asked))


def _dividing(optimizer: Any) -> Any:
    """The scheme that divides the network, also within others; None if there is none."""
    schemes = optimizer.around_each() if hasattr(optimizer, "around_each") else []
    return next((scheme for scheme in schemes if hasattr(scheme, "take_plan")), None)


def take_over_plan(folder: Path, optimizer: Any) -> None:
    """Let a run that goes on do so by the plan that it kept, where it is on as many ranks."""
    kept_file, scheme = folder / PARALLEL_PLAN_FILE, _dividing(optimizer)
    if scheme is not None and scheme.comm.size > 1 and kept_file.is_file():
        from deep500.transformations.parallel.plan_file import load_parallel_plan

        plan = load_parallel_plan(kept_file)
        if plan.ranks == scheme.comm.size:
            scheme.take_plan(plan)


def keep_plan(folder: Path, optimizer: Any) -> str | None:
    """Write the plan of a run among its results; a sentence on it, None without one."""
    scheme = _dividing(optimizer)
    if scheme is None or scheme.plan is None:
        return None
    plan = scheme.plan
    plan.save(folder / PARALLEL_PLAN_FILE)
    write_division(folder, plan, scheme.explain())
    return f"parallel: {plan.about()}; {PARALLEL_PLAN_FILE}"
