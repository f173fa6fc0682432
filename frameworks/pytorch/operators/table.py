"""The table from ONNX operators to functions on torch tensors, and what those functions share.

An entry is a function ``f(*inputs, **attributes)``: inputs as tensors (None where an optional one is absent),
attributes as Python values with the schema's defaults filled in. ``static`` names the positions of inputs that the
function wants as plain Python values (axes, shapes, bounds): constants arrive as lists or numbers, fixed when the
network is compiled, and only what is computed at run time comes as a tensor; :func:`ints` and :func:`scalar` read both.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Entry:
    """A function, the attributes it takes, the inputs it wants as Python values, whether it asks which outputs count,
    whether it returns a tuple even for one output, and how many inputs it takes (None: any number)."""

    function: Callable[..., Any]
    attributes: frozenset[str] = frozenset()
    static: tuple[int, ...] = ()
    outputs: bool = False
    many: bool = False
    arity: int | None = None


OPS: dict[tuple[str, str], Entry] = {}
"""All operators by (domain, operator type)."""


def op(*names: str, static: Sequence[int] = (), many: bool = False, domain: str = "") -> Callable[[Function], Function]:
    """Enter a function under operator names. Its keyword-only parameters are the attributes that it understands; one
    called ``outputs`` receives a tuple of booleans: which outputs are read, unread ones at the end left off."""

    def enter(function: Function) -> Function:
        parameters = list(inspect.signature(function).parameters.values())
        keywords = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
        variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
        arity = None if variadic else len(parameters) - len(keywords)
        entry = Entry(function, frozenset(keywords - {"outputs"}), tuple(static), "outputs" in keywords, many, arity)
        OPS.update({(domain, name): entry for name in names})
        return function

    return enter


def enter_all(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Enter functions without attributes, torch's own for instance."""
    OPS.update({("", name): Entry(function) for name, function in functions.items()})


def ints(value: Any) -> list[int] | None:
    """A shape, axes or the like as a list, constant or computed (then the device is waited for)."""
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    return list(value) if isinstance(value, (list, tuple)) else [value]


def scalar(value: Any, default: Any = None) -> Any:
    """A number that came as a number, a list or tensor of one element, or None (then the default)."""
    if value is None:
        return default
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() else default
    if isinstance(value, (list, tuple)):
        return value[0] if value else default
    return value


def positive(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    return axis + rank if axis < 0 else axis


def wrapped(indices: torch.Tensor, size: int) -> torch.Tensor:
    """Indices counted from the front (ONNX lets them count from the back)."""
    return torch.where(indices < 0, indices + size, indices)
