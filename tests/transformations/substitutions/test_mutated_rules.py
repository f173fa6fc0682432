"""Wrong rules, made from shipped ones by changing one thing: none is proved, no equation of polynomials stays open."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from deep500.errors import Deep500Error
from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.substitutions.proofs import validation
from deep500.transformations.substitutions.proofs.axioms import equations
from deep500.transformations.substitutions.proofs.kernels import check_kernels
from deep500.transformations.substitutions.proofs.lowering import cases
from deep500.transformations.substitutions.proofs.trials import polynomial
from deep500.transformations.substitutions.proofs.verdicts import judge, shipped_ids
from deep500.transformations.substitutions.rules.patterns import Pattern, arguments, parse, show
from deep500.transformations.substitutions.rules.rule_file import PatternRule, read
from deep500.transformations.substitutions.rules.rule_text import from_text

TWINS = {"add": "mul", "scale": "shift", "gain": "bias", "avgpool": "maxpool", "ones": "ones"}
TWINS |= {twin: op for op, twin in TWINS.items()}
WORDS = {"0": "1", "1": "0", '"3,3"': '"1,3"', '"1,1"': '"2,1"', '"1,0"': '"0,1"', '"1,1,1,1"': '"0,0,0,0"'}
WORDS |= {'"relu"': '"tanh"', '"True"': '"False"', "4097": "8194"}


def places(pattern: Pattern) -> Iterator[tuple[Pattern, int]]:
    """Every word and operand of a pattern: the list that it stands in, and where."""
    if isinstance(pattern, list):
        for n in range(1, len(pattern)):
            yield pattern, n
            yield from places(pattern[n])


def mutated(rule: PatternRule, chance: random.Random) -> PatternRule | None:
    """A rule with one thing changed; None where that is no rule."""
    sides = [[parse(text) for text in side] for side in (rule.left, rule.right)]
    where, names = list(rule.where), [f"x{n}" for n in range(1, 5) if f"x{n}" in str(rule)]
    inside = [place for pattern in sides[chance.randrange(2)] for place in places(pattern)]
    kind = chance.randrange(5)
    if not inside or (kind == 4 and not where):
        return None
    parent, n = chance.choice(inside)
    if kind == 0 and parent[n] in names:
        parent[n] = chance.choice(names)  # another tensor
    elif kind == 1:
        parent[0] = TWINS.get(parent[0], parent[0])  # another operator
    elif kind == 2 and isinstance(parent[n], str):
        parent[n] = WORDS.get(parent[n], parent[n])  # another setting
    elif kind == 3 and isinstance(parent[n], list) and arguments(parent[n])[2]:
        parent[n] = arguments(parent[n])[2][0]  # an operator less
    elif kind == 4:
        where.pop(chance.randrange(len(where)))  # a condition less
    text = " = ".join(", ".join(map(show, side)) for side in sides)
    try:
        changed = from_text(f"{text}{'; ' * bool(where)}{', '.join(where)}").rule
    except Deep500Error:
        return None
    return None if changed.id == rule.id or changed.id in shipped_ids() else changed


def agrees(rule: PatternRule) -> bool:
    """Return whether kernels compute the same on both sides, for sizes that no verdict saw."""
    return all(check_kernels("reference", cases(axiom, 8, seed=99)).worst < 1 for axiom in equations(rule))


def wrong_ones(count: int, seed: int) -> Counter[str]:
    """Judge mutants until so many were refuted; what is not refuted must be right, or fit together nowhere."""
    chance, rules, seen, verdicts = random.Random(seed), read(), set[str](), Counter[str]()
    while verdicts["refuted"] < count:
        batch = {
            m.id: m
            for m in (mutated(chance.choice(rules), chance) for _ in range(min(count * 5, 100)))
            if m and m.id not in seen
        }
        seen |= batch.keys()
        for verdict in judge(list(batch.values()), thorough=False):
            kind, rule = verdict.rule.verdict, verdict.rule
            if kind == "unknown" and not verdict.fits:
                kind = "fits nowhere"
            elif kind == "unknown" and not polynomial(rule):
                kind = "unknown, about activations"
            elif kind != "refuted":
                try:
                    assert agrees(rule), f"{kind} and wrong: {rule}"
                except ShapeMismatch:
                    kind = "fits hardly anywhere"
            verdicts[kind] += 1
    return verdicts


@pytest.mark.parametrize("count", [6, pytest.param(2000, marks=pytest.mark.long)])
def test_no_wrong_rule_is_proved_and_none_of_polynomials_stays_open(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "TRIALS", 1200)  # fewer than by default: what they refute, more do as well
    verdicts = wrong_ones(count, seed=1)
    print(verdicts)
