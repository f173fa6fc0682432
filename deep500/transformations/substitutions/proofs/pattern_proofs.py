"""Proofs of pattern rules by equality saturation: names are opaque constants, and ``where`` lines all that is known."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from deep500.transformations.substitutions.proofs.axioms import axioms
from deep500.transformations.substitutions.proofs.saturation import rewrites, saturate_loaded
from deep500.transformations.substitutions.rules.building import determined
from deep500.transformations.substitutions.rules.conditions import read_line
from deep500.transformations.substitutions.rules.patterns import PACKED, Pattern, arguments, literal, parse
from deep500.transformations.substitutions.rules.rule_file import PatternRule

STAGES = ((1000, 2), (1000, 4))  # (rules per e-graph, iterations), as `prove.STAGES`


class Ground:
    """A pattern rule's names as constants that nothing else is equal to."""

    def __init__(self, number: int, rule: PatternRule) -> None:
        self.number, self.rule = number, rule
        self.random = random.Random(rule.id)
        self.values: dict[str, int] = {}

    def load(self, side: int | None = None) -> list[str]:
        """egglog rules that load its goals, numbered from ``number``; with ``side`` that side first, both late."""
        facts = []
        lines = [read_line(line) for line in self.rule.where]
        for line in [line for line in lines[::-1] if line.sign != "size"]:
            value = (math.prod if line.sign == "*" else sum)(map(self.integer, line.operands))
            if self.values.setdefault(line.name, value) != value:
                return []
        for line in [line for line in lines if line.sign == "size"]:
            term, axis = line.operands
            facts.append(f"(set (size {self.text(term)} {self.integer(axis)}) {self.integer(line.name)})")
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
        names, words, inputs = arguments(pattern)
        texts = [self._parameter(name, word) for name, word in zip(names, words, strict=True)]
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
                more = Ground(len(loads), rules[n]).load()
                loads += more
                owners += [n] * len(more)
            proofs = saturate_loaded(loads, by, iterations)
            open_ = {n for n, iteration in zip(owners, proofs, strict=True) if iteration is None}
            still += [n for n in part if n in open_ or n not in owners]
        left = still
    return [n not in set(left) for n in range(len(rules))]


def ways_determined(rule: PatternRule) -> list[bool]:
    """Return whether each side determines the other."""
    left, right = ([parse(text) for text in side] for side in (rule.left, rule.right))
    return [determined(left, right, rule.where) is not None, determined(right, left, rule.where) is not None]
