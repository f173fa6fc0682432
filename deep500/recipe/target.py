"""The fourth step from a recipe to a plan: the device, the framework and the seed that the command line asks for."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from deep500.devices import to_device
from deep500.errors import RecipeError
from deep500.recipe.describing import describe
from deep500.recipe.names import namesake
from deep500.recipe.plan import RunPlan
from deep500.recipe.schema import KEYS
from deep500.registry import backend_of, load_backend


def retarget(plan: RunPlan) -> RunPlan:
    """Apply ``--device``, ``--backend`` and ``--seed``; what was FIXED among what they change opens the run.

    Raises:
        MissingBackend: there is no such backend, or its framework is not installed.
        RecipeError: the other backend has no object of that name, or the executor belongs to none.
    """
    values, options = plan.values, plan.options
    for change in plan.overrides:
        name = ".".join((change.key, *change.path))
        option, value = {"seed": ("--seed", options.seed), "executor_kwargs.device": ("--device", options.device)}.get(
            name, ("", None)
        )
        if value is not None and change.text != str(value):
            raise RecipeError(f"got {change} and {option} {value}; expected one of them: leave the other out")
    if options.device is not None:
        plan.open_for(f"--device {options.device}", "executor_kwargs")
        values["executor_kwargs"] = {**values.get("executor_kwargs", {}), "device": to_device(options.device)}
    if options.framework is not None:
        framework = backend_of(load_backend(options.framework).from_model) or options.framework
        what = f"--backend {framework}"
        for key, value in list(values.items()):
            values[key] = _retargeted(value, framework)
            if values[key] is not value:
                plan.open_for(what, key, f"{what} ({key})")
        if backend_of(values["executor"]) != framework:
            raise RecipeError(
                f"got {what} but the executor is {describe(values['executor'])}; expected one that "
                "belongs to a backend, such as d5fw.from_model: change the recipe"
            )
    if options.seed is not None and options.seed != values.get("seed", KEYS["seed"].default):
        plan.open_for(f"--seed {options.seed}", "seed")
        values["seed"] = options.seed
    return plan


def _retargeted(value: Any, framework: str) -> Any:
    """The object of the same name in another backend, in containers one by one; the very value if nothing changes."""
    if isinstance(value, Mapping):
        items = {key: _retargeted(item, framework) for key, item in value.items()}
        return items if any(items[key] is not value[key] for key in items) else value
    if type(value) in (list, tuple):
        elements = [_retargeted(item, framework) for item in value]
        return type(value)(elements) if any(a is not b for a, b in zip(elements, value, strict=True)) else value
    source = backend_of(value)
    if source is None or source == framework or not callable(value):
        return value
    if isinstance(value, functools.partial):
        return functools.partial(_retargeted(value.func, framework), *value.args, **value.keywords)
    name = getattr(value, "__qualname__", "")
    return namesake(
        "optimizer", name, load_backend(framework), f"--backend {framework}: {name!r} of backend {source!r}"
    )
