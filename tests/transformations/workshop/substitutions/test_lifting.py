"""Lifting generated rules to patterns, and the library of those that are shipped (needs egglog, an extra)."""

from __future__ import annotations

import dataclasses

import pytest

from deep500.transformations.substitutions.proofs.pattern_proofs import proved
from deep500.transformations.substitutions.rules.patterns import canonical
from deep500.transformations.substitutions.rules.rule_file import PatternRule, read, to_line
from deep500.transformations.workshop.substitutions.independence import independent
from deep500.transformations.workshop.substitutions.library import THEMES, generated, holds, joined
from deep500.transformations.workshop.substitutions.lift import Form, lift
from deep500.transformations.workshop.substitutions.menu import conv_parameters
from deep500.transformations.workshop.substitutions.rules import GeneratedRule
from deep500.transformations.workshop.substitutions.terms import SYMBOLS, Expression, Sizes, Variable, make

W, V, U = (Variable("w", n) for n in (1, 2, 3))
X, Y = (Variable("x", n) for n in (1, 2))
P, J, A, B, G = Variable("i", 1), Variable("i", 2), Variable("a", 1), Variable("a", 2), Variable("g", 1)
C = Sizes(SYMBOLS["c"])


def _conv(image: Expression, kernel: Expression, groups: object = 1) -> Expression:
    return make("conv", image, kernel, **conv_parameters((3, 3), groups))


def _lifted(left: Expression, right: Expression) -> PatternRule:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    rule = lift([GeneratedRule((left,), (right,))])
    assert not rule.failed
    return rule.rules[0]


# fmt: off
LIFTED = {
    "any activation and axis": (
        (make("concat", make("relu", W), make("relu", V), axis=0), make("relu", make("concat", W, V, axis=0))),
        "(concat a1 p1 (unary f1 x1) (unary f1 x2)) = (unary f1 (concat a1 p1 x1 x2))",
    ),
    "any permutation": (
        (make("relu", make("transpose", W, perm=(1, 0))), make("transpose", make("relu", W), perm=(1, 0))),
        "(transpose t1 (unary f1 x1)) = (unary f1 (transpose t1 x1))",
    ),
    "any window, one group": (
        (make("concat", _conv(P, A), _conv(P, B), axis=1), _conv(P, make("concat", A, B, axis=0))),
        "(concat 1 p1 (conv k1 s1 d1 e1 4097 x1 x2) (conv k1 s1 d1 e1 4097 x1 x3)) = "
        "(conv k1 s1 d1 e1 4097 x1 (concat 0 p1 x2 x3))",
    ),
    "any groups, stride one where two images meet": (
        (make("add", _conv(P, G, C), _conv(J, G, C)), _conv(make("add", P, J), G, C)),
        '(add (conv k1 "1,1" d1 e1 g1 x1 x2) (conv k1 "1,1" d1 e1 g1 x3 x2)) = '
        '(conv k1 "1,1" d1 e1 g1 (add x1 x3) x2)',
    ),
    "a cut that one side does not show": (
        (make("add", make("matmul", X, W), make("matmul", Y, V)),
         make("matmul", make("concat", X, Y, axis=1), make("concat", W, V, axis=0))),
        "(add (matmul x1 x2) (matmul x3 x4)) = (matmul (concat 1 p1 x1 x3) (concat 0 p1 x2 x4)); p1 = size x1 1",
    ),
    "sizes of square operands stay different": (
        (make("concat", make("concat", W, V, axis=0), U, axis=0),
         make("concat", W, make("concat", V, U, axis=0), axis=0)),
        "(concat a1 p1 (concat a1 p2 x1 x2) x3) = (concat a1 p2 x1 (concat a1 p3 x2 x3)); "
        "p3 = size x2 a1, p1 = (+ p2 p3)",
    ),
}
# fmt: on


@pytest.mark.parametrize("name", LIFTED)
def test_a_rule_becomes_as_general_as_the_axioms_prove(name: str) -> None:
    sides, wanted = LIFTED[name]
    rule = _lifted(*sides)
    assert str(rule) == wanted
    assert (rule.verdict, rule.prover, rule.origin) == ("proved", "egglog", GeneratedRule((sides[0],), (sides[1],)).id)


