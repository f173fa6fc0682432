"""Expressions of the rule language, and the shape environments in which they are evaluated.

A size that changes from network to network (a channel count, where a concatenation is cut) has one value per
environment: `Sizes`. Two sizes are the same size only if they agree in every environment.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union

from deep500.transformations.substitutions.operators.arithmetic import Arithmetic, Array
from deep500.transformations.substitutions.operators.specification import Shape, operator

# Symbols and their values in each environment; no symbol, and no sum of symbols that one axis can reach, is another.
SYMBOLS: dict[str, tuple[int, ...]] = {"n": (2, 5), "k": (3, 2), "b": (1, 3), "c": (2, 3), "h": (4, 3), "v": (3, 5)}
ENVIRONMENTS = 2

# The kinds of pattern variables. The first eight are those of generation as published: matrix, square matrix, image,
# kernels, depthwise kernel, scalar. Then vectors of channels and of columns, a 1 x 1 kernel, matrices and images that
# have two halves, and an image of four channels with its depthwise kernel, whose groups can be merged.
KINDS: dict[str, tuple[str | int, ...]] = {
    "x": ("n", "k"),
    "w": ("k", "k"),
    "i": ("b", "c", "h", "v"),
    "a": ("c", "c", 3, 3),
    "d": ("c", "c", 1, 3),
    "e": ("c", "c", 3, 1),
    "g": ("c", 1, 3, 3),
    "s": (),
    "v": ("c",),
    "u": ("k",),
    "o": ("c", "c", 1, 1),
    "y": ("n", "k+k"),
    "r": ("k+k", "k"),
    "j": ("b", "c+c", "h", "v"),
    "l": ("b+b", "c", "h", "v"),
    "m": ("b", 4, "h", "v"),
    "f": (4, 1, 3, 3),
}


class Sizes(tuple[int, ...]):
    """One size: its value in every environment."""

    __slots__ = ()


class Variable(NamedTuple):
    """A pattern variable: its kind (a key of `KINDS`) and its number among those of the kind."""

    kind: str
    number: int


class Term(NamedTuple):
    """One output of an operator applied to terms; parameters sorted by name."""

    op: str
    parameters: tuple[tuple[str, Any], ...]
    inputs: tuple[Expression, ...]
    output: int = 0


Expression = Union[Term, Variable]  # noqa: UP007 - evaluated before Term is complete
Type = tuple[Shape, ...]  # the shape in every environment


def make(op: str, *inputs: Expression, output: int = 0, **parameters: Any) -> Term:
    """Build a term.

    Example:
        >>> make("concat", Variable("x", 1), Variable("x", 2), axis=0).op
        'concat'
    """
    return Term(op, tuple(sorted(parameters.items())), inputs, output)


def at(value: Any, environment: int) -> Any:
    """A parameter's value in one environment."""
    if isinstance(value, Sizes):
        return value[environment]
    return tuple(at(item, environment) for item in value) if isinstance(value, tuple) else value


def parameters_at(parameters: Sequence[tuple[str, Any]], environment: int) -> dict[str, Any]:
    """All parameters of a term in one environment."""
    return {name: at(value, environment) for name, value in parameters}


def extent(size: str | int, symbols: Mapping[str, int]) -> int:
    """The value of a size of `KINDS`: a number, a symbol, or a sum of symbols.

    Example:
        >>> extent("c+c", {"c": 3}), extent(4, {})
        (6, 4)
    """
    return size if isinstance(size, int) else sum(symbols[name] for name in size.split("+"))


@functools.cache
def kind_type(kind: str) -> Type:
    """Shapes of a kind of variable in all environments.

    Example:
        >>> kind_type("w")
        ((3, 3), (2, 2))
    """
    symbols = [{name: values[n] for name, values in SYMBOLS.items()} for n in range(ENVIRONMENTS)]
    return tuple(tuple(extent(size, environment) for size in KINDS[kind]) for environment in symbols)


def infer(op: str, types: Sequence[Type], parameters: Sequence[tuple[str, Any]]) -> tuple[Type, ...]:
    """Types of all outputs of an operator; raises `ShapeMismatch` where it does not fit in every environment."""
    spec = operator(op)
    by_environment = [
        spec.infer([type_[n] for type_ in types], parameters_at(parameters, n)) for n in range(ENVIRONMENTS)
    ]
    return tuple(zip(*by_environment, strict=True))


def term_type(term: Expression) -> Type:
    """Shape of a term in every environment.

    Raises:
        ShapeMismatch: the term does not fit together.
    """
    if isinstance(term, Variable):
        return kind_type(term.kind)
    return infer(term.op, [term_type(operand) for operand in term.inputs], term.parameters)[term.output]


def evaluate(term: Expression, values: dict[Variable, Array], numbers: Arithmetic, environment: int) -> Array:
    """Value of a term (with a batch axis) for given values of its variables (with a batch axis)."""
    if isinstance(term, Variable):
        return values[term]
    inputs = [evaluate(operand, values, numbers, environment) for operand in term.inputs]
    return operator(term.op).evaluate(numbers, inputs, parameters_at(term.parameters, environment))[term.output]


def subterms(term: Expression) -> Iterator[Expression]:
    """The term and all it is made of, operators before their inputs, with repetitions."""
    yield term
    if isinstance(term, Term):
        for operand in term.inputs:
            yield from subterms(operand)


def variables(*terms: Expression) -> list[Variable]:
    """Variables in the order of first use."""
    read = (subterm for term in terms for subterm in subterms(term) if isinstance(subterm, Variable))
    return list(dict.fromkeys(read))


def operations(*terms: Expression) -> int:
    """Number of different operator applications in the terms; two outputs of one count once."""
    return len(
        {subterm._replace(output=0) for term in terms for subterm in subterms(term) if isinstance(subterm, Term)}
    )


def substitute(term: Expression, mapping: dict[Variable, Expression]) -> Expression:
    """Replace variables; those not in ``mapping`` stay."""
    if isinstance(term, Variable):
        return mapping.get(term, term)
    return term._replace(inputs=tuple(substitute(operand, mapping) for operand in term.inputs))


def show(term: Expression) -> str:
    """A short form for people.

    Example:
        >>> show(make("relu", Variable("x", 1)))
        'relu(x1)'
    """
    if isinstance(term, Variable):
        return f"{term.kind}{term.number}"
    shown = [show(operand) for operand in term.inputs]
    shown += [f"{name}={tuple(v) if isinstance(v, Sizes) else v}" for name, v in term.parameters]
    return f"{term.op}{term.output if term.op == 'split' else ''}({', '.join(shown)})"
