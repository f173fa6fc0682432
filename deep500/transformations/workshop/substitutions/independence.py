"""Choice of the pattern rules that are needed: those that one application of another does not replace."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from deep500.transformations.substitutions.proofs.axioms import Axiom
from deep500.transformations.substitutions.proofs.pattern_proofs import Ground, ways_determined
from deep500.transformations.substitutions.proofs.saturation import rewrites, saturate_loaded
from deep500.transformations.substitutions.rules.building import determined
from deep500.transformations.substitutions.rules.conditions import Condition
from deep500.transformations.substitutions.rules.patterns import flips, literal, parse, show, words
from deep500.transformations.substitutions.rules.rule_file import PatternRule

_NAMES = re.compile(r"\b[a-z]\d+\b")


def independent(rules: Sequence[PatternRule]) -> list[PatternRule]:
    """Leave out what one application of a kept rule does as well in the same directions, the most general first.

    A rule of two outputs is only replaced by such a rule: two rules of one output would do its work in two steps, of
    which the first may cost more than the rule saves. One whose two outputs are one value goes.

    Raises:
        MissingEngine: egglog is not installed.
    """
    needed: list[PatternRule] = []
    for outputs in (1, 2):
        some = [rule for rule in rules if len(set(rule.left)) == outputs == len(set(rule.right))]
        for key in sorted({_rank(rule) for rule in some}):
            left = sorted((rule for rule in some if _rank(rule) == key), key=lambda rule: rule.id)
            by = list(dict.fromkeys(text for rule in needed if len(rule.left) == outputs for text in _steps(rule)))
            reached = [_reached(left, side, by) for side in (0, 1)]
            for n, rule in enumerate(left):
                ways = [side for side, possible in enumerate(ways_determined(rule)) if possible]
                if not all(reached[side][n] for side in ways):
                    needed.append(rule)
    return needed


def _reached(rules: Sequence[PatternRule], side: int, by: Sequence[str]) -> list[bool]:
    """For every rule, whether one application each at some places of one side gives the other."""
    loads: list[str] = []
    owners: list[int] = []
    for n, rule in enumerate(rules):
        loads += Ground(len(owners), rule).load(side)
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
