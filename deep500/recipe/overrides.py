"""The second step from a recipe to a plan: words of the command line, such as ``batch_size=128``,
``optimizer_kwargs.lr=0.1`` or ``optimizer_args.0=0.05``.

Values are Python literals, else plain text; their type must match what they replace. What FIXED defines, and what the
recipe leaves at its default, belongs to the closed division: changing it takes ``--open`` and marks the run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from typing import Any

from deep500.errors import RecipeError, nearest
from deep500.recipe.names import is_own_name
from deep500.recipe.plan import Override, RunPlan
from deep500.recipe.schema import COMPANIONS, KEYS, check_name

UNTYPED = ("checkpointing", "memory", "parallel", "precision", "freeze", "no_decay", "ema")
"""Keys whose value may be replaced by one of another type."""


NAMED = ("scheme", "train_sampler", "validation_sampler")
"""Keys that a recipe may leave out and whose value is a callable: what is typed for them is a name."""


def override(plan: RunPlan) -> RunPlan:
    """Change the values by the words of the command line; what is a name is looked up by the next step.

    Raises:
        RecipeError: a word that is none, an unknown or a closed key, another type, or a path that leads nowhere.
    """
    plan.overrides = parse(plan.options.overrides, plan.values)
    for change in plan.overrides:
        key = change.key
        plan.open_for(str(change), key)
        old = plan.values.get(key, KEYS[key].default if key in KEYS else None)
        if change.path:
            container = plan.values.get(key, () if key.endswith("_args") else {})
            plan.values[key] = _replace(container, change.path, change)
        elif key in KEYS and KEYS[key].named and is_own_name(key, change.text):
            plan.values[key] = [change.text] if isinstance(KEYS[key].default, tuple) else change.text
        elif key in plan.words or callable(old) or (old is None and key in NAMED):
            plan.words.setdefault(key, old)
            plan.values[key] = change.text
        else:
            plan.values[key] = convert(str(change), change.text, None if key in UNTYPED else old)
    return plan


def parse(words: Iterable[str], values: Mapping[str, Any] | None = None) -> list[Override]:
    """Read ``key=value`` words; raises RecipeError for a word without ``=`` or an unknown key.

    ``values`` are the recipe's: what is a name within one of them, such as ``lr``, is told its place.

    Example:
        >>> parse(["optimizer_kwargs.lr=0.1"])
        [Override(key='optimizer_kwargs', path=('lr',), text='0.1')]
    """
    changes = []
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise RecipeError(f"got {word!r}; expected key=value; known keys: see --list-mutable")
        key, *path = name.strip().split(".")
        within = [
            f"{name}.{key}" for name, value in (values or {}).items() if name.endswith("_kwargs") and key in value
        ]
        if key not in KEYS and within and not path:
            raise RecipeError(
                f"got unknown key {key!r} on the command line; expected a recipe key; write {within[0]}={text}"
            )
        check_name(key, "on the command line")
        if any(not part for part in path) or (path and not key.endswith(COMPANIONS)):
            raise RecipeError(f"got {word!r}; expected a dot only after <key>_args or <key>_kwargs; write key=value")
        changes.append(Override(key, tuple(path), text.strip()))
    return changes


def _replace(container: Any, path: tuple[str, ...], override: Override) -> Any:
    """The container with the element at the path changed; tuples are rebuilt."""
    step, rest = path[0], path[1:]
    if isinstance(container, dict):
        old = container.get(step)
        if rest and step not in container:
            raise RecipeError(f"got {override}; expected a path that exists; {nearest(step, container)}")
        container[step] = _replace(old, rest, override) if rest else convert(str(override), override.text, old)
        return container
    if isinstance(container, (list, tuple)):
        if not step.isdigit() or int(step) >= len(container):
            raise RecipeError(f"got {override}; expected a position from 0 to {len(container) - 1}; choose one of them")
        items = list(container)
        old = items[int(step)]
        items[int(step)] = _replace(old, rest, override) if rest else convert(str(override), override.text, old)
        return type(container)(items)
    raise RecipeError(
        f"got {override}; expected a dict or list at {step!r}, found {type(container).__name__}; shorten it"
    )


def convert(what: str, text: str, old: Any) -> Any:
    """Read ``text`` as a Python literal of the type of ``old`` (None: any type); raises RecipeError.

    An int may stand for a float, a list for a tuple; a bool is no int.

    Example:
        >>> convert("lr=1", "1", 0.5), convert("name=adam", "adam", "sgd")
        (1.0, 'adam')
    """
    try:
        new: Any = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        new = text
    if isinstance(old, str):
        return new if isinstance(new, str) else text
    if old is None:
        return new
    if isinstance(old, float) and isinstance(new, int) and not isinstance(new, bool):
        return float(new)
    if isinstance(old, (tuple, list)) and isinstance(new, (tuple, list)):
        return type(old)(new)
    if type(new) is type(old):
        return new
    raise RecipeError(
        f"got {what}, of type {type(new).__name__}; expected {type(old).__name__} like {old!r}; "
        "give a value of that type"
    )
