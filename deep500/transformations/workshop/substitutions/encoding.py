"""The provers' form of terms: S-expressions in which sizes that change between networks are plain symbols.

``concat`` carries where it is cut (the size of its first part), so that ``split`` of ``concat`` needs no arithmetic;
sizes are packed, one environment per 12 bits, so that sums of sizes stay sums. Activations are one family, ``unary``.
"""

from __future__ import annotations

from typing import Any

from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import operator
from deep500.transformations.substitutions.rules.patterns import BITS, CONSTANTS, PACKED
from deep500.transformations.workshop.substitutions.terms import (
    ENVIRONMENTS,
    Expression,
    Sizes,
    Term,
    Type,
    Variable,
    infer,
    kind_type,
)


def pack(value: int | tuple[int, ...]) -> int:
    """Sizes in all environments as one number; a plain size is the same in all.

    Example:
        >>> pack((2, 5)) + pack((3, 2)) == pack((5, 7))
        True
    """
    values = (value,) * ENVIRONMENTS if isinstance(value, int) else value
    return sum(size << (BITS * n) for n, size in enumerate(values))


def parameter_text(name: str, value: Any) -> str:
    """A parameter in the provers' language."""
    if name in PACKED:
        return str(pack(value))
    if isinstance(value, bool) or not isinstance(value, int):
        flat = value if isinstance(value, tuple) else (value,)
        return '"' + ",".join("/".join(map(str, item)) if isinstance(item, Sizes) else str(item) for item in flat) + '"'
    return str(value)


def head(term: Term, types: list[Type]) -> str:
    """Constructor and parameters of a term: all but its inputs."""
    if term.op in ACTIVATIONS:
        return f'unary "{term.op}"'
    known = dict(term.parameters)
    fields = [parameter_text(name, known[name]) for name in operator(term.op).parameters]
    if term.op == "concat":
        fields.append(str(pack(tuple(shape[known["axis"]] for shape in types[0]))))
    if term.op == "split":
        fields.insert(0, str(term.output))
    return " ".join([term.op, *fields])


def sized_axes(term: Expression, type_: Type) -> range:
    """Axes whose sizes provers know: the first two; all of constants, whose shape is a single word to them."""
    rank = len(type_[0])
    return range(rank if isinstance(term, Term) and term.op in CONSTANTS else min(2, rank))


class EgglogTerms:
    """Actions of an egglog rule that define terms, each subterm once, and the sizes of their first two axes.

    The names are local to the rule: egglog makes a table per global name, and thousands of tables take seconds.

    Attributes:
        lines: the actions so far.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._known: dict[Expression, tuple[str, Type]] = {}

    def add(self, term: Expression) -> str:
        """Define a term with its subterms; returns its name.

        Raises:
            ShapeMismatch: the term does not fit together.
        """
        return self._define(term)[0]

    def _define(self, term: Expression) -> tuple[str, Type]:
        if term in self._known:
            return self._known[term]
        if isinstance(term, Variable):
            type_, body = kind_type(term.kind), f'(V "{term.kind}{term.number}")'
        else:
            inputs = [self._define(operand) for operand in term.inputs]
            types = [pair[1] for pair in inputs]
            type_ = infer(term.op, types, term.parameters)[term.output]
            body = f"({' '.join([head(term, types), *(pair[0] for pair in inputs)])})"
        name = f"t{len(self._known)}"
        self.lines.append(f"(let {name} {body})")
        for axis in sized_axes(term, type_):
            self.lines.append(f"(set (size {name} {axis}) {pack(tuple(shape[axis] for shape in type_))})")
        self._known[term] = (name, type_)
        return self._known[term]
