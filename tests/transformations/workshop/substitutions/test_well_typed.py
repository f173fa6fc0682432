"""Conditions of rules: where a rule applies its other side exists (needs z3-solver, an extra)."""

from __future__ import annotations

import dataclasses

import pytest

from deep500.transformations.substitutions.rules.patterns import canonical
from deep500.transformations.substitutions.rules.rule_file import PatternRule, read
from deep500.transformations.workshop.substitutions.library import holds
from deep500.transformations.workshop.substitutions.well_typed import mended, unfit

pytest.importorskip("z3", reason="an extra: pip install 'deep500[substitutions]'")
PARTS = 10

HALVES = PatternRule(  # of the channels of one image, which must be those that the kernels ask for
    ('(split 0 1 p (conv k "1,1" d e g x (concat 0 p y z)))', '(split 1 1 p (conv k "1,1" d e g x (concat 0 p y z)))'),
    ('(conv k "1,1" d e h (split 0 1 p x) y)', '(conv k "1,1" d e h (split 1 1 p x) z)'),
    ("p = size y 0", "p = size z 0", "q = size y 1", "q = size z 1", "g = (+ h h)"),
)
POOL = PatternRule(
    ('(add (avgpool "3,3" "1,1" "1,1,1,1" "True" x) (conv "3,3" "1,1" "1,1,1,1" "1,1" g x y))',),
    ('(conv "3,3" "1,1" "1,1,1,1" "1,1" g x (add (pool_kernel q) y))',),
    ("g = size (pool_kernel q) 0",),
)


@pytest.mark.parametrize("part", range(PARTS))
def test_where_a_shipped_rule_applies_its_other_side_exists(part: int) -> None:
    assert {str(rule): said for rule in read()[part::PARTS] if (said := unfit(rule))} == {}


@pytest.mark.parametrize(("rule", "line"), [(HALVES, "p = (* h q)"), (POOL, "g = size x 1")])
def test_a_rule_that_lacks_a_condition_is_mended(rule: PatternRule, line: str) -> None:
    assert unfit(rule)
    better = mended(rule)
    assert better is not None and not unfit(better) and len(better.where) == len(rule.where) + 1
    said = dataclasses.replace(rule, where=(*rule.where, line))
    assert better.where == canonical(said.left, said.right, said.where)[2]
    assert holds(better)


def test_a_rule_whose_tensor_is_image_and_kernel_is_given_up() -> None:
    conv = 'conv k "1,1" d e g'
    rule = PatternRule((f"(split 0 0 p ({conv} (concat 0 p x y) y))",), (f"({conv} x y)",))
    assert unfit(rule) and mended(rule) is None


@pytest.mark.parametrize("left", ["(matmul x (identity q))", "(add (add x y) z)"])
def test_what_fits_stays(left: str) -> None:
    rule = PatternRule((left,), ({"(m": "x", "(a": "(add x (add y z))"}[left[:2]],))
    assert unfit(rule) == "" and mended(rule) == rule
