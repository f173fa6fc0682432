"""Axioms proved element by element for small sizes (needs z3-solver, an extra); wrong ones are caught."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.transformations.substitutions.operators.arithmetic import Real
from deep500.transformations.substitutions.operators.specification import operator
from deep500.transformations.substitutions.proofs.axioms import Axiom, axioms
from deep500.transformations.workshop.substitutions.combinations import Space
from deep500.transformations.workshop.substitutions.symbolic import Symbolic, prove_small

z3 = pytest.importorskip("z3", reason="an extra: pip install 'deep500[substitutions]'")
CONV, SAME = 'conv "3,3" "1,1" "1,1,1,1" "1,1"', '"3,3" "1,1" "1,1,1,1"'
# fmt: off
WRONG = [
    Axiom("grouped conv without its condition", f"(concat 1 p ({CONV} g x y) ({CONV} g z w))",
          f"({CONV} h (concat 1 q x z) (concat 0 p y w))", ("q = size x 1", "h = (+ g g)")),
    Axiom("relu of a sum", '(unary "relu" (add x y))', '(add (unary "relu" x) (unary "relu" y))'),
    Axiom("relu twice", '(unary "relu" (unary "relu" x))', '(unary "relu" x)'),
    Axiom("sigmoid of an enlarged kernel", '(enlarge "1,3" "3,3" (unary "sigmoid" x))',
          '(unary "sigmoid" (enlarge "1,3" "3,3" x))'),
    Axiom("average without padding as conv", f"({CONV} g x (pool_kernel q))", f'(avgpool {SAME} "False" x)',
          ("g = size (pool_kernel q) 0",)),
    Axiom("maximum of a sum", f"(maxpool {SAME} (add x y))", f"(add (maxpool {SAME} x) (maxpool {SAME} y))"),
    Axiom("matmul commutes", "(matmul x y)", "(matmul y x)"),
]
# fmt: on


@pytest.mark.parametrize("axiom", axioms(), ids=lambda axiom: axiom.name)
def test_axiom_is_proved_for_small_sizes(axiom: Axiom) -> None:
    result = prove_small(axiom, Space((1, 2), (3,) if "conv k" in axiom.left else (1, 3)), sample=6, seed=1)
    assert result.failure is None and result.undecided == 0 and result.tried == min(6, result.combinations) > 0


@pytest.mark.parametrize("axiom", WRONG, ids=lambda axiom: axiom.name)
def test_wrong_axiom_is_not_proved(axiom: Axiom) -> None:
    result = prove_small(axiom, sample=150)
    assert result.failure is not None and result.failure.what, result


def test_symbols_stand_for_numbers() -> None:
    """With numbers in place of the symbols, an evaluator gives what it gives in float64."""
    parameters = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "count_padding": False}
    image = np.arange(1.0, 10.0).reshape(1, 1, 1, 3, 3)
    numbers = Symbolic()
    for name in ("avgpool", "maxpool"):
        given = {key: value for key, value in parameters.items() if key in operator(name).parameters}
        (expected,) = operator(name).evaluate(Real(), [image], given)
        (result,) = operator(name).evaluate(numbers, [numbers.constant(image)], given)
        for axiom, other in zip(result.ravel(), expected.ravel(), strict=True):
            assert float(z3.simplify(axiom).as_fraction()) == pytest.approx(other)


def test_functions_are_unknown_but_for_zero() -> None:
    numbers, (x, y) = Symbolic(), (z3.Real("x"), z3.Real("y"))
    zero, other = (numbers.unary("relu", np.array([value], object))[0] for value in (0, x))
    assert numbers.equal(zero, 0) is True and numbers.equal(other, x) is False
    first, second = (numbers.unary("tanh", np.array([value], object))[0] for value in ((x + y) * y, y * x + y * y))
    assert numbers.equal(first, second) is True
    assert numbers.equal(numbers.unary("sigmoid", np.array([0], object))[0], 0) is False
