"""Generation from beginning to end: enumerate, prune, prove, and keep what the kept rules do not imply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deep500.transformations.workshop.substitutions.candidates import Candidates
from deep500.transformations.workshop.substitutions.enumerate import Enumeration
from deep500.transformations.workshop.substitutions.prove import implied, prove
from deep500.transformations.workshop.substitutions.rewrites import rule_rewrites
from deep500.transformations.workshop.substitutions.rules import GeneratedRule
from deep500.transformations.workshop.substitutions.terms import variables

STEP = 6  # rules kept between two looks at what they imply: fewer give a smaller set, and take longer


@dataclass(frozen=True)
class Generated:
    """Rules that generation found.

    Attributes:
        counts: stage -> number of rules or terms left after it, in the order of the stages.
        rules: proved rules of which none follows from smaller ones, smallest first.
        multiple: proved rules with two outputs.
        open: candidates that are not proved, with their verdicts: never to be applied.
    """

    counts: dict[str, int]
    rules: list[GeneratedRule]
    multiple: list[GeneratedRule]
    open: list[GeneratedRule]


def minimal(rules: Sequence[GeneratedRule], step: int = STEP) -> list[GeneratedRule]:
    """Rules that imply all others (within a few iterations), chosen by size, the most general first.

    Raises:
        MissingEngine: egglog is not installed.
    """
    chosen: list[GeneratedRule] = []
    for size in sorted({rule.operations for rule in rules}):
        of_size = [rule for rule in rules if rule.operations == size]
        left = sorted(of_size, key=lambda rule: (-len(variables(*rule.source, *rule.target)), str(rule)))
        while left:
            if chosen:
                known = implied(left, rule_rewrites(chosen), ((1000, 2),))
                left = [rule for rule, follows in zip(left, known, strict=True) if not follows]
            chosen += left[:step]
            left = left[step:]
    return chosen


def generate(depth: int = 3, seed: int = 0, counts: dict[str, int] | None = None) -> Generated:
    """Generate rules of up to ``depth`` operators a side.

    Args:
        depth: greatest number of operators of a side.
        seed: of the values that distinguish expressions.
        counts: variables of each kind, see `Enumeration`.

    Raises:
        MissingEngine: egglog, which proves, is not installed.
    """
    candidates = Candidates(Enumeration(depth, seed, counts))
    single, double = ([replace(rule, seed=seed) for rule in rules] for rules in (candidates.rules, candidates.multiple))
    decided, pairs = prove(single, seed), prove(double, seed)
    proved = [rule for rule in decided if rule.verdict == "proved"]
    chosen = minimal(proved)
    multiple = [rule for rule in pairs if rule.verdict == "proved"]
    stages = {**candidates.counts, "proved": len(proved), "not derivable": len(chosen), "two outputs": len(multiple)}
    return Generated(stages, chosen, multiple, [rule for rule in [*decided, *pairs] if rule.verdict != "proved"])
