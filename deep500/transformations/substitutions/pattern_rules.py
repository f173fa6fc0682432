"""Rules for networks of any size: patterns of the axioms' language instead of expressions of two environments.

A pattern rule comes from a generated rule (`lift`), whose ``origin`` is that rule's id. Letters are variables of
tensors or parameters, as in `axioms`; ``where`` lines are conditions, and define what one side does not name.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from deep500.transformations.substitutions.axioms import Axiom
from deep500.transformations.substitutions.validate import Pattern, arguments, literal, parse

# fmt: off
LETTERS = {
    "function": "f", "kernel": "k", "strides": "s", "pads": "d", "dilations": "e", "groups": "g", "axis": "a",
    "count_padding": "c", "perm": "t", "source": "b", "target": "r", "factor": "u", "cut": "p", "shape": "q",
    "output": "o",
}
# fmt: on


@dataclass(frozen=True)
class PatternRule:
    """Two lists of patterns, equal output by output.

    Attributes:
        left, right: patterns in the provers' language.
        where: definitions and conditions, as of `Axiom`.
        origin: id of the generated rule that it was lifted from.
        verdict: ``"proved"``, or what `prove` says else.
        prover: who proved it.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    where: tuple[str, ...] = ()
    origin: str = ""
    verdict: str = "proved"
    prover: str | None = "egglog"

    @functools.cached_property
    def id(self) -> str:
        """Hash of the patterns and conditions (16 hex digits)."""
        text = repr((self.left, self.right, self.where))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def axioms(self) -> list[Axiom]:
        """One equation per output."""
        pairs = enumerate(zip(self.left, self.right, strict=True))
        return [Axiom(f"{self.id}.{n}", left, right, self.where) for n, (left, right) in pairs]

    def __str__(self) -> str:
        sides = " = ".join(", ".join(side) for side in (self.left, self.right))
        return f"{sides}{'; ' * bool(self.where)}{', '.join(self.where)}"


def show(pattern: Pattern) -> str:
    """A parsed pattern as text.

    Example:
        >>> show(parse("(add x (mul y z))"))
        '(add x (mul y z))'
    """
    return pattern if isinstance(pattern, str) else f"({' '.join(map(show, pattern))})"


def words(pattern: Pattern) -> Iterator[tuple[str, str | None]]:
    """(word, name of the parameter whose place it is in; None for a tensor) from left to right."""
    if isinstance(pattern, str):
        yield pattern, None
        return
    names, given, inputs = arguments(pattern)
    yield from zip(given, names, strict=True)
    for one in inputs:
        yield from words(one)


def flips(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern with the operands of its sums and products in all orders."""
    if isinstance(pattern, str):
        yield pattern
        return
    _, given, inputs = arguments(pattern)
    for chosen in itertools.product(*(list(flips(one)) for one in inputs)):
        yield [pattern[0], *given, *chosen]
        if pattern[0] in ("add", "mul"):
            yield [pattern[0], *given, *chosen[::-1]]


def renamed(sides: list[list[Pattern]], where: tuple[str, ...]) -> tuple[list[list[str]], tuple[str, ...]]:
    """Names by order of first use: tensors x1, x2, ..; parameters by the letter of their kind."""
    names: dict[str, str] = {}
    counts: dict[str, int] = {}
    for word, kind in (pair for side in sides for pattern in side for pair in words(pattern)):
        if word not in names and (kind is None or literal(word, kind) is None):
            letter = "x" if kind is None else LETTERS[kind]
            counts[letter] = counts.get(letter, 0) + 1
            names[word] = f"{letter}{counts[letter]}"
    for line in where:
        name = line.split(" ", 1)[0]
        if name not in names:
            counts["p"] = counts.get("p", 0) + 1
            names[name] = f"p{counts['p']}"

    def rename(pattern: Pattern) -> Pattern:
        return names.get(pattern, pattern) if isinstance(pattern, str) else [rename(one) for one in pattern]

    lines = []
    for line in where:
        name, body = (part.strip() for part in line.split("=", 1))
        plain = not body.startswith("(")
        whole = rename(parse(f"({body})" if plain else body))
        lines.append(f"{names[name]} = {' '.join(map(show, whole)) if plain else show(whole)}")
    return [[show(rename(one)) for one in side] for side in sides], tuple(lines)


def canonical(
    left: tuple[str, ...], right: tuple[str, ...], where: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """One form for rules that differ by names, by the order of sums and products, or by which side is left.

    Example:
        >>> canonical(("(add v (relu u))",), ("(relu u)",), ()) == canonical(("(relu y)",), ("(add (relu y) x)",), ())
        True
    """
    found = []
    for one, other in ((left, right), (right, left)):
        forms = [list(flips(parse(text))) for text in (*one, *other)]
        for chosen in itertools.product(*forms):
            sides, lines = renamed([list(chosen[: len(one)]), list(chosen[len(one) :])], where)
            size = sum(text.count("(") for text in sides[0]) - sum(text.count("(") for text in sides[1])
            found.append((-size, tuple(sides[0]), tuple(sides[1]), _ordered(lines)))
    return min(found)[1:]


def orders(source: Pattern, target: Pattern, where: tuple[str, ...]) -> list[Pattern]:
    """The orders of a source side's sums and products that make different rules with the target.

    Example:
        >>> source, target = parse("(add (mul x y) (mul x z))"), parse("(mul x (add y z))")
        >>> len(list(flips(source))), len(orders(source, target, ()))
        (8, 4)
    """
    found: dict[str, Pattern] = {}
    for one in flips(source):
        forms = (renamed([[one], [other]], where) for other in flips(target))
        found.setdefault(min(repr((sides, _ordered(lines))) for sides, lines in forms), one)
    return list(found.values())


def _ordered(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Sizes first, then what is made of them, sums of sums last."""
    return tuple(sorted(set(lines), key=lambda line: (line.count("= ("), line.count("("), line)))
