"""Calls of a recipe's callables, checked against their signatures before they are made: a wrong keyword is named with
the nearest one that exists."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deep500.errors import RecipeError, nearest

_P = inspect.Parameter


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """The callable's parameters by name, None where Python cannot tell (some C functions)."""
    try:
        declared = dict(inspect.signature(function).parameters)
        if isinstance(function, type) and {p.kind for p in declared.values()} == {_P.VAR_POSITIONAL, _P.VAR_KEYWORD}:
            # Keras and flax make objects by a function of their own, which hides what the class declares.
            declared = dict(list(inspect.signature(function.__init__).parameters.items())[1:])  # type: ignore[misc]
        return declared
    except (TypeError, ValueError):
        return None


def accepts(function: Callable[..., Any], name: str) -> bool:
    """Whether a callable takes a keyword of that name, by declaration or through ``**kwargs``."""
    declared = parameters(function)
    if declared is None:
        return False
    named = declared.get(name)
    if named is not None and named.kind in (_P.POSITIONAL_OR_KEYWORD, _P.KEYWORD_ONLY):
        return True
    return any(p.kind is _P.VAR_KEYWORD for p in declared.values())


def check_call(
    key: str,
    function: Callable[..., Any],
    supplied: int,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    also: Sequence[str] = (),
) -> None:
    """Raise RecipeError unless ``function(<arguments supplied>, *args, **kwargs)`` fits its signature.

    Args:
        key: recipe key, for the message.
        function: what will be called.
        supplied: number of leading positional arguments that the runner supplies itself.
        args, kwargs: the recipe's ``<key>_args`` and ``<key>_kwargs``.
        also: keywords that the runner supplies and a recipe may not.
    """
    declared = parameters(function)
    if declared is None:
        return
    name = getattr(function, "__qualname__", repr(function))
    if inspect.isabstract(function):
        abstract: frozenset[str] = vars(function)["__abstractmethods__"]
        lacks = ", ".join(f"{method}()" for method in sorted(abstract))
        raise RecipeError(f"{key}: got {name}, which lacks {lacks}; expected all methods that are abstract: write them")
    open_ended = any(p.kind is _P.VAR_KEYWORD for p in declared.values())
    by_name = [n for n, p in declared.items() if p.kind in (_P.POSITIONAL_OR_KEYWORD, _P.KEYWORD_ONLY)]
    free = [n for n in by_name if n not in list(declared)[:supplied] and n not in also]
    for keyword in kwargs:
        if keyword not in free and (not open_ended or keyword in by_name):
            raise RecipeError(f"{key}_kwargs: got {keyword!r}; expected a keyword of {name}; {nearest(keyword, free)}")
    try:
        signature = inspect.Signature(list(declared.values()))
        signature.bind(*(None,) * supplied, *args, **dict.fromkeys(also), **kwargs)
    except TypeError as error:
        raise RecipeError(
            f"{key}: got arguments that {name}{signature} does not take ({error}); "
            f"expected those; correct {key}_args or {key}_kwargs"
        ) from error
