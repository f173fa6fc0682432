"""Proofs of pattern rules by equality saturation: names are opaque constants, and ``where`` lines all that is known."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence

from deep500.transformations.substitutions.rules.building import determined
from deep500.transformations.substitutions.rules.conditions import Condition
from deep500.transformations.substitutions.rules.patterns import (
    PACKED,
    Pattern,
    arguments,
    flips,
    literal,
    parse,
    show,
    words,
)
from deep500.transformations.substitutions.rules.rule_file import PatternRule
from deep500.transformations.workshop.substitutions.axioms import Axiom, axioms
from deep500.transformations.workshop.substitutions.saturation import rewrites, saturate_loaded

STAGES = ((1000, 2), (1000, 4))  # (rules per e-graph, iterations), as `prove.STAGES`
_NAMES = re.compile(r"\b[a-z]\d+\b")


class _Ground:
    """A pattern rule's names as constants that nothing else is equal to."""

    def __init__(self, number: int, rule: PatternRule) -> None:
        self.number, self.rule = number, rule
        self.random = random.Random(rule.id)
        self.values: dict[str, int] = {}

    def load(self, side: int | None = None) -> list[str]:
        """egglog rules that load its goals, numbered from ``number``; with ``side`` that side first, both late."""
        facts = []
        for line in self.rule.where[::-1]:
            name, body = (part.strip() for part in line.split("=", 1))
            if body.startswith("("):
                sign, *terms = parse(body)
                first, second = (self.integer(term) for term in terms)
                if self.values.setdefault(name, first + second if sign == "+" else first * second) != (
                    first + second if sign == "+" else first * second
                ):
                    return []
            elif not body.startswith("size") and self.values.setdefault(name, int(body)) != int(body):
                return []
        for line in self.rule.where:
            name, body = (part.strip() for part in line.split("=", 1))
            if body.startswith("size"):
                _, term, axis = parse(f"({body})")
                facts.append(f"(set (size {self.text(term)} {self.integer(axis)}) {self.integer(name)})")
        pairs = enumerate(zip(self.rule.left, self.rule.right, strict=True), self.number)
        goals = [(n, self.text(parse(a)), self.text(parse(b))) for n, (a, b) in pairs]
        known = " ".join(facts)
        if side is None:
            return [f"(rule () ({known} (goal {n} {a} {b})) :ruleset load)" for n, a, b in goals]
        start = [(a, b)[side] for _, a, b in goals]
        starts = [f"(rule () ({known} (start {text})) :ruleset load)" for text in start]
        return [*starts, *(f"(rule () ((goal {n} {a} {b})) :ruleset late)" for n, a, b in goals)]

    def integer(self, word: str) -> int:
        if word.lstrip("-").isdigit():
            return int(word)
        return self.values.setdefault(word, self.random.randrange(1 << 28))

    def text(self, pattern: Pattern) -> str:
        if isinstance(pattern, str):
            return f'(V "{self.number}:{pattern}")'
        names, given, inputs = arguments(pattern)
        texts = [self._parameter(name, word) for name, word in zip(names, given, strict=True)]
        return f"({' '.join([pattern[0], *texts, *map(self.text, inputs)])})"

    def _parameter(self, name: str, word: str) -> str:
        if literal(word, name) is not None:
            return word
        if name in (*PACKED, "axis", "factor", "output"):
            return str(self.integer(word))
        return f'"{self.number}:{word}"'


def proved(
    rules: Sequence[PatternRule], stages: Sequence[tuple[int, int]] = STAGES, by: Sequence[str] | None = None
) -> list[bool]:
    """For every pattern rule, whether the axioms prove it with nothing known but its ``where`` lines.

    Args:
        rules: what is to be proved.
        stages: (rules per e-graph, iterations) for what the stage before leaves open.
        by: egglog rules to prove from instead of the axioms.

    Raises:
        MissingEngine: egglog is not installed.
    """
    by, left = rewrites(axioms()) if by is None else by, list(range(len(rules)))
    for batch, iterations in stages:
        still = []
        for first in range(0, len(left), batch):
            part = left[first : first + batch]
            loads: list[str] = []
            owners: list[int] = []
            for n in part:
                more = _Ground(len(loads), rules[n]).load()
                loads += more
                owners += [n] * len(more)
            proofs = saturate_loaded(loads, by, iterations)
            open_ = {n for n, iteration in zip(owners, proofs, strict=True) if iteration is None}
            still += [n for n in part if n in open_ or n not in owners]
        left = still
    return [n not in set(left) for n in range(len(rules))]