def test_grouped_convolutions_keep_the_conditions_they_need() -> None:
    """Groups side by side need kernels of equal sizes: no condition can go, and without them nothing is proved."""
    merged = _conv(make("concat", P, J, axis=1), make("concat", G, Variable("g", 2), axis=0), Sizes((4, 6)))
    rule = _lifted(make("concat", _conv(P, G, C), _conv(J, Variable("g", 2), C), axis=1), merged)
    assert any("(+" in line for line in rule.where) and len(rule.where) > 3
    assert proved([rule]) == [True]
    for line in rule.where:
        fewer = dataclasses.replace(rule, where=tuple(theme for theme in rule.where if theme != line))
        assert proved([fewer]) == [False] or line.startswith("p")


def test_what_is_false_is_not_proved_and_fails_its_trial() -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    # fmt: off
    wrong = [
        PatternRule(("(matmul x1 x2)",), ("(matmul x2 x1)",)),
        PatternRule(("(unary f1 (add x1 x2))",), ("(add (unary f1 x1) (unary f1 x2))",)),
        PatternRule(("(concat 1 p1 (conv k1 s1 d1 e1 g1 x1 x2) (conv k1 s1 d1 e1 g1 x1 x3))",),
                    ("(conv k1 s1 d1 e1 g1 x1 (concat 0 p1 x2 x3))",)),
        PatternRule(("(add (conv k1 s1 d1 e1 g1 x1 x2) (conv k1 s1 d1 e1 g1 x3 x4))",),
                    ("(conv k1 s1 d1 e1 g1 (concat 1 p1 x1 x3) (concat 1 p1 x2 x4))",), ("p1 = size x1 1",)),
    ]
    # fmt: on
    assert proved(wrong) == [False] * len(wrong)
    assert [holds(rule) for rule in wrong[:3]] == [False] * 3  # the sizes that tell the last one are drawn too rarely


def test_a_rule_that_nothing_proves_is_reported() -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    wrong = GeneratedRule((make("matmul", W, V),), (make("matmul", V, W),))
    rule = lift([wrong])
    assert (rule.rules, rule.failed) == ([], [wrong])


def test_concatenations_of_what_shares_an_input_are_rules_of_two_outputs() -> None:
    both = make("concat", make("matmul", W, V), make("matmul", W, U), axis=1)
    merged = make("matmul", W, make("concat", V, U, axis=1))
    (pair,) = joined([GeneratedRule((both,), (merged,))])
    (rule,) = lift([pair]).rules if pytest.importorskip("egglog") else ()
    assert len(rule.left) == 2 and not rule.where
    apart = make("concat", make("matmul", W, V), make("matmul", X, U), axis=0)
    assert joined([GeneratedRule((apart,), (merged,))]) == []


def test_an_instance_of_another_rule_goes() -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    general = PatternRule(("(concat a1 p1 (unary f1 x1) (unary f1 x2))",), ("(unary f1 (concat a1 p1 x1 x2))",))
    special = PatternRule(("(concat 0 p1 (unary f1 x1) (unary f1 x1))",), ("(unary f1 (concat 0 p1 x1 x1))",))
    other = PatternRule(("(add (scale x1 x2) (scale x3 x2))",), ("(scale (add x1 x3) x2)",))
    assert set(independent([special, general, other])) == {general, other}


def test_names_order_and_sides_do_not_change_a_rule() -> None:
    form = canonical(("(add (matmul u v) (matmul u w))",), ("(matmul u (add v w))",), ())
    assert form == canonical(("(matmul a (add c b))",), ("(add (matmul a b) (matmul a c))",), ())
    assert form != canonical(("(matmul a (add c b))",), ("(add (matmul a b) (matmul c a))",), ())


def test_literals_that_may_vary_are_slots_and_others_are_not() -> None:
    form = Form(GeneratedRule((make("concat", make("bias", W, Variable("u", 1), axis=1), V, axis=0),), (W,)))
    assert [slot.parameter for slot in form.slots] == []  # two axes: neither may be any axis
    form = Form(GeneratedRule((make("relu", make("transpose", W, perm=(1, 0))),), (W,)))
    assert sorted(slot.parameter for slot in form.slots) == ["function", "perm"]


# -- the file -------------------------------------------------------------------------------------------------------
def test_shipped_rules_are_still_proved_from_the_axioms() -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    assert all(proved(read()))


@pytest.mark.parametrize("name", ["groups", "kernels of one point"])
def test_generating_a_theme_anew_gives_its_shipped_rules(name: str) -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    theme = next(theme for theme in THEMES if theme.name == name)
    rules = generated(theme, seed=3)[0]  # another seed than the file's: the rules do not depend on it
    lifted = {to_line(rule) for rule in lift(rules).rules}
    origins = {rule.id for rule in rules}
    shipped = {to_line(rule) for rule in read() if rule.origin in origins}
    assert shipped and shipped <= lifted
