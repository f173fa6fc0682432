"""Overrides from the command line: ``batch_size=128``, ``optimizer_kwargs.lr=0.1``, ``optimizer_args.0=0.05``.

Values are Python literals, else plain text; their type must match what they replace. What FIXED defines, and what the
recipe leaves at its default, belongs to the closed division: changing it takes ``--open`` and marks the run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deep500.errors import RecipeError, nearest
from deep500.recipe.calls import accepts
from deep500.recipe.names import is_own_name
from deep500.recipe.schema import COMPANIONS, KEYS, base_of, check_name, copy_containers

FREE = ("seed", "checkpointing", "keep_checkpoints")
"""Keys that stay mutable unless FIXED names them: other values leave results comparable, or the same."""

UNTYPED = ("checkpointing", "precision", "freeze", "no_decay", "ema")
"""Keys whose value may be replaced by one of another type."""


@dataclass(frozen=True)
class Override:
    """One ``key.path=value``; ``text`` is the value as it was typed."""

    key: str
    path: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{'.'.join((self.key, *self.path))}={self.text}"


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


def is_closed(key: str, fixed: Mapping[str, Any], mutable: Mapping[str, Any]) -> bool:
    """Whether changing a key leaves the closed division: FIXED has it or its base key, or MUTABLE has neither."""
    base = base_of(key)
    if key in fixed or key in mutable:
        return key in fixed
    return base in fixed or (base not in mutable and base not in FREE)


NAMED = ("scheme", "train_sampler", "validation_sampler")
"""Keys that a recipe may leave out and whose value is a callable: what is typed for them is a name."""


def refuse_fixed(what: str, key: str, fixed: Mapping[str, Any], mutable: Mapping[str, Any], is_open: bool) -> bool:
    """Whether ``what`` opens the run; raises RecipeError if it does and ``--open`` was not given."""
    if not is_closed(key, fixed, mutable):
        return False
    if not is_open:
        how = "FIXED" if key in fixed or base_of(key) in fixed else "left at its default by the recipe"
        free = sorted(k for k in mutable if k in KEYS) or ["none"]
        raise RecipeError(
            f"got {what}, but {key!r} is {how}; expected changes to MUTABLE keys only ({', '.join(free)}); "
            "add --open to leave the closed division (the report will say so)"
        )
    return True


def apply(values: dict[str, Any], override: Override, resolve_name: Callable[[str, str, Any], Any]) -> None:
    """Change ``values`` (the runner's own copy) by one override.

    Args:
        values: merged recipe.
        override: what to change.
        resolve_name: ``(key, name, old) -> object`` for keys whose value is a callable.

    Raises:
        RecipeError: the type does not match, or the path leads nowhere.
    """
    key, path = override.key, override.path
    if not path:
        old = values.get(key, KEYS[key].default if key in KEYS else None)
        if key in KEYS and KEYS[key].own and is_own_name(key, override.text):  # the plan looks it up, as in a recipe
            values[key] = [override.text] if isinstance(KEYS[key].default, tuple) else override.text
        elif callable(old) or (old is None and key in NAMED):
            values[key] = resolve_name(key, override.text, old)
        else:
            values[key] = convert(str(override), override.text, None if key in UNTYPED else old)
        return
    container = copy_containers(values.get(key, () if key.endswith("_args") else {}))
    values[key] = _replace(container, path, override)


def leave_out(values: dict[str, Any], changes: Iterable[Override]) -> list[str]:
    """Take keywords of the recipe's from ``<key>_kwargs`` where a class from the command line does not know them.

    A recipe writes them for its own class: ``momentum`` means nothing to ``optimizer=AdamOptimizer``. Those that the
    command line itself gives stay, to be refused if they are wrong.

    Returns:
        what was left out, in words.
    """
    changes, said = list(changes), []
    for change in changes:
        name = f"{change.key}_kwargs"
        if change.path or not values.get(name) or not (change.key in KEYS and KEYS[change.key].companions):
            continue
        new, given = values[change.key], {other.path[0] for other in changes if other.key == name and other.path}
        known = getattr(new, "hyperparameters", None)
        odd = [
            word
            for word in values[name]
            if word not in given and not (accepts(new, word) if known is None else word in known)
        ]
        if odd and not any(other.key == name and not other.path for other in changes):
            values[name] = {word: value for word, value in values[name].items() if word not in odd}
            kept = ", ".join(f"{word}={value}" for word, value in values[name].items()) or "nothing"
            said.append(f"{change}: {', '.join(odd)} of the recipe's {name} left out, not known to it; kept: {kept}")
    return said


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
