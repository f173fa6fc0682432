"""Enumeration, pruning, and the rules' files; what egglog proves is in test_proofs.py."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from deep500.errors import DataError
from deep500.transformations.substitutions.operators.arithmetic import Real
from deep500.transformations.substitutions.proofs.prime_fields import PRIMES, Prime
from deep500.transformations.workshop.substitutions import rules as rules_module
from deep500.transformations.workshop.substitutions.candidates import Candidates
from deep500.transformations.workshop.substitutions.enumerate import Enumeration
from deep500.transformations.workshop.substitutions.instances import general
from deep500.transformations.workshop.substitutions.menu import conv_parameters
from deep500.transformations.workshop.substitutions.refute import counterexample, instantiate
from deep500.transformations.workshop.substitutions.rules import (
    GeneratedRule,
    canonical,
    from_line,
    read,
    to_line,
    write,
    write_times,
)
from deep500.transformations.workshop.substitutions.terms import (
    KINDS,
    SYMBOLS,
    Sizes,
    Variable,
    evaluate,
    kind_type,
    make,
    subterms,
    variables,
)

X, Y, W, V = Variable("x", 1), Variable("x", 2), Variable("w", 1), Variable("w", 2)
SMALL = {"x": 2, "w": 2, "i": 2, "a": 2, "s": 1}


@pytest.fixture(scope="module")
def small() -> Candidates:
    return Candidates(Enumeration(2, 0, SMALL))


def _rule(left: object, right: object) -> GeneratedRule:
    return GeneratedRule((left,), (right,))  # type: ignore[arg-type]


def test_two_operators_give_the_known_laws(small: Candidates) -> None:
    rules = {rule.id for rule in small.rules}
    square = make("matmul", make("matmul", X, W), V), make("matmul", X, make("matmul", W, V))
    twice = make("transpose", make("transpose", W, perm=(1, 0)), perm=(1, 0)), W
    i, j = Variable("a", 1), Variable("a", 2)
    part = make("split", make("concat", i, j, axis=0), output=1, axis=0, cut=Sizes(SYMBOLS["c"])), j
    for left, right in (square, twice, part):
        assert _rule(left, right).id in rules


def test_what_does_not_hold_is_not_found(small: Candidates) -> None:
    """relu is opaque, matrix products do not commute, and the padding of a maximum is no zero."""
    terms = small.terms
    for group in terms.groups:
        shown = {str(terms.term(number)) for number in group}
        assert str(make("matmul", W, V)) not in shown
        assert str(make("relu", make("add", X, Y))) not in shown


def test_equal_terms_are_equal_in_real_numbers_of_other_sizes(small: Candidates) -> None:
    """Independent of the fingerprints: float64, the functions themselves, sizes that generation did not use."""
    symbols, generator = {"n": 4, "k": 2, "b": 2, "c": 4, "h": 2, "v": 6}, np.random.default_rng(1)
    assert len(small.rules) > 30
    for rule in small.rules:
        values = {}
        for term in variables(*rule.source, *rule.target):
            shape = tuple(symbols[size] if isinstance(size, str) else size for size in KINDS[term.kind])
            values[term] = generator.normal(size=(1, *shape))
        left, right = (
            evaluate(instantiate(side[0], symbols), values, Real(), 0) for side in (rule.source, rule.target)
        )
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12, err_msg=str(rule))


def test_counts_fall_from_stage_to_stage(small: Candidates) -> None:
    numbers = list(small.counts.values())
    assert numbers[0] == small.terms.tried and numbers[0] > numbers[1]
    assert numbers[2:] == sorted(numbers[2:], reverse=True) and numbers[-1] == len(small.rules)


def test_same_seed_same_terms_other_seed_same_rules(small: Candidates) -> None:
    again, other = Enumeration(2, 0, SMALL), Enumeration(2, 7, SMALL)
    np.testing.assert_array_equal(again.hashes, small.terms.hashes)
    assert not np.array_equal(other.hashes, small.terms.hashes)
    assert {rule.id for rule in Candidates(other).rules} == {rule.id for rule in small.rules}


def test_last_level_is_distinguished_in_every_world() -> None:
    """Levels below the last are compared in all worlds anyway: a deeper run must find the same pairs among them."""
    shallow, deep = Enumeration(1, 0, SMALL), Enumeration(2, 0, SMALL)
    pairs = {tuple(str(shallow.term(n)) for n in group) for group in shallow.groups}
    rules = {tuple(str(deep.term(n)) for n in group if n < len(shallow.call)) for group in deep.groups}
    assert pairs <= rules


def test_an_accident_of_one_environment_is_no_rule() -> None:
    """A convolution of two groups equals one of ungrouped kernels nowhere; sizes that agree once are not equal."""
    rules = Enumeration(2, 0, {"x": 1, "w": 1})
    for group in rules.groups:
        types = {tuple(shape for shape in kind_type("x"))} if 0 in group else set()
        assert len(types) <= 1
        assert not {0, 1} <= set(group)


def test_two_outputs_join_the_parts_of_a_split() -> None:
    rules = Candidates(Enumeration(3, 0, {"w": 3})).multiple
    merged = [rule for rule in rules if {term.op for term in rule.target} == {"matmul"}]  # type: ignore[union-attr]
    assert merged and all(len(rule.source) == 2 == len(rule.target) for rule in rules)
    whole = make("matmul", W, make("concat", V, Variable("w", 3), axis=1))
    parts = tuple(make("split", whole, output=n, axis=1, cut=Sizes(SYMBOLS["k"])) for n in (0, 1))
    wanted = GeneratedRule(parts, (make("matmul", W, V), make("matmul", W, Variable("w", 3))))
    assert wanted.id in {rule.id for rule in rules}


def test_id_is_the_same_under_renaming_and_exchange() -> None:
    first = _rule(make("add", X, make("relu", Y)), make("add", make("relu", Y), X))
    renamed = _rule(make("add", make("relu", X), Y), make("add", Y, make("relu", X)))
    assert first.id == renamed.id != _rule(make("mul", X, Y), make("mul", Y, X)).id
    assert canonical(canonical(first)) == canonical(first)


def test_an_instance_goes_and_the_general_rule_stays() -> None:
    c = Sizes(SYMBOLS["c"])
    images = [Variable("i", n) for n in (1, 2)]
    general_rule = _rule(make("mul", images[0], images[1]), make("mul", images[1], images[0]))
    same = _rule(make("mul", images[0], images[0]), make("mul", images[0], images[0]))
    matrices = _rule(make("mul", X, Y), make("mul", Y, X))
    assert general([same, matrices, general_rule]) == [matrices, general_rule]
    kernel, one_group = Variable("g", 1), Variable("a", 1)
    grouped = make("conv", images[0], kernel, **conv_parameters((3, 3), c))
    plain = make("conv", images[0], one_group, **conv_parameters((3, 3), 1))
    pair = [_rule(make("relu", term), term) for term in (grouped, plain)]
    assert general(pair) == pair  # one group is a condition of its own


def test_rules_of_one_skeleton_that_say_other_things_both_stay() -> None:
    left = make("add", X, make("relu", Y))
    pair = [_rule(left, X), _rule(left, Y)]
    assert general(pair) == pair


def test_square_operands_do_not_stand_for_all() -> None:
    """With square matrices first both cuts have one size; the rule with other matrices first says more."""
    pair = []
    for a, b, c, d in ((W, V, X, Y), (X, Y, W, V)):
        rows = make("concat", make("concat", a, b, axis=1), make("concat", c, d, axis=1), axis=0)
        columns = make("concat", make("concat", a, c, axis=0), make("concat", b, d, axis=0), axis=1)
        pair.append(_rule(rows, columns))
    assert general(pair) == pair[1:]


def test_sides_share_no_operator() -> None:
    """What is the same on both sides is a variable of a more general rule."""
    rules = Candidates(Enumeration(3, 0, {"w": 2})).rules
    assert len(rules) > 20
    for rule in rules:
        sides = (
            {term for term in subterms(side[0]) if getattr(term, "inputs", ())} for side in (rule.source, rule.target)
        )
        assert not set.intersection(*sides), rule


def test_rules_survive_their_file(tmp_path: Path, small: Candidates) -> None:
    decided = [dataclasses.replace(rule, verdict="proved", prover="egglog") for rule in small.rules[:5]]
    path = tmp_path / "rules.jsonl"
    write([*decided, *small.rules[5:9]], path)
    assert read(path) == decided
    assert read(path, proved_only=False) == [*decided, *small.rules[5:9]]


def test_a_file_is_the_same_bytes_whatever_the_proofs_took(tmp_path: Path, small: Candidates) -> None:
    files = []
    for seconds in (0.25, 1.5):
        rules = [dataclasses.replace(rule, seed=3, seconds=seconds) for rule in small.rules[:4]]
        write(rules, tmp_path / "rules.jsonl")
        write_times(rules, tmp_path / "times.json")
        files.append((tmp_path / "rules.jsonl").read_bytes())
        assert json.loads((tmp_path / "times.json").read_text()) == {rule.id: seconds for rule in rules}
    assert files[0] == files[1]
    assert [rule.seed for rule in read(tmp_path / "rules.jsonl", proved_only=False)] == [3] * 4


def _altered(rule: GeneratedRule, **changes: object) -> str:
    return json.dumps({**json.loads(to_line(rule)), **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"specification": "0" * 16}, "under other meanings"),
        ({"id": "0" * 16}, "the line was altered"),
        ({"verdict": "certainly"}, "the line was altered"),
        ({"source": None}, "expected a rule in JSON"),
    ],
)
def test_stale_altered_and_foreign_lines_are_refused(changes: dict[str, object], said: str) -> None:
    rule = _rule(make("add", X, Y), make("add", Y, X))
    assert from_line(to_line(rule)) == rule
    with pytest.raises(DataError, match=said):
        from_line(_altered(rule, **changes), "rules.jsonl:1")


def test_a_missing_or_foreign_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        read(tmp_path / "none.jsonl")
    (tmp_path / "foreign.jsonl").write_text("hello\n")
    with pytest.raises(DataError, match=r"foreign\.jsonl:1"):
        read(tmp_path / "foreign.jsonl")


def test_new_specifications_make_a_file_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write([_rule(make("add", X, Y), make("add", Y, X))], tmp_path / "rules.jsonl")
    monkeypatch.setattr(rules_module, "specification_hash", lambda: "f" * 16)
    with pytest.raises(DataError, match="generate and prove the rules anew"):
        read(tmp_path / "rules.jsonl")


def test_counterexample_names_where_it_fails() -> None:
    wrong = _rule(make("matmul", W, V), make("matmul", V, W))
    rules = counterexample(wrong)
    assert rules is not None and rules.index is not None and set(rules.shapes) == {"w1", "w2"}
    assert counterexample(_rule(make("add", W, V), make("add", V, W))) is None


def test_an_accident_of_kernel_sizes_is_refuted() -> None:
    """Grouped convolutions of equal sizes merge; sizes of which only the sum is equal do not."""
    n, k = Sizes(SYMBOLS["n"]), Sizes(SYMBOLS["k"])
    term = make("split", make("concat", X, W, axis=0), output=0, axis=0, cut=n)
    other = make("split", make("concat", W, X, axis=0), output=0, axis=0, cut=k)
    assert counterexample(_rule(term, X)) is None
    assert counterexample(_rule(other, X)) is not None


def test_reduction_is_exact_at_multiples_of_the_prime() -> None:
    """Next to k * prime the quotient may round up, which would leave -1 instead of prime - 1."""
    for prime in (5, 104729, *PRIMES):  # the reciprocals of the first two round up
        greatest = 2**53 // prime - 1
        multiples = np.random.default_rng(0).integers(greatest // 2, greatest, 20000)
        values = (multiples * prime)[:, None] + np.array([-1, 0, 1])
        rules = Prime(prime).multiply(values.astype(np.float64), np.ones(1))
        np.testing.assert_array_equal(rules, values % prime)
