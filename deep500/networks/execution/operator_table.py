"""The operator table that every backend fills: from (domain, operator type) to a short function on its tensors.

A function is called with the node's inputs in order (None where an optional one is absent) and its attributes by name.
The decorator :meth:`OperatorTable.op` reads the function's signature: positional parameters are inputs, keyword-only
ones attributes, but for the few that the table passes besides (``extras``). So a function states in one place what it
understands, and a node that wants more is refused when the network is built (:meth:`OperatorEntry.refuses`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import onnx

from deep500.networks.attributes import collect
from deep500.networks.node import Node

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class OperatorEntry:
    """An operator in a table; backends derive their own entries where they need to say more.

    Attributes:
        function: computes the outputs.
        attributes: names of those that it understands.
        extras: what it wants to be passed besides, of what the table offers.
        static: positions of inputs that it wants as plain Python values or known arrays (axes, shapes, bounds).
        many: whether it returns a tuple even for one output.
        arity: how many inputs it takes, None for any number.
        settings: the keyword and the class (:mod:`deep500.networks.attributes`) of attributes that come as one object.
    """

    function: Callable[..., Any]
    attributes: frozenset[str] = frozenset()
    extras: frozenset[str] = frozenset()
    static: tuple[int, ...] = ()
    many: bool = False
    arity: int | None = None
    settings: tuple[str, Any] | None = None

    def keywords(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Attributes of a node as the function takes them."""
        known = {name: value for name, value in attributes.items() if name in self.attributes}
        if self.settings is None:
            return known
        keyword, kind = self.settings
        return {**{n: v for n, v in known.items() if n not in kind._fields}, keyword: collect(kind, known)}

    def refuses(self, node: Node) -> str | None:
        """The attribute (away from its default) or further input that the function does not understand, else None."""
        for name, value in node.attributes.items():
            known = name in self.attributes or isinstance(value, onnx.GraphProto)
            if not known and value != replace(node, attributes={}).attribute(name):
                return f"{name}={value!r}"
        if self.arity is not None and any(node.inputs[self.arity :]):
            return f"input {self.arity}"
        return None


Entry = TypeVar("Entry", bound=OperatorEntry)


class OperatorTable(dict[tuple[str, str], Entry], Generic[Entry]):
    """A backend's operators by (domain, operator type).

    Args:
        entry: the class of its entries.
        extras: keyword-only parameters that are no attributes: what the backend can tell a function of the run.

    Example:
        >>> from deep500.networks.attributes import BatchNorm
        >>> table = OperatorTable(OperatorEntry, extras=("outputs",))
        >>> @table.op("TopK", static=[1])
        ... def top_k(x, k, *, axis=-1, outputs):
        ...     return x
        >>> entry = table["", "TopK"]
        >>> sorted(entry.attributes), sorted(entry.extras), entry.arity
        (['axis'], ['outputs'], 2)
        >>> @table.op("BatchNormalization")
        ... def batch_norm(x, *rest, settings: BatchNorm = BatchNorm()):
        ...     return x
        >>> table["", "BatchNormalization"].keywords({"epsilon": 1e-3})
        {'settings': BatchNorm(epsilon=0.001, momentum=0.9, training_mode=0)}
    """

    def __init__(self, entry: type[Entry], extras: Sequence[str] = ()) -> None:
        super().__init__()
        self.entry, self.extras = entry, frozenset(extras)

    def op(
        self, *names: str, static: Sequence[int] = (), many: bool = False, domain: str = "", **traits: Any
    ) -> Callable[[Function], Function]:
        """Enter a function under operator names; ``traits`` are fields of the backend's own entries."""

        def enter(function: Function) -> Function:
            parameters = list(inspect.signature(function).parameters.values())
            keywords = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
            gathered = {p.name: kind for p in parameters if (kind := _settings_of(p, function)) is not None}
            variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
            arity = None if variadic else len(parameters) - len(keywords)
            fields = {name for kind in gathered.values() for name in kind._fields}
            attributes = frozenset(keywords - self.extras - gathered.keys() | fields)
            extras, settings = frozenset(keywords & self.extras), next(iter(gathered.items()), None)
            entry = self.entry(function, attributes, extras, tuple(static), many, arity, settings, **traits)
            self.update({(domain, name): entry for name in names})
            return function

        return enter

    def enter_all(self, functions: Mapping[str, Callable[..., Any]], **traits: Any) -> None:
        """Enter functions without attributes, the framework's own for instance, whose signatures say little."""
        self.update({("", name): self.entry(function, **traits) for name, function in functions.items()})


def _settings_of(parameter: inspect.Parameter, function: Callable[..., Any]) -> Any:
    """The class of attributes that a keyword is annotated with, None for any other annotation."""
    kind = parameter.annotation
    kind = getattr(function, "__globals__", {}).get(kind) if isinstance(kind, str) else kind
    return kind if parameter.kind is inspect.Parameter.KEYWORD_ONLY and hasattr(kind, "_fields") else None


def optional(operands: Sequence[Any], count: int) -> Sequence[Any]:
    """Operands, and None for those that are left off at the end.

    Example:
        >>> optional(["b"], 3)
        ['b', None, None]
    """
    return [*operands, *[None] * (count - len(operands))]


def used_outputs(node: Node, read: Container[str]) -> tuple[bool, ...]:
    """Which outputs of a node are among the values read; unread ones at the end are left off, but for the first."""
    used = [name in read for name in node.outputs]
    while len(used) > 1 and not used[-1]:
        used.pop()
    return tuple(used)


def positive(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    return axis + rank if axis < 0 else axis
