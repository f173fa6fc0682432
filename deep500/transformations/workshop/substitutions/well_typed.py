"""Check that a rule's other side fits together wherever the rule applies: sizes as integers, counter-examples by Z3.

A proof says that two sides are equal, not that both exist: ``(conv .. g x y)`` needs channels of ``x`` that are g times
those of ``y``, and a rule's conditions must say so where its other side does not. What operators require of shapes is
written here for unknown sizes; `unfit` asks for sizes that one side and the conditions allow, and the other does not.
A rule of tensors of any rank is asked about matrices.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from deep500.transformations.substitutions.proofs.pattern_proofs import ways_determined
from deep500.transformations.substitutions.proofs.solver import engine
from deep500.transformations.substitutions.rules.building import shape_name
from deep500.transformations.substitutions.rules.conditions import read_line
from deep500.transformations.substitutions.rules.patterns import (
    CONSTANTS,
    PACKED,
    Pattern,
    arguments,
    canonical,
    literal,
    names,
    parse,
    words,
)
from deep500.transformations.substitutions.rules.rule_file import PatternRule

LARGEST = 12
"""Of the sizes that are tried: all conditions are of sums, products and remainders of few of them."""
MOST = 6
"""Conditions that a rule is given; one that lacks more holds for accidents, such as a kernel that is an image."""
FOURFOLD = ("conv", "avgpool", "maxpool", "enlarge", "merge_groups", "identity_kernel", "pool_kernel")
# fmt: off
WINDOWS: tuple[dict[str, Any], ...] = (
    {"kernel": (3, 3), "strides": (2, 1), "pads": (1, 0, 1, 1), "dilations": (1, 2), "count_padding": True, "perm": 1},
    {"kernel": (1, 3), "strides": (1, 1), "pads": (0, 1, 0, 1), "dilations": (1, 1), "count_padding": False, "perm": 0},
)
# fmt: on
"""Windows by name: two choices each."""


class PatternSizes:
    """Shapes of patterns for unknown sizes, and what operators require of them.

    Args:
        rank: of tensors that are neither vectors nor scalars.
        choice: names of windows, permutations and axes -> their values.
    """

    def __init__(self, rank: int, choice: dict[str, Any]) -> None:
        self.z3, self.rank, self.choice = engine(), rank, choice
        self.known: dict[str, Any] = {}
        self.required: list[Any] = []

    def number(self, word: str, kind: str = "cut") -> Any:
        """A size by its word."""
        value = literal(word, kind)
        return self.known.setdefault(word, self.z3.Int(word)) if value is None else value

    def tensor(self, word: str, rank: int) -> list[Any]:
        """The shape of a variable, or of a constant of a named shape."""
        return self.known.setdefault(word, [self.z3.Int(f"{word}.{axis}") for axis in range(rank)])

    def shape(self, pattern: Pattern, rank: int | None = None) -> list[Any]:
        """The shape of a pattern; what it takes to have one joins ``required``."""
        rank = self.rank if rank is None else rank
        if isinstance(pattern, str):
            return self.tensor(pattern, rank)
        op, (kinds, settings, inputs) = pattern[0], arguments(pattern)
        parameters = {kind: self.parameter(kind, word) for kind, word in zip(kinds, settings, strict=True)}
        if op in CONSTANTS:
            return self._constant(op, settings[0])
        ranks = {"bias": (rank, 1), "gain": (rank, 1), "scale": (rank, 0)}.get(op, (rank,) * len(inputs))
        shapes = [self.shape(operand, operand_rank) for operand, operand_rank in zip(inputs, ranks, strict=True)]
        return list(getattr(self, f"_{op}", self._same)(shapes, parameters))

    def parameter(self, kind: str, word: str) -> Any:
        """Value that a word stands for in the place of a parameter."""
        if kind in (*PACKED, "factor"):
            return self.number(word, kind)
        value = literal(word, kind)
        return self.choice[word] if value is None and word in self.choice else value

    def _constant(self, op: str, word: str) -> list[Any]:
        shape = self.tensor(word, {"identity": 2, "ones": self.rank}.get(op, 4))
        if op == "identity":
            self.required.append(shape[0] == shape[1])
        elif op == "pool_kernel":
            self.required.append(shape[1] == 1)
        elif op == "identity_kernel":
            self.required += [shape[0] % shape[1] == 0, shape[2] % 2 == 1, shape[3] % 2 == 1]
        return shape

    def equal(self, first: Sequence[Any], second: Sequence[Any]) -> Any:
        """Return whether two shapes are one."""
        return self.z3.And(*(a == b for a, b in zip(first, second, strict=True)))

    # -- what operators require -------------------------------------------------------------------------------------
    def _same(self, shapes: list[list[Any]], parameters: dict[str, Any]) -> list[Any]:
        return shapes[0]

    def _add(self, shapes: list[list[Any]], parameters: dict[str, Any]) -> list[Any]:
        self.required.append(self.equal(*shapes))
        return shapes[0]

    _mul = _add

    def _bias(self, shapes: list[list[Any]], parameters: dict[str, Any]) -> list[Any]:
        self.required.append(shapes[1][0] == shapes[0][parameters["axis"]])
        return shapes[0]

    _gain = _bias

    def _matmul(self, shapes: list[list[Any]], parameters: dict[str, Any]) -> list[Any]:
        self.required.append(shapes[0][1] == shapes[1][0])
        return [shapes[0][0], shapes[1][1]]

    def _transpose(self, shapes: list[list[Any]], parameters: dict[str, Any]) -> list[Any]:
        return [shapes[0][axis] for axis in parameters["perm"]]

    def _concat(self, shapes: list[list[Any]], parameters: dict[str, Any]) -> list[Any]:
        (first, second), axis = shapes, parameters["axis"]
        self.required.append(parameters["cut"] == first[axis])
        self.required += [a == b for n, (a, b) in enumerate(zip(first, second, strict=True)) if n != axis]
        return [a + b if n == axis else a for n, (a, b) in enumerate(zip(first, second, strict=True))]

    def _split(self, shapes: list[list[Any]], parameters: dict[str, Any]) -> list[Any]:
        (whole,), axis, cut = shapes, parameters["axis"], parameters["cut"]
        self.required += [cut > 0, cut < whole[axis]]
        part = whole[axis] - cut if parameters["output"] else cut
        return [part if n == axis else size for n, size in enumerate(whole)]

    def _conv(self, shapes: list[list[Any]], parameters: dict[str, Any]) -> list[Any]:
        (image, kernel), groups = shapes, parameters["groups"]
        self.required += [image[1] == kernel[1] * groups, kernel[0] % groups == 0, groups > 0]
        self.required += [size == expected for size, expected in zip(kernel[2:], parameters["kernel"], strict=True)]
        return [image[0], kernel[0], *self._window(image, parameters)]

    def _avgpool(self, shapes: list[list[Any]], parameters: dict[str, Any]) -> list[Any]:
        return [*shapes[0][:2], *self._window(shapes[0], parameters)]

    _maxpool = _avgpool

    def _window(self, image: list[Any], parameters: dict[str, Any]) -> list[Any]:
        sizes = []
        for n in (0, 1):
            extent = parameters.get("dilations", (1, 1))[n] * (parameters["kernel"][n] - 1) + 1
            left = image[2 + n] + parameters["pads"][n] + parameters["pads"][n + 2] - extent
            self.required.append(left >= 0)
            sizes.append(left / parameters["strides"][n] + 1)
        return sizes

    def _enlarge(self, shapes: list[list[Any]], parameters: dict[str, Any]) -> list[Any]:
        self.required += [size == expected for size, expected in zip(shapes[0][2:], parameters["source"], strict=True)]
        return [*shapes[0][:2], *parameters["target"]]

    def _merge_groups(self, shapes: list[list[Any]], parameters: dict[str, Any]) -> list[Any]:
        kernel, groups, factor = shapes[0], parameters["groups"], parameters["factor"]
        self.required += [groups > 0, factor > 0, groups % factor == 0, kernel[0] % groups == 0]
        return [kernel[0], kernel[1] * factor, *kernel[2:]]

    # -- conditions -------------------------------------------------------------------------------------------------
    def condition(self, text: str) -> Any:
        """One line of a rule, about these sizes."""
        line = read_line(text)
        if line.sign == "size":
            tensor, axis = line.operands
            shape = self.known[arguments(tensor)[1][0]] if isinstance(tensor, list) else self.known[tensor]
            place = int(axis) if axis.isdigit() else self.choice[axis]
            return self.number(line.name) == shape[place] if place < len(shape) else self.z3.BoolVal(False)
        terms = [self.number(word) for word in line.operands]
        return self.number(line.name) == (terms[0] * terms[1] if line.sign == "*" else sum(terms))


def choices(rule: PatternRule) -> Iterator[tuple[int, dict[str, Any]]]:
    """(rank, values of names that are no sizes), for a few of them and all axes."""
    patterns = [parse(text) for text in (*rule.left, *rule.right)]
    text = " ".join((*rule.left, *rule.right))
    rank = 4 if any(f"({op} " in text for op in FOURFOLD) else 2
    free = {word: kind for p in patterns for word, kind in words(p) if kind and literal(word, kind) is None}
    axes = [word for word, kind in free.items() if kind == "axis"]
    for window, places in itertools.product(WINDOWS, itertools.product(range(rank), repeat=len(axes))):
        named = {word: window[kind] for word, kind in free.items() if kind in window}
        perms = {word: tuple(range(rank))[:: (1, -1)[window["perm"]]] for word, kind in free.items() if kind == "perm"}
        yield rank, {**named, **perms, **dict(zip(axes, places, strict=True))}


def unfit(rule: PatternRule) -> str:
    """Sizes for which one side and the conditions hold and the other side does not exist, or has another shape.

    Asked from either side that determines the other, or that has all tensors of the other. Empty if there are none, of
    at most `LARGEST`.

    Raises:
        MissingEngine: Z3 is not installed.

    Example:
        >>> unfit(PatternRule(("(matmul x (matmul y z))",), ("(matmul (matmul x y) z)",)))
        ''
        >>> bool(unfit(PatternRule(("(split 0 0 p (concat 0 q x y))",), ("(split 0 0 p x)",), ("q = size x 0",))))
        True
    """
    return next((answer for question in _questions(rule) if (answer := question.answer())), "")


class _Question:
    """One direction of a rule for one choice of what is no size."""

    def __init__(
        self, rule: PatternRule, sides: tuple[list[Pattern], list[Pattern]], rank: int, choice: dict[str, Any]
    ):
        (source, target), self.sizes, self.choice = sides, PatternSizes(rank, choice), choice
        sizes, self.z3 = self.sizes, self.sizes.z3
        before = [sizes.shape(pattern) for pattern in source]
        premises, sizes.required = sizes.required, []
        after = [sizes.shape(pattern) for pattern in target]
        same = [sizes.equal(a, b) for a, b in zip(before, after, strict=True)]
        known = set().union(*map(names, source))
        late = [
            line for line in rule.where if "size (" in line and not set(names(read_line(line).operands[0])) <= known
        ]
        early = [line for line in rule.where if line not in late]
        self.conclusion = self.z3.And(*sizes.required, *same, *map(sizes.condition, late))
        self.assumptions = [*premises, *map(sizes.condition, early), *_synthesized(sizes, source, target)]

    def solver(self, *more: Any) -> Any:
        """A solver that knows the source, the conditions, and some more."""
        solver = self.z3.SolverFor("QF_NIA")
        solver.add(*self.assumptions, *more)
        for value in self.sizes.known.values():
            for size in value if isinstance(value, list) else [value]:
                solver.add(size >= 1, size <= LARGEST)
        return solver

    def answer(self) -> str:
        """Sizes for which the target does not exist."""
        solver = self.solver(self.z3.Not(self.conclusion))
        verdict = solver.check()
        if verdict == self.z3.unsat:
            return ""
        return f"{self.choice}: {solver.model() if verdict == self.z3.sat else 'not decided'}"

    def meant(self) -> bool:
        """Return whether both sides exist for some sizes."""
        return bool(self.solver(self.conclusion).check() == self.z3.sat)

    def implied(self, lines: Sequence[str]) -> bool:
        """Return whether lines hold wherever both sides exist, so that they take nothing away."""
        *before, last = map(self.sizes.condition, lines)  # the first of two gives a size a name
        return bool(self.solver(self.conclusion, *before, self.z3.Not(last)).check() == self.z3.unsat)

    def holds(self, lines: Sequence[str]) -> bool:
        """Return whether lines hold wherever the source exists and the conditions hold."""
        *before, last = map(self.sizes.condition, lines)
        return bool(self.solver(*before, self.z3.Not(last)).check() == self.z3.unsat)


def _questions(rule: PatternRule) -> Iterator[_Question]:
    sides = [[parse(text) for text in side] for side in (rule.left, rule.right)]
    lines = [read_line(text) for text in rule.where]
    stated = {word for line in lines if line.sign in ("+", "*") for word in (line.name, *line.operands)}
    names_by_side = [set().union(*map(names, side)) for side in sides]
    for way, possible in enumerate(ways_determined(rule)):
        if not possible and (names_by_side[1 - way] - names_by_side[way] - stated or isinstance(sides[way][0], str)):
            continue
        for rank, choice in choices(rule):
            try:
                yield _Question(rule, (sides[way], sides[1 - way]), rank, choice)
            except IndexError:
                continue  # an axis that these tensors do not have


def _synthesized(sizes: PatternSizes, source: list[Pattern], target: list[Pattern]) -> Iterator[Any]:
    """Yield what building a target binds: parts of its concatenations, shapes of constants beside what they join."""
    known = set().union(*map(names, source))
    todo = list(target)
    while todo:
        pattern = todo.pop()
        if isinstance(pattern, str):
            continue
        _, parameters, inputs = arguments(pattern)
        todo += inputs
        if pattern[0] == "concat" and parameters[1] not in known and literal(parameters[1], "cut") is None:
            axis = sizes.parameter("axis", parameters[0])
            yield sizes.number(parameters[1]) == sizes.shape(inputs[0])[axis]
        if pattern[0] in ("add", "mul"):
            for term, other in (inputs, inputs[::-1]):
                word = shape_name(term)
                if word is not None and word not in known and shape_name(other) is None:
                    yield sizes.equal(sizes.known[word], sizes.shape(other))


def mended(rule: PatternRule) -> PatternRule | None:
    """The rule with lines more under which each side exists where the other does; None where few do not suffice.

    Lines are equalities of sizes and products of sizes, and only such as hold wherever both sides exist.

    Raises:
        MissingEngine: Z3 is not installed.

    Example:
        >>> rule = PatternRule(("(matmul x y)", "(matmul z y)"), ("(matmul x y)", "(matmul z y)"))
        >>> mended(rule) == rule
        True
    """
    if _accidental(rule):
        return None if unfit(rule) else rule
    for _ in range(MOST):
        if not unfit(rule):
            return rule
        questions = [question for question in _questions(rule) if question.meant()]
        doubtful = [question for question in questions if question.answer()]
        for lines in _candidates(rule):
            more = dataclasses.replace(rule, where=(*rule.where, *lines))
            new = any(not question.holds(lines) for question in doubtful)
            ways = zip(ways_determined(rule), ways_determined(more), strict=True)
            if new and all(now >= before for before, now in ways) and all(q.implied(lines) for q in questions):
                rule = PatternRule(
                    *canonical(more.left, more.right, more.where), more.origin, more.verdict, more.prover
                )
                break
        else:
            return None
    return None


def _accidental(rule: PatternRule) -> bool:
    """Return whether a tensor is an image and a kernel of convolutions."""
    images, kernels, todo = set[str](), set[str](), [parse(text) for text in (*rule.left, *rule.right)]
    while todo:
        pattern = todo.pop()
        if isinstance(pattern, list):
            inputs = arguments(pattern)[2]
            todo += inputs
            if pattern[0] == "conv":
                images |= {word for word, kind in words(inputs[0]) if kind is None}
                kernels |= {word for word, kind in words(inputs[1]) if kind is None}
    return bool(images & kernels)


def _candidates(rule: PatternRule) -> Iterator[tuple[str, ...]]:
    """Lines to try: of products and sizes with names, then of sizes that get one."""
    kinds = dict(pair for text in (*rule.left, *rule.right) for pair in words(parse(text)))
    tensors = sorted(word for word, kind in kinds.items() if kind is None)
    named = {word for word, kind in kinds.items() if kind in PACKED and literal(word, kind) is None}
    sizes = sorted(named | {line.split(" ")[0] for line in rule.where})
    axes = range(next(choices(rule))[0])
    yield from ((f"{a} = (* {b} {c})",) for a, b, c in itertools.permutations(sizes, 3) if b < c)
    yield from ((f"{name} = size {tensor} {axis}",) for name in sizes for tensor in tensors for axis in axes)
    fresh = f"p{1 + len(sizes) + sum(word[0] == 'p' for word in kinds)}"
    for a, b in itertools.combinations(tensors, 2):
        yield from ((f"{fresh} = size {a} {axis}", f"{fresh} = size {b} {axis}") for axis in axes)
