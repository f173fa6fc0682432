"""How an optimizer declares its hyper-parameters: as annotated defaults of its class, once.

``class Mine(UpdateRuleOptimizer): lr: float = 0.1`` is all. Constructor, signature, ``hyperparameters``, the checks of
values and the optimizer's record are derived from it, and a backend's class of the same kind takes the declaration over
with ``class Mine(NativeOptimizer, like=optimizers.Mine)``. Annotated without a default, or as ``ClassVar``, or with a
leading underscore, a class attribute is no hyper-parameter.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

Check = Callable[[Any], Any]
"""Converts a value that is allowed, raises ValueError or TypeError (saying what is expected) for another."""


class Hyperparameter(NamedTuple):
    """Declaration of a hyper-parameter by a class; the default is the class attribute of its name."""

    annotation: Any
    check: Check


class _Checked(NamedTuple):
    default: Any
    check: Check


def hyperparameter(default: Any, *, least: float = 0.0, below: float = math.inf) -> Any:
    """A default whose numbers are in ``[least, below)``; a plain default means a finite number >= 0.

    Typed ``Any``, as ``dataclasses.field`` is: ``alpha: float = hyperparameter(0.99, below=1)``.
    """
    number = _number(least, below)
    return _Checked(default, _numbers(number, len(default)) if isinstance(default, tuple) else number)


def choice(default: str, *allowed: str) -> Any:
    """A default that is one of some words: ``scaling: str = choice("original", "original", "spectral")``."""

    def check(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"one of {allowed}")
        return str(value)

    return _Checked(default, check)


def declared(cls: type) -> dict[str, Hyperparameter]:
    """The hyper-parameters that a class's own body declares; its attributes become plain defaults.

    Raises:
        TypeError: a default is no number, flag or tuple of numbers.
    """
    declarations: dict[str, Hyperparameter] = {}
    for name, annotation in inspect.get_annotations(cls).items():
        if name.startswith("_") or name not in vars(cls) or "ClassVar" in str(annotation):
            continue
        default = vars(cls)[name]
        if isinstance(default, _Checked):
            setattr(cls, name, default.default)
            check = default.check
        elif isinstance(default, bool):
            check = _flag
        elif isinstance(default, (int, float)):
            check = _number()
        elif isinstance(default, tuple):
            check = _numbers(_number(), len(default))
        else:
            raise TypeError(
                f"{cls.__qualname__}.{name}: got the default {default!r}; expected a number, True, False or a tuple "
                "of numbers, as hyper-parameters are: annotate another class attribute as ClassVar"
            )
        declarations[name] = Hyperparameter(annotation, check)
    return declarations


def signature(cls: type, declarations: Mapping[str, Hyperparameter]) -> inspect.Signature:
    """Signature of an optimizer's constructor: executor, loss, hyper-parameters, and the keywords of every optimizer.

    A class with a constructor of its own has the signature of that.
    """
    if "__init__" in vars(cls):
        written = inspect.signature(vars(cls)["__init__"])
        return written.replace(parameters=list(written.parameters.values())[1:])
    plain, keywords = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_KEYWORD
    parameters = [inspect.Parameter("executor", plain), inspect.Parameter("loss", plain, default="loss")]
    for name, (annotation, _) in declarations.items():
        parameters.append(inspect.Parameter(name, plain, default=getattr(cls, name), annotation=annotation))
    return inspect.Signature([*parameters, inspect.Parameter("options", keywords)])


def _number(least: float = 0.0, below: float = math.inf) -> Check:
    def check(value: Any) -> float:
        number = float(value)  # not NumPy's float64, which would widen float32 arrays
        if not least <= number < below:
            raise ValueError(f"a number >= {least:g}" + ("" if below == math.inf else f" and < {below:g}"))
        return number

    return check


def _numbers(number: Check, count: int) -> Check:
    def check(value: Any) -> tuple[float, ...]:
        if len(value) != count:
            raise ValueError(f"{count} numbers")
        return tuple(number(item) for item in value)

    return check


def _flag(value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError("True or False")
    return bool(value)
