"""Validation of an axiom for all combinations of small sizes, by identity testing in a finite field.

For every combination for which one side fits together and the conditions hold, the other side must fit together too
and be equal. Values are random residues modulo a prime near 2**20, fixed for every variable and shape: two different
polynomials of degree d agree in one combination with probability at most d / prime (Schwartz-Zippel), so a wrong axiom
would have to do so in all of them. Combinations of equal shapes are evaluated together.
"""

from __future__ import annotations

import functools
import operator
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.transformations.substitutions.operators.arithmetic import Array
from deep500.transformations.substitutions.proofs.axioms import Axiom
from deep500.transformations.substitutions.proofs.prime_fields import PRIMES, Prime
from deep500.transformations.substitutions.rules.patterns import Pattern, literal, parse
from deep500.transformations.workshop.substitutions.batched_evaluation import Part, Values, count_rows, groups
from deep500.transformations.workshop.substitutions.combinations import (
    Columns,
    Legal,
    Space,
    bind,
    configurations,
    ranks,
)
from deep500.transformations.workshop.substitutions.validation import Failure, directions

ROWS = 4096  # combinations evaluated at a time: bounds the memory


@dataclass(frozen=True)
class Exhausted:
    """Outcome of all combinations of one axiom.

    Attributes:
        combinations: for which a side fits together and the conditions hold.
        failure: the first for which the axiom is wrong; None if there is none.
    """

    combinations: int
    failure: Failure | None


def exhaust(axiom: Axiom, space: Space | None = None, seed: int = 0) -> Exhausted:
    """Evaluate both sides of an axiom for all combinations of a space.

    Args:
        axiom: what is to hold.
        space: sizes that are combined; 1 to 4 and kernels of 1 and 3 without it.
        seed: of the residues; also which of the primes.

    Example:
        >>> exhaust(Axiom("columns", "(transpose \\"1,0\\" (add x y))", "(add x (transpose \\"1,0\\" y))")).failure.what
        '(add x (transpose "1,0" y)) does not fit together'
    """
    numbers, total = Prime(PRIMES[seed % len(PRIMES)]), 0
    for left, right, legal, columns in legal_rows(axiom, space or Space()):
        total += count_rows(columns)
        failure = _first_failure(Values(numbers, seed, legal), parse(left), parse(right), columns)
        if failure:
            row, what = failure
            shapes = {name: legal.domains[name][code] for name, code in row.items() if name in legal.domains}
            return Exhausted(total, Failure({**legal.known, **shapes}, f"{right} {what}"))
    return Exhausted(total, None)


def legal_rows(axiom: Axiom, space: Space) -> Iterator[tuple[str, str, Legal, Columns]]:
    """(from, to, parameters and domains, rows) for all combinations to which an axiom applies, each once."""
    before = np.zeros(0, np.uint64)
    for left, right in directions(axiom):
        all_keys = [before]
        for legal in _legal(parse(left), parse(right), space):
            columns = _conditions(_rows(legal, parse(left)), axiom.where, legal)
            keys = _keys(columns, legal)
            new = ~np.isin(keys, before)
            all_keys.append(keys[new])
            yield left, right, legal, _take(columns, new)
        before = np.concatenate(all_keys)


def _legal(first: Pattern, second: Pattern, space: Space) -> Iterator[Legal]:
    for rank in ranks(first, second):
        for known in configurations(first, space, rank):
            yield Legal(space, rank, known)


def _take(columns: Columns, rows: Array) -> Columns:
    return {name: column[rows] for name, column in columns.items()}


def _rows(legal: Legal, first: Pattern) -> Columns:
    tables = list(legal.tables(first).values())
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]} if tables else {}


def _keys(columns: Columns, legal: Legal) -> Array:
    """A number for every combination, the same in both directions of an axiom."""
    text = repr((legal.rank, sorted(legal.known.items())))
    keys = np.full(count_rows(columns), zlib.crc32(text.encode()), np.uint64)
    for name in sorted(legal.domains.keys() & columns.keys()):
        keys = keys * np.uint64(1_000_003) + columns[name].astype(np.uint64)
    return keys


def _conditions(columns: Columns, where: tuple[str, ...], legal: Legal) -> Columns:
    """Rows for which the conditions hold; what they define becomes a column."""
    for line in where:
        name, body = (part.strip() for part in line.split("=", 1))
        value = _define(body, columns, legal) if columns else None
        if value is not None:
            columns = bind(columns, name, value, legal.known)
    return columns


def _define(body: str, columns: Columns, legal: Legal) -> Any | None:
    """Value of a definition, one per row or a number; None if it names what the rows lack."""
    if body.startswith("size"):
        _, pattern, word = parse(f"({body})")
        name = pattern if isinstance(pattern, str) else pattern[1]
        axis = legal.known.get(word, literal(word, "axis"))
        if name not in columns or len(legal.domains[name][0]) <= axis:
            return None
        return np.array([shape[axis] for shape in legal.domains[name]])[columns[name]]
    if body.startswith("("):
        sign, *words = parse(body)
        values = [columns.get(word, legal.known.get(word)) for word in words]
        if any(value is None for value in values):
            return None
        return functools.reduce(operator.mul if sign == "*" else operator.add, values)
    return literal(body, "cut")


def _first_failure(
    sides: Values, first: Pattern, second: Pattern, columns: Columns
) -> tuple[dict[str, Any], str] | None:
    """The first row in which the sides are not equal, and how; None if there is none."""
    for start in range(0, count_rows(columns), ROWS):
        some = _take(columns, np.arange(start, min(start + ROWS, count_rows(columns))))
        what = _compare(sides.parts(first, some), sides.parts(second, some), count_rows(some))
        wrong = next((n for n, difference in enumerate(what) if difference), None)
        if wrong is not None:
            return {name: int(column[wrong]) for name, column in some.items()}, what[wrong]
    return None


def _compare(left: list[Part], right: list[Part], count: int) -> list[str]:
    """Difference of the two sides in words, for every row; empty where they are equal."""
    what = ["does not fit together"] * count
    label, place = np.full((2, count), -1), np.zeros((2, count), np.int64)
    for side, parts in enumerate((left, right)):
        for n, (rows, _) in enumerate(parts):
            label[side, rows], place[side, rows] = n, np.arange(len(rows))
    whole = np.flatnonzero((label >= 0).all(0))
    for (mine, yours), rows in groups(label[:, whole]):
        some = whole[rows]
        values, theirs = left[mine][1], right[yours][1]
        if values.shape[1:] != theirs.shape[1:]:
            texts = np.full(len(some), f"has shape {theirs.shape[1:]}, not {values.shape[1:]}")
        else:
            equal = (values[place[0, some]] == theirs[place[1, some]]).reshape(len(some), -1).all(1)
            texts = np.where(equal, "", f"has other elements; the shape is {values.shape[1:]}")
        for row, text in zip(some.tolist(), texts.tolist(), strict=True):
            what[row] = text
    return what
