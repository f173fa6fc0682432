"""Every axiom holds for many sizes; wrong ones, planted, are caught."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from deep500.transformations.substitutions.proofs.axioms import ONE, Axiom, axioms
from deep500.transformations.substitutions.proofs.prime_fields import Prime
from deep500.transformations.substitutions.proofs.validation import Sides
from deep500.transformations.substitutions.rules.patterns import parse
from deep500.transformations.workshop.substitutions.combinations import Legal, Space, configurations
from deep500.transformations.workshop.substitutions.encoding import pack
from deep500.transformations.workshop.substitutions.exhaustive import exhaust
from deep500.transformations.workshop.substitutions.validation import compare, directions, validate

CONV, SAME = 'conv "3,3" "1,1" "1,1,1,1" "1,1"', '"3,3" "1,1" "1,1,1,1"'
# fmt: off
WRONG = [
    Axiom("concat associative with the cuts of a split tree", "(split 0 a q (concat a p (concat a q x y) z))",
          "(concat a q x y)"),
    Axiom("sum of convs of any groups", f"(add ({CONV} g x y) ({CONV} g z w))",
          f"({CONV} g (concat 1 p x z) (concat 1 p y w))", ("p = size x 1",)),
    Axiom("conv outputs of any groups", f"(concat 1 p ({CONV} g x y) ({CONV} g x z))",
          f"({CONV} g x (concat 0 p y z))"),
    Axiom("groups side by side without their condition", f"(concat 1 p ({CONV} g x y) ({CONV} g z w))",
          f"({CONV} h (concat 1 q x z) (concat 0 p y w))", ("q = size x 1", "h = (+ g g)")),
    Axiom("conv batch with strides", '(concat 0 p (conv "3,3" "2,1" d e g x z) (conv "3,3" "2,1" d e g y z))',
          '(conv "3,3" "2,1" d e g (concat 0 p x y) z)'),
    Axiom("enlarge under padding on one side", '(conv "1,3" "2,2" "0,0,0,1" "1,1" g x y)',
          '(conv "3,3" "2,2" "0,0,1,1" "1,1" g x (enlarge "1,3" "3,3" y))'),
    Axiom("enlarge an even kernel", '(conv "2,2" "1,1" "1,1,0,0" "1,1" g x y)',
          '(conv "3,3" "1,1" "1,1,1,1" "1,1" g x (enlarge "2,2" "3,3" y))'),
    Axiom("average without padding as conv", f"({CONV} g x (pool_kernel q))", f'(avgpool {SAME} "False" x)',
          ("g = size (pool_kernel q) 0",)),
    Axiom("average without padding of identity", f'(avgpool {SAME} "False" (identity_kernel q))', "(pool_kernel q)",
          ("n = size (identity_kernel q) 1", f"n = {ONE}")),
    Axiom("activation of a sum", "(unary f (add x y))", "(add (unary f x) (unary f y))"),
    Axiom("activation of a multiple", "(unary f (scale x w))", "(scale (unary f x) w)"),
    Axiom("sigmoid of an enlarged kernel", '(enlarge "1,3" "3,3" (unary "sigmoid" x))',
          '(unary "sigmoid" (enlarge "1,3" "3,3" x))'),
    Axiom("transpose without exchange", '(transpose "1,0" (matmul x y))',
          '(matmul (transpose "1,0" x) (transpose "1,0" y))'),
    Axiom("transpose rows stay rows", '(transpose "1,0" (concat 0 p x y))',
          '(concat 0 p (transpose "1,0" x) (transpose "1,0" y))'),
    Axiom("matmul commutes", "(matmul x y)", "(matmul y x)"),
    Axiom("scale both factors", "(scale (mul x y) w)", "(mul (scale x w) (scale y w))"),
    Axiom("maximum of a sum", f"(maxpool {SAME} (add x y))", f"(add (maxpool {SAME} x) (maxpool {SAME} y))"),
    Axiom("average of a product", f"(avgpool {SAME} c (mul x y))", f"(mul (avgpool {SAME} c x) (avgpool {SAME} c y))"),
    Axiom("parts exchanged", "(split 1 a p (concat a p x y))", "x"),
]
# fmt: on


@pytest.mark.parametrize("axiom", axioms(), ids=lambda axiom: axiom.name)
def test_axiom_holds(axiom: Axiom) -> None:
    result = validate(axiom, seed=1, trials=12_000, legal=20)
    assert result.failure is None and result.legal >= 20, result


@pytest.mark.parametrize("axiom", WRONG, ids=lambda axiom: axiom.name)
def test_wrong_axiom_is_caught(axiom: Axiom) -> None:
    result = validate(axiom, seed=1, trials=12_000, legal=400)
    assert result.failure is not None, result
    assert result.failure.shapes and result.failure.what


@pytest.mark.parametrize("axiom", axioms(), ids=lambda axiom: axiom.name)
def test_axiom_holds_for_all_small_combinations(axiom: Axiom) -> None:
    result = exhaust(axiom, Space((1, 2), (3,) if "conv k" in axiom.left else (1, 3)), seed=2)
    assert result.failure is None and result.combinations > 0, result


OVERLOOKED = [  # what random sizes do not meet, for they draw kernels that fit
    Axiom("identity kernel of repeated channels", f"({CONV} g x (identity_kernel q))", "x"),
    Axiom(
        "average of identity, any window",
        f'(avgpool {SAME} "True" (identity_kernel q))',
        "(pool_kernel q)",
        ("n = size (identity_kernel q) 1", f"n = {ONE}"),
    ),
]


@pytest.mark.parametrize("axiom", [*WRONG, *OVERLOOKED], ids=lambda axiom: axiom.name)
def test_wrong_axiom_is_caught_by_small_combinations(axiom: Axiom) -> None:
    """An even kernel under ``enlarge`` has no combination in which it fits: the side that fits shows it."""
    sizes = Space((1, 2, 3) if "unary" in axiom.left else (1, 2))
    result = exhaust(axiom, sizes)
    assert result.failure is not None and result.failure.shapes and result.failure.what, result


BRUTE = [
    ("19 sum of products", {"x": 2, "y": 2, "z": 2, "w": 2}, [{}]),
    ("10 scale concat", {"x": 2, "y": 2, "w": 0}, [{"a": 0}, {"a": 1}]),
]


@pytest.mark.parametrize(("name", "variables", "parameters"), BRUTE, ids=[name_of[0] for name_of in BRUTE])
def test_combinations_are_those_of_brute_force(name: str, variables: dict[str, int], parameters: Any) -> None:
    """Every shape of every variable, one by one, by the evaluator of single choices (rank 2 only)."""
    (axiom,) = (name_of for name_of in axioms() if name in name_of.name)
    space, count = Space((1, 2, 3)), 0
    shapes = [list(itertools.product(space.sizes, repeat=rank)) for rank in variables.values()]
    for known, chosen in itertools.product(parameters, itertools.product(*shapes)):
        values = {name_of: np.ones((1, *shape)) for name_of, shape in zip(variables, chosen, strict=True)}
        fits = [compare(Sides(values, known, Prime(7)), *pair, axiom.where) for pair in directions(axiom)]
        count += any(name_of is not None for name_of in fits)
    legal = {name_of: len(table) for name_of, table in _legal_rows(axiom, space).items()}
    assert sum(legal.values()) == count > 50


def _legal_rows(axiom: Axiom, space: Space) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {}
    pattern = parse(axiom.left)
    for known in configurations(pattern, space, 2):
        tables = Legal(space, 2, known).tables(pattern)
        rows[str(known)] = [row for columns in tables.values() for row in zip(*columns.values(), strict=True)]
    return rows


def test_the_published_list_is_there() -> None:
    """44 axioms, less number 13 (a fused activation: an operator of its own here); split in parts where it says so."""
    numbers = {int(number[0]) for axiom in axioms() if (number := re.match(r"\d+", axiom.name))}
    assert numbers == set(range(44)) - {13}
    assert len({axiom.name for axiom in axioms()}) == len(axioms())


def test_one_is_packed_as_axioms_write_it() -> None:
    assert pack(1) == ONE
