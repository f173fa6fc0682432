"""Options of executors, declared once: those that all backends know here, a backend's further ones in a subclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options with which an executor of any backend is made.

    Attributes:
        strict: raise MissingDevice instead of falling back to the CPU.
        quantization: gradients of quantised values: none, or those of the straight-through estimator
            (``"straight_through"``, see :mod:`deep500.networks.quantization`).
        precision: of float32 on a GPU: ``"ieee"``, or ``"tf32"``, which rounds what products and convolutions take to
            ten bits of fraction and differs by 1e-3. CPUs compute as IEEE says, whatever is asked for.
        deterministic: on a GPU, allow only kernels that give the same bits every time; an operator without one is an
            error that names it.
    """

    strict: bool = False
    quantization: str | None = None
    precision: str = "ieee"
    deterministic: bool = False


def takes(options: type[Any]) -> Callable[[Function], Function]:
    """Give a function that hands on ``**options`` a signature that names the fields of a dataclass.

    Recipes check calls by signatures, and editors show them.

    Example:
        >>> @takes(Options)
        ... def from_model(network, **options): ...
        >>> print(", ".join(inspect.signature(from_model).parameters))
        network, strict, quantization, precision, deterministic
    """
    fields = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(options).parameters.values()
    ]

    def declare(function: Function) -> Function:
        signature = inspect.signature(function)
        named = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        function.__signature__ = signature.replace(parameters=[*named, *fields])  # type: ignore[attr-defined]
        return function

    return declare
