"""Equality saturation from axioms and from rules (needs egglog, an extra)."""

from __future__ import annotations

import pytest

from deep500.transformations.substitutions.proofs.axioms import axioms
from deep500.transformations.substitutions.proofs.saturation import direction, rewrites
from deep500.transformations.workshop.substitutions.generate import generate, minimal
from deep500.transformations.workshop.substitutions.menu import conv_parameters
from deep500.transformations.workshop.substitutions.prove import implied, prove
from deep500.transformations.workshop.substitutions.rewrites import rule_rewrites
from deep500.transformations.workshop.substitutions.rules import GeneratedRule
from deep500.transformations.workshop.substitutions.saturation import saturate
from deep500.transformations.workshop.substitutions.terms import SYMBOLS, Expression, Sizes, Variable, make

pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
X, Y = (Variable("x", n) for n in (1, 2))
W, V, U = (Variable("w", n) for n in (1, 2, 3))
P, J, A, B = Variable("i", 1), Variable("i", 2), Variable("a", 1), Variable("a", 2)
N, K, C = (Sizes(SYMBOLS[name]) for name in "nkc")


def _rule(left: Expression, right: Expression) -> GeneratedRule:
    return GeneratedRule((left,), (right,))


def _conv(image: Expression, kernel: Expression, groups: object = 1) -> Expression:
    return make("conv", image, kernel, **conv_parameters((3, 3), groups))


# fmt: off
TRUE = {
    "three matmuls": (make("matmul", W, make("matmul", V, make("matmul", U, W))),
                      make("matmul", make("matmul", make("matmul", W, V), U), W)),
    "shared input": (make("split", make("matmul", X, make("concat", W, V, axis=1)), axis=1, cut=K, output=1),
                     make("matmul", X, V)),
    "sum of convs": (make("add", _conv(P, A), _conv(J, B)),
                     _conv(make("concat", P, J, axis=1), make("concat", A, B, axis=1))),
    "concat associates": (make("concat", X, make("concat", W, Y, axis=0), axis=0),
                          make("concat", make("concat", X, W, axis=0), Y, axis=0)),
}
# fmt: on
FALSE = {
    "matmul commutes": (make("matmul", W, V), make("matmul", V, W)),
    "relu of a sum": (make("relu", make("add", X, Y)), make("add", make("relu", X), make("relu", Y))),
    "wrong part": (make("split", make("concat", X, Y, axis=0), axis=0, cut=N, output=1), X),
    "grouped conv without its condition": (
        make("concat", _conv(A, A), _conv(B, B), axis=1),
        make("concat", _conv(B, B), _conv(A, A), axis=1),
    ),
    "average without padding": (
        make("avgpool", P, kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1), count_padding=False),
        _conv(P, make("pool_kernel", shape=(C, 1, 3, 3)), C),
    ),
}


@pytest.mark.parametrize("name", TRUE)
def test_axioms_prove_what_holds(name: str) -> None:
    (verdicts,) = prove([_rule(*TRUE[name])])
    assert (verdicts.verdict, verdicts.prover) == ("proved", "egglog")


def test_axioms_prove_nothing_false_and_counterexamples_refute_it() -> None:
    verdicts = prove([_rule(*pair) for pair in FALSE.values()])
    assert [rule.verdict for rule in verdicts] == ["refuted"] * len(FALSE)


def test_what_holds_only_by_arithmetic_is_unknown() -> None:
    """conv commutes at the diagonal of the centre: true for all sizes, and no axiom says so."""
    kernel = make("identity_kernel", shape=(C, C, 3, 3))
    (verdicts,) = prove([_rule(make("mul", kernel, _conv(A, B)), make("mul", kernel, _conv(B, A)))])
    assert (verdicts.verdict, verdicts.prover) == ("unknown", None)


def test_every_goal_says_at_which_iteration_it_was_proved() -> None:
    goals = [(X, X), (make("add", X, Y), make("add", Y, X)), (make("matmul", W, V), make("matmul", V, W))]
    assert saturate(goals, rewrites(axioms()), 2) == [0, 1, None]


def test_without_axioms_nothing_but_identity_is_proved() -> None:
    assert saturate([(make("add", X, Y), make("add", Y, X))], [], 3) == [None]


def test_a_direction_that_invents_a_size_is_left_out() -> None:
    assert direction("(matmul x (identity q))", "x", ()) is not None
    assert direction("x", "(matmul x (identity q))", ()) is None
    assert direction("(add x y)", "(matmul (concat 1 p x y) z)", ("p = size x 1",)) is None


def test_rules_imply_others_and_only_theirs() -> None:
    commute = _rule(make("add", X, Y), make("add", Y, X))
    more = _rule(make("add", make("relu", W), V), make("add", V, make("relu", W)))
    other = _rule(make("mul", X, Y), make("mul", Y, X))
    assert implied([more, other], rule_rewrites([commute])) == [True, False]
    assert minimal([commute, more, other]) == [commute, other]


def test_generation_ends_with_few_proved_rules() -> None:
    verdicts = generate(3, 0, {"w": 3})
    assert verdicts.counts["not derivable"] == len(verdicts.rules) < verdicts.counts["proved"]
    assert all(rule.verdict == "proved" for rule in verdicts.rules)
    assert all(rule.verdict != "proved" for rule in verdicts.open)
    known = {rule.id for rule in verdicts.rules}
    associative = _rule(make("matmul", W, make("matmul", V, U)), make("matmul", make("matmul", W, V), U))
    assert associative.id in known
