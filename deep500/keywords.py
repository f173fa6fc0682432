"""Functions with many options: one frozen object inside, keywords outside."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_R = TypeVar("_R")


def takes(options: Callable[_P, _T]) -> Callable[[Callable[[_T], _R]], Callable[_P, _R]]:
    """Let a function of one object be called with what makes the object, a dataclass of options with their defaults.

    The signature and the docstring of the function name the options, so that editors, type checkers and ``help`` show
    what users may write.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Area:
        ...     width: float
        ...     height: float = 1.0
        >>> @takes(Area)
        ... def area(shape: Area) -> float:
        ...     return shape.width * shape.height
        >>> area(2.0, height=3.0)
        6.0
    """

    def decorate(function: Callable[[_T], _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def call(*args: _P.args, **keywords: _P.kwargs) -> _R:
            return function(options(*args, **keywords))

        signature, returned = inspect.signature(options), inspect.signature(function).return_annotation
        call.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
        call.__doc__ = _with_arguments(inspect.getdoc(function) or "", inspect.getdoc(options) or "")
        return call

    return decorate


def hands_on(options: Callable[..., Any]) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Give a function that hands on its ``**keywords`` to a dataclass a signature that names the fields.

    Recipes check calls by signatures, and editors show them.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Colour:
        ...     red: float = 0.0
        >>> @hands_on(Colour)
        ... def paint(name: str, **colour: float): ...
        >>> print(inspect.signature(paint))
        (name: 'str', *, red: 'float' = 0.0)
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    fields = [field.replace(kind=keyword) for field in inspect.signature(options).parameters.values()]

    def declare(function: Callable[_P, _R]) -> Callable[_P, _R]:
        signature = inspect.signature(function)
        named = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        function.__signature__ = signature.replace(parameters=[*named, *fields])  # type: ignore[attr-defined]
        return function

    return declare


def _with_arguments(text: str, described: str) -> str:
    """A function's docstring with the section of arguments out of the docstring of its options."""
    arguments = re.search(r"\n\nArgs:(\n +.*|\n)*", described)
    section = re.search(r"\n\n(Returns|Raises|Example):|$", text)
    if arguments is None or section is None:
        return text
    return text[: section.start()] + arguments[0].rstrip() + text[section.start() :]