def ways_determined(rule: PatternRule) -> list[bool]:
    """Whether each side determines the other."""
    left, right = ([parse(text) for text in side] for side in (rule.left, rule.right))
    return [determined(left, right, rule.where) is not None, determined(right, left, rule.where) is not None]


def independent(rules: Sequence[PatternRule]) -> list[PatternRule]:
    """Leave out what one application of a kept rule does as well in the same directions, the most general first.

    A rule of two outputs is only replaced by such a rule: two rules of one output would do its work in two steps, of
    which the first may cost more than the rule saves. One whose two outputs are one value goes.

    Raises:
        MissingEngine: egglog is not installed.
    """
    kept: list[PatternRule] = []
    for outputs in (1, 2):
        some = [rule for rule in rules if len(set(rule.left)) == outputs == len(set(rule.right))]
        for key in sorted({_rank(rule) for rule in some}):
            left = sorted((rule for rule in some if _rank(rule) == key), key=lambda rule: rule.id)
            by = list(dict.fromkeys(text for rule in kept if len(rule.left) == outputs for text in _steps(rule)))
            reached = [_reached(left, side, by) for side in (0, 1)]
            for n, rule in enumerate(left):
                ways = [side for side, possible in enumerate(ways_determined(rule)) if possible]
                if not all(reached[side][n] for side in ways):
                    kept.append(rule)
    return kept


def _reached(rules: Sequence[PatternRule], side: int, by: Sequence[str]) -> list[bool]:
    """For every rule, whether one application each at some places of one side gives the other."""
    loads: list[str] = []
    owners: list[int] = []
    for n, rule in enumerate(rules):
        loads += _Ground(len(owners), rule).load(side)
        owners += [n] * len(rule.left)
    proofs = saturate_loaded(
        [text for text in loads if text.endswith("load)")],
        by,
        1,
        late=[text for text in loads if text.endswith("late)")],
    )
    missing = {n for n, iteration in zip(owners, proofs, strict=True) if iteration is None}
    return [n not in missing for n in range(len(rules))]


def _rank(rule: PatternRule) -> tuple[int, int]:
    """Operators, and names (fewer is greater): what a rule is an instance of, or contains, ranks lower."""
    texts = (*rule.left, *rule.right)
    names = {word for text in texts for word, kind in words(parse(text)) if kind is None or literal(word, kind) is None}
    return sum(text.count("(") for text in texts), -len(names)


def _steps(rule: PatternRule) -> list[str]:
    """egglog rules for one application, with the operands of sums and products in all orders."""
    sides = [[[show(form) for form in flips(parse(text))] for text in side] for side in (rule.left, rule.right)]
    if len(rule.left) == 1:
        return rewrites(Axiom(rule.id, left, right, rule.where) for left in sides[0][0] for right in sides[1][0])
    steps = []
    for source, target in (sides, sides[::-1]):
        lines = determined([parse(form[0]) for form in source], [parse(form[0]) for form in target], rule.where)
        facts = " ".join(_fact(step.line) for step in lines[0]) if lines and not lines[1] else None
        for left in itertools.product(*source):
            named = " ".join(f"(= result{n} {text})" for n, text in enumerate(left))
            for right in itertools.product(*target):
                bound = {word for text in (*left, *rule.where) for word in _NAMES.findall(text)}
                if facts is not None and {word for text in right for word in _NAMES.findall(text)} <= bound:
                    unions = " ".join(f"(union result{n} {text})" for n, text in enumerate(right))
                    steps.append(f"(rule ({named} {facts}) ({unions}))")
    return steps


def _fact(line: Condition) -> str:
    operands = " ".join(operand if isinstance(operand, str) else show(operand) for operand in line.operands)
    return f"(= {line.name} ({line.sign} {operands}))" if line.sign else f"(= {line.name} {operands})"
