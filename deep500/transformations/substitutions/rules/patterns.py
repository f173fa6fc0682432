"""The pattern language of rules: S-expressions of operators, whose words are values or names of tensors and parameters.

``(concat 1 p1 (matmul x1 x2) (matmul x1 x3))`` is any two products of one matrix, side by side. Parameters stand before
operands, in the order of the operator's specification; ``concat`` also names where it is cut (the size of its first
part), ``split`` which part it is. All activations are one family: ``(unary f x)``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

from deep500.transformations.substitutions.operators.specification import operator

Pattern = Any  # a word, or a list whose first element is an operator
BITS = 12  # a size in a pattern is packed: one value per environment that its rule was generated in, 12 bits each
PACKED = ("cut", "groups")  # parameters that are sizes; a factor is a plain number, so that products of sizes stay so
CONSTANTS = ("ones", "identity", "pool_kernel", "identity_kernel")
# fmt: off
LETTERS = {
    "function": "f", "kernel": "k", "strides": "s", "pads": "d", "dilations": "e", "groups": "g", "axis": "a",
    "count_padding": "c", "perm": "t", "source": "b", "target": "r", "factor": "u", "cut": "p", "shape": "q",
    "output": "o",
}
# fmt: on


def parse(text: str) -> Pattern:
    """A pattern as nested lists.

    Example:
        >>> parse('(conv "3,3" g x (add y z))')
        ['conv', '"3,3"', 'g', 'x', ['add', 'y', 'z']]
    """
    stack: list[list[Pattern]] = [[]]
    for word in re.findall(r'\(|\)|"[^"]*"|[^\s()]+', text):
        if word == "(":
            stack.append([])
        elif word == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(word)
    return stack[0][0]


def arguments(pattern: list[Pattern]) -> tuple[list[str], list[str], list[Pattern]]:
    """Names of an operator's parameters in the provers' order, the words in their places, and the operands.

    Example:
        >>> arguments(parse("(split 0 a p x)"))
        (['output', 'axis', 'cut'], ['0', 'a', 'p'], ['x'])
    """
    op, *words = pattern
    names = ["function"] if op == "unary" else list(operator(op).parameters)
    names = ["output"] * (op == "split") + names + ["cut"] * (op == "concat")
    return names, words[: len(names)], words[len(names) :]


def literal(word: str, name: str) -> Any:
    """Value of a word in the place of the parameter ``name``; None if the word is a variable.

    Example:
        >>> literal('"3,3"', "kernel"), literal("4097", "groups"), literal("g", "groups")
        ((3, 3), 1, None)
    """
    if word.startswith('"'):
        parts = word.strip('"').split(",")
        if parts[0] in ("True", "False"):
            return parts[0] == "True"
        return tuple(int(part) for part in parts) if name != "function" else parts[0]
    if word.lstrip("-").isdigit():
        return int(word) & ((1 << BITS) - 1)  # a size, packed, is the same in all environments
    return None


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
    names, parameters, inputs = arguments(pattern)
    yield from zip(parameters, names, strict=True)
    for operand in inputs:
        yield from words(operand)


def names(pattern: Pattern) -> set[str]:
    """Names of tensors and parameters in a pattern."""
    return {word for word, kind in words(pattern) if kind is None or literal(word, kind) is None}


def flips(pattern: Pattern) -> Iterator[Pattern]:
    """The pattern with the operands of its sums and products in all orders."""
    if isinstance(pattern, str):
        yield pattern
        return
    _, parameters, inputs = arguments(pattern)
    for operands in itertools.product(*(list(flips(operand)) for operand in inputs)):
        yield [pattern[0], *parameters, *operands]
        if pattern[0] in ("add", "mul"):
            yield [pattern[0], *parameters, *operands[::-1]]


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
        return names.get(pattern, pattern) if isinstance(pattern, str) else [rename(part) for part in pattern]

    lines = []
    for line in where:
        name, body = (part.strip() for part in line.split("=", 1))
        plain = not body.startswith("(")
        whole = rename(parse(f"({body})" if plain else body))
        lines.append(f"{names[name]} = {' '.join(map(show, whole)) if plain else show(whole)}")
    return [[show(rename(pattern)) for pattern in side] for side in sides], tuple(lines)


def canonical(
    left: tuple[str, ...], right: tuple[str, ...], where: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """One form for rules that differ by names, by the order of sums and products, or by which side is left.

    Example:
        >>> canonical(("(add v (relu u))",), ("(relu u)",), ()) == canonical(("(relu y)",), ("(add (relu y) x)",), ())
        True
    """
    return canonical_way(left, right, where)[:3]


def canonical_way(
    left: tuple[str, ...], right: tuple[str, ...], where: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], bool]:
    """The same, and whether its left is the right that was given."""
    forms = []
    for reverse, (first, second) in enumerate(((left, right), (right, left))):
        flipped = [list(flips(parse(text))) for text in (*first, *second)]
        for chosen in itertools.product(*flipped):
            sides, lines = renamed([list(chosen[: len(first)]), list(chosen[len(first) :])], where)
            size = sum(text.count("(") for text in sides[0]) - sum(text.count("(") for text in sides[1])
            forms.append((-size, tuple(sides[0]), tuple(sides[1]), _ordered(lines), bool(reverse)))
    return min(forms)[1:]


def orders(source: Pattern, target: Pattern, where: tuple[str, ...]) -> list[Pattern]:
    """The orders of a source side's sums and products that make different rules with the target.

    Example:
        >>> source, target = parse("(add (mul x y) (mul x z))"), parse("(mul x (add y z))")
        >>> len(list(flips(source))), len(orders(source, target, ()))
        (8, 4)
    """
    distinct: dict[str, Pattern] = {}
    for source_order in flips(source):
        forms = (renamed([[source_order], [target_order]], where) for target_order in flips(target))
        distinct.setdefault(min(repr((sides, _ordered(lines))) for sides, lines in forms), source_order)
    return list(distinct.values())


def _ordered(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Sizes first, then what is made of them, sums of sums last."""
    return tuple(sorted(set(lines), key=lambda line: (line.count("= ("), line.count("("), line)))
