"""Errors of operators on their way through a framework's runtime, which knows only its own kinds of errors.

Python code that a framework calls back (:func:`guarded`) leaves its error here and raises one whose text holds its
number; bridges write texts that are recognised. :func:`find_failure` turns what the framework finally raises back.
"""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from deep500.errors import Deep500Error, InputError, OperatorError, UnsupportedOperator

_KEPT = 64
_numbers = itertools.count()
_failures: OrderedDict[int, Deep500Error] = OrderedDict()


class Reported(RuntimeError):
    """The error that a guarded function raises: the text of the error, and the number under which it is kept."""


def guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function for a framework to call, whose errors :func:`find_failure` finds again.

    Args:
        name: the operator's.
        function: what to guard.
    """

    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            number = next(_numbers)
            _failures[number] = failure = error if isinstance(error, Deep500Error) else _python(name, error)
            while len(_failures) > _KEPT:
                _failures.popitem(last=False)
            raise Reported(f"deep500 failure {number}: {failure}") from error

    return call


def _python(name: str, error: Exception) -> InputError:
    failure = InputError(
        f"operator {name!r}: got {type(error).__name__} ({error}) from its Python code; expected results: mend it or "
        "its inputs"
    )
    failure.__cause__ = error
    return failure


def find_failure(text: str) -> Deep500Error | None:
    """The error that a framework's error is about; None if it is about something else.

    Example:
        >>> find_failure("INVALID_ARGUMENT: deep500: C++ operator 'f': got a failure of forward (no)")
        OperatorError("C++ operator 'f': got a failure of forward (no)")
    """
    numbers = re.findall(r"deep500 failure (\d+): ", text)
    if numbers and int(numbers[-1]) in _failures:
        return _failures[int(numbers[-1])]
    message = re.split(r"\s*\[Op:|\s*\[\[\{\{node", text.rpartition("deep500: ")[2])[0].strip()
    if "deep500: " not in text:
        return None
    if ": got a failure of " in message:
        return OperatorError(message)
    return (UnsupportedOperator if "not loaded" in message else InputError)(message)
