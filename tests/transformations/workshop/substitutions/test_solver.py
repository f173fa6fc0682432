"""Z3 as second prover (needs z3-solver, an extra): what it proves, what it must not, and how it compares."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from deep500.errors import MissingEngine
from deep500.transformations.substitutions.proofs import solver as solver_module
from deep500.transformations.substitutions.proofs.axioms import Axiom, axioms
from deep500.transformations.workshop.substitutions.candidates import Candidates
from deep500.transformations.workshop.substitutions.enumerate import Enumeration
from deep500.transformations.workshop.substitutions.menu import conv_parameters
from deep500.transformations.workshop.substitutions.prove import attempts, prove
from deep500.transformations.workshop.substitutions.rules import GeneratedRule
from deep500.transformations.workshop.substitutions.solver import TermSolver
from deep500.transformations.workshop.substitutions.terms import SYMBOLS, Expression, Sizes, Variable, make

pytest.importorskip("z3", reason="an extra: pip install 'deep500[substitutions]'")
X, Y = (Variable("x", n) for n in (1, 2))
W, V, U = (Variable("w", n) for n in (1, 2, 3))
P, J, A, B = Variable("i", 1), Variable("i", 2), Variable("a", 1), Variable("a", 2)
N, K, C = (Sizes(SYMBOLS[name]) for name in "nkc")
LIMIT = 300_000


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
    "pooling": (make("avgpool", P, kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1), count_padding=True),
                _conv(P, make("pool_kernel", shape=(C, 1, 3, 3)), C)),
}
# fmt: on
# fmt: off
FALSE = {
    "matmul commutes": (make("matmul", W, V), make("matmul", V, W)),
    "relu of a sum": (make("relu", make("add", X, Y)), make("add", make("relu", X), make("relu", Y))),
    "wrong part": (make("split", make("concat", X, Y, axis=0), axis=0, cut=N, output=1), X),
    "conv outputs of groups": (make("concat", _conv(P, Variable("g", 1), C), _conv(P, Variable("g", 2), C), axis=1),
                               _conv(make("concat", P, P, axis=1), make("concat", Variable("g", 1), Variable("g", 1),
                                                                        axis=0), Sizes((4, 6)))),
    "pooling that excludes padding": (
        make("avgpool", P, kernel=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1), count_padding=False),
        _conv(P, make("pool_kernel", shape=(C, 1, 3, 3)), C)),
}
# fmt: on


@pytest.fixture(scope="module")
def whole() -> TermSolver:
    return TermSolver()


@pytest.mark.parametrize("name", TRUE)
def test_solver_proves_what_holds(whole: TermSolver, name: str) -> None:
    attempt = whole.prove(TRUE[name], LIMIT)
    assert attempt.proved and attempt.reason == "" and attempt.seconds >= 0


@pytest.mark.parametrize("name", FALSE)
def test_solver_proves_nothing_false_and_says_why_it_stopped(whole: TermSolver, name: str) -> None:
    attempt = whole.prove(FALSE[name], LIMIT)
    assert not attempt.proved and attempt.reason


def test_a_limit_never_refutes(whole: TermSolver) -> None:
    (attempt,) = attempts([GeneratedRule((TRUE["three matmuls"][0],), (TRUE["three matmuls"][1],))], whole, limit=10)
    assert not attempt.proved and attempt.reason


def test_verdicts_are_the_same_again(whole: TermSolver) -> None:
    """The limit counts Z3's own steps, not seconds."""
    goal = FALSE["matmul commutes"]
    assert [whole.prove(goal, 20_000).reason for _ in range(2)] == [TermSolver().prove(goal, 20_000).reason] * 2


def test_without_axioms_only_identity_is_proved() -> None:
    empty = TermSolver([])
    assert empty.prove((X, X)).proved
    assert not empty.prove((make("add", X, Y), make("add", Y, X))).proved


def test_every_axiom_gives_a_quantifier(whole: TermSolver) -> None:
    assert all(whole.quantified(axiom) for axiom in axioms())


def test_axioms_that_contradict_themselves_prove_nothing() -> None:
    """Two sizes for one value: everything follows, also what is wrong, and the core shows that the goal had no part."""
    wrong = Axiom("columns are rows", "(concat 1 p x y)", "(concat 0 p x y)")
    both = make("concat", X, X, axis=1)
    attempt = TermSolver([wrong]).prove((both, make("relu", both)), LIMIT)
    assert not attempt.proved and attempt.reason == "contradiction"


def test_an_axiom_that_others_imply_is_found_and_no_other() -> None:
    known = {axiom.name: axiom for axiom in axioms()}
    left = known["sum matmul"]
    names = ("28 matmul sum", "29 transpose twice", "30 transpose of product", "33 transpose sum")
    assert TermSolver([known[name] for name in names]).prove_axiom(left, LIMIT).proved
    for absent in names:
        assert not TermSolver([known[name] for name in names if name != absent]).prove_axiom(left, 20_000).proved


def test_both_provers_agree_on_generated_rules(whole: TermSolver) -> None:
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    rules = Candidates(Enumeration(2, 0, {"x": 2, "w": 2, "i": 2, "a": 2, "s": 1})).rules
    assert len(rules) > 30
    saturated = [rule.verdict == "proved" for rule in prove(rules)]
    assert [attempt.proved for attempt in attempts(rules, whole, LIMIT)] == saturated


def test_solver_decides_what_saturation_leaves_open() -> None:
    """With no iterations equality saturation proves nothing; Z3 then does, which the record says, with its time."""
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    true, false = (GeneratedRule((left,), (right,)) for left, right in (TRUE["shared input"], FALSE["matmul commutes"]))
    attempt = prove([true, false], stages=((10, 0),), limit=LIMIT)
    assert [(rule.verdict, rule.prover) for rule in attempt] == [("proved", "z3"), ("refuted", "finite field")]
    assert all(rule.seconds is not None and rule.seconds >= 0 for rule in attempt)
    assert [rule.verdict for rule in prove([true], stages=((10, 0),))] == ["unknown"]


def test_without_z3_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = builtins.__import__

    def absent(name: str, *rest: Any, **named: Any) -> Any:
        if name == "z3":
            raise ImportError(name)
        return plain(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(MissingEngine, match=r"deep500\[substitutions\]"):
        solver_module.engine()
