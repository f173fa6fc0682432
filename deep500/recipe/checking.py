"""The last step from a recipe to a plan: every value is judged, and what the recipe leaves open gets its default."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from deep500.errors import RecipeError
from deep500.metrics import Metric
from deep500.metrics.base import Direction, Kind
from deep500.recipe.calls import parameters
from deep500.recipe.describing import describe, sources_of
from deep500.recipe.options import AUTO, Options
from deep500.recipe.plan import RunPlan
from deep500.recipe.schema import BASES, KEYS
from deep500.tasks import Classification

if TYPE_CHECKING:
    from deep500.recipe.repetition import Repetition


def check(plan: RunPlan) -> RunPlan:
    """Check values and metrics, fill in defaults, and list the seeds; raises RecipeError for what is wrong."""
    for key in (key for key in KEYS if KEYS[key].named and key in plan.values):  # of files that no name says
        plan.sources += [source for source in sources_of(key, plan.values[key]) if source not in plan.sources]
    _check_values(plan.values)
    plan.values = with_defaults(plan.values)
    if plan.options.dry_run:
        plan.values["epochs"] = 1
    repeat = plan.options.repeat
    plan.seeds = [plan.values["seed"] + number for number in range(1 if isinstance(repeat, str) else repeat)]
    plan.metrics = _checked_metrics(plan.metrics)
    plan.sources += [s for s in sources_of("METRICS", [m for m, _ in plan.metrics]) if s not in plan.sources]
    plan.repetition = _repetition(plan.options)
    return plan


def _check_values(values: Mapping[str, Any]) -> None:
    """Raise RecipeError for a value of the wrong kind; reaches companions too."""
    for name, value in values.items():
        if name.endswith("_kwargs") and not (isinstance(value, Mapping) and all(isinstance(k, str) for k in value)):
            raise RecipeError(f"{name}: got {value!r}; expected a dict with names as keys; write {name}=dict(...)")
        if name.endswith("_args") and not isinstance(value, (list, tuple)):
            raise RecipeError(f"{name}: got {value!r}; expected a tuple; write ({value!r},)")
        key = KEYS.get(name)
        if key is not None and key.check is not None and not key.check[0](value):
            raise RecipeError(f"{name}: got {value!r}; expected {key.check[1]}; that is {key.meaning}")
        if key is not None and (key.call or key.takes):
            for element in value if isinstance(value, (list, tuple)) else [value]:
                _check_function(name, element, key.takes)


def _check_function(name: str, function: Any, takes: Sequence[str]) -> None:
    """Raise RecipeError for a class in the place of its object, and for a function that is called otherwise."""
    if isinstance(function, type):
        title = function.__qualname__
        raise RecipeError(f"{name}: got the class {title}; expected an object of it: write {title}(...)")
    declared = parameters(function) if takes and callable(function) else None
    try:
        if declared is not None:
            inspect.Signature(list(declared.values())).bind(*takes)
    except TypeError as error:
        raise RecipeError(
            f"{name}: got {function!r}, which takes other arguments ({error}); expected a function that is called with "
            f"({', '.join(takes)}): {KEYS[name].meaning}"
        ) from error


def with_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with what is absent at its default; companions are () and {}."""
    full: dict[str, Any] = {}
    for name, key in KEYS.items():
        full[name] = values.get(name, key.default)
        if key.companions:
            full[f"{name}_args"] = tuple(values.get(f"{name}_args", ()))
            full[f"{name}_kwargs"] = dict(values.get(f"{name}_kwargs", {}))
    if full["loss"] is None and full["task"] in (None, Classification.name):
        full["loss"] = "cross_entropy"
    return full


def _repetition(options: Options) -> Repetition | None:
    """When to train more seeds; a dry run trains one."""
    if options.repeat != AUTO or options.budget is None or options.dry_run:
        return None
    from deep500.recipe.repetition import Repetition  # few runs repeat by themselves

    return Repetition(options.budget) if options.precision is None else Repetition(options.budget, options.precision)


def _checked_metrics(metrics: Any) -> list[tuple[Any, float | None]]:
    """METRICS as (metric, target) pairs, the metrics copied; raises RecipeError for anything else."""
    if not isinstance(metrics, (list, tuple)):
        raise RecipeError(f"METRICS: got {type(metrics).__name__}; expected a list of (metric, target or None)")
    pairs: list[tuple[Any, float | None]] = []
    for entry in metrics:
        metric, target = entry if isinstance(entry, (list, tuple)) and len(entry) == 2 else (entry, None)
        if not isinstance(metric, Metric):
            hint = (
                "add the parentheses: TestAccuracy()"
                if isinstance(metric, type)
                else "such as (d5.TestAccuracy(), 93.0)"
            )
            raise RecipeError(f"METRICS: got {entry!r}; expected (metric, target or None); {hint}")
        for word, fits in (("direction", get_args(Direction)), ("kind", get_args(Kind))):
            if getattr(metric, word) not in fits:
                raise RecipeError(
                    f"METRICS: got {word} {getattr(metric, word)!r} of {metric.name!r}; expected one of "
                    f"{', '.join(map(repr, fits))}: set it in {type(metric).__name__}"
                )
        is_number = isinstance(target, (int, float)) and not isinstance(target, bool) and not math.isnan(target)
        if target is not None and not is_number:
            raise RecipeError(
                f"METRICS: got target {target!r} for {metric.name!r}; expected a number or None; give one"
            )
        if any(metric.name == other.name for other, _ in pairs):
            raise RecipeError(
                f"METRICS: got {metric.name!r} twice; expected each metric once; remove one or name it differently"
            )
        pairs.append((copy.deepcopy(metric), target))
    return pairs


def mutable_lines(plan: RunPlan) -> list[str]:
    """The lines of ``--list-mutable``: every key that may be changed, its value and its meaning."""
    shown = []
    for name, value in plan.values.items():
        if name not in plan.closed and (name in KEYS or value):
            meaning = KEYS[name].meaning if name in KEYS else f"arguments of {BASES[name]}"
            shown.append(f"{name} = {describe(value)!r}  # {meaning}")
    return shown
