"""Matching pattern rules on graphs: what is found, what is refused, and that every application keeps the values."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from deep500.transformations.substitutions.graph.store import CycleError, Store, StoredGraph, StoreValue
from deep500.transformations.substitutions.operators.specification import ShapeMismatch
from deep500.transformations.substitutions.rules.matching import Match, Matcher, is_constant
from deep500.transformations.substitutions.rules.rule_file import PatternRule, read
from tests.transformations.substitutions.planting import Planter

GRAPHS = 1000
WINDOW = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
SHARED = PatternRule(
    ("(split 0 1 p1 (matmul x1 (concat 1 p1 x2 x3)))", "(split 1 1 p1 (matmul x1 (concat 1 p1 x2 x3)))"),
    ("(matmul x1 x2)", "(matmul x1 x3)"),
)
ROWS = PatternRule(
    ("(split 0 0 p1 (matmul (concat 0 p1 x1 x2) x3))", "(split 1 0 p1 (matmul (concat 0 p1 x1 x2) x3))"),
    ("(matmul x1 x3)", "(matmul x2 x3)"),
)
MERGE = PatternRule(
    ("(conv k1 s1 d1 e1 g1 x1 x2)",), ("(conv k1 s1 d1 e1 g2 x1 (merge_groups g1 u1 x2))",), ("g1 = (* g2 u1)",)
)
REPEATED = PatternRule(("(add (matmul x1 x2) (matmul x3 x2))",), ("(matmul (add x1 x3) x2)",))
IDENTITY = PatternRule(
    ('(conv "3,3" "1,1" "1,1,1,1" "1,1" g1 x1 (add (identity_kernel q1) x2))',),
    ('(add (conv "3,3" "1,1" "1,1,1,1" "1,1" g1 x1 x2) x1)',),
    ("p1 = size x1 1", "p1 = size (identity_kernel q1) 0"),
)


def _weights(store: Store, count: int, shape: tuple[int, ...] = (4, 4), dtype: str = "float32") -> list[StoreValue]:
    random = np.random.default_rng(0)
    return [store.constant(random.normal(size=shape).astype(dtype)) for _ in range(count)]


def _found(rule: PatternRule, graph: StoredGraph) -> list[Match]:
    return list(Matcher([rule]).matches(graph))


@pytest.mark.slow
def test_random_graphs_keep_their_values_under_every_rule() -> None:
    """1,000 graphs in which rules' sides are planted; both sides of all matches of all rules, in float64."""
    rules = read()
    matcher, applied, wrong = Matcher(rules), Counter[str](), []
    for seed in range(GRAPHS):
        planter = Planter(seed)
        for n in range(3):
            planter.plant(matcher.directed[(3 * seed + n) % len(matcher.directed)])
        planter.noise(4)
        for match in list(matcher.matches(planter.graph())):
            try:
                pairs = match.build()
            except ShapeMismatch:
                continue
            for old, new in pairs.items():
                before, after = planter.value(old), planter.value(new)
                scale = max(1.0, float(np.abs(before).max()))
                if before.shape != after.shape or np.abs(before - after).max() > 1e-10 * scale:
                    wrong.append((seed, str(match.directed.rule)))
            applied[match.directed.rule.id] += any(old != new for old, new in pairs.items())
    used = sum(1 for rule in rules if applied[rule.id])
    print(f"{sum(applied.values())} applications of {used} of {len(rules)} rules on {GRAPHS} graphs")
    assert not wrong
    assert used > 0.9 * len(rules)


def test_a_wrong_rule_would_be_noticed() -> None:
    wrong = Matcher([PatternRule(("(matmul x1 (add x2 x3))",), ("(add (matmul x1 x2) x3)",))])
    differs = 0
    for seed in range(40):
        planter = Planter(seed)
        if planter.plant(wrong.directed[0]):
            for match in list(wrong.matches(planter.graph())):
                try:
                    ((old, new),) = match.build().items()
                except ShapeMismatch:
                    continue
                differs += not np.allclose(planter.value(old), planter.value(new))
    assert differs > 0


def test_products_that_share_an_input_are_joined_once_per_pair() -> None:
    store = Store()
    x, other = store.input("x", (2, 4), "float32"), store.input("y", (2, 4), "float32")
    products = [store.add("matmul", x, w)[0] for w in _weights(store, 3)]
    alone = store.add("matmul", other, _weights(store, 1)[0])[0]
    matches = _found(SHARED, StoredGraph(store, (*products, alone)))
    assert {match.sites for match in matches} == {(a, b) for a in products for b in products if a < b}
    first, second = matches[0].build().values()
    assert first.node == second.node and store.node(first).op == "split" and store.shape(first) == (2, 4)
    assert [match.bound[0] for match in matches] == [x] * 3


def test_a_merge_that_would_be_a_cycle_is_refused() -> None:
    store = Store()
    x, (w,) = store.input("x", (4, 4), "float32"), _weights(store, 1)
    first = store.add("matmul", x, w)[0]
    second = store.add("matmul", store.add("relu", first)[0], w)[0]
    graph = StoredGraph(store, (second,))
    (match,) = _found(ROWS, graph)
    with pytest.raises(CycleError):
        graph.replace(match.build())


def test_all_factors_of_the_groups_are_tried_and_named() -> None:
    store = Store()
    x, (w,) = store.input("x", (1, 12, 5, 5), "float32"), _weights(store, 1, (12, 1, 3, 3))
    graph = StoredGraph(store, store.add("conv", x, w, **WINDOW, groups=12))
    matches = _found(MERGE, graph)
    assert [match.bindings["u1"] for match in matches] == [2, 3, 4, 6, 12]
    assert len({match.rule for match in matches}) == 5
    for match in matches:
        (again,) = Matcher([MERGE]).matches(graph, only=match.rule)
        assert again.build() == match.build()
        (new,) = match.build().values()
        assert store.node(new).parameter("groups") == 12 // match.bindings["u1"]


def test_sums_match_in_both_orders_and_repeated_names_are_one_value() -> None:
    store = Store()
    x, y = store.input("x", (4, 4), "float32"), store.input("y", (4, 4), "float32")
    w, v = _weights(store, 2)
    same = store.add("add", store.add("matmul", x, w)[0], store.add("matmul", y, w)[0])[0]
    differs = store.add("add", store.add("matmul", x, w)[0], store.add("matmul", y, v)[0])[0]
    assert {match.sites for match in _found(REPEATED, StoredGraph(store, (same, differs)))} == {(same,)}
    mixed = PatternRule(("(add (matmul x1 x2) x3)",), ("(add x3 (matmul x1 x2))",))
    for order in ((x, store.add("matmul", x, w)[0]), (store.add("matmul", y, v)[0], y)):
        assert _found(mixed, StoredGraph(store, store.add("add", *order)))


def test_constants_are_recognised_by_value_and_made_with_their_siblings_shape() -> None:
    store = Store()
    x, (w,) = store.input("x", (1, 3, 5, 5), "float32"), _weights(store, 1, (3, 3, 3, 3))
    out = store.add("add", x, store.add("conv", x, w, **WINDOW, groups=1)[0])[0]
    (match,) = _found(IDENTITY, StoredGraph(store, (out,)))
    (new,) = match.build().values()
    kernel = store.node(new).inputs[1]
    made = [store.nodes[number] for number in store.reachable([kernel]) if store.nodes[number].op == "identity_kernel"]
    assert [node.shapes[0] for node in made] == [(3, 3, 3, 3)] and made[0].dtypes == ("float32",)
    rule = PatternRule(("(matmul x1 (identity q1))",), ("x1",))
    eye, near = store.constant(np.eye(5, dtype="float32")), store.constant(1.001 * np.eye(5, dtype="float32"))
    m = store.input("m", (2, 5), "float32")
    assert _found(rule, StoredGraph(store, store.add("matmul", m, eye)))
    assert not _found(rule, StoredGraph(store, store.add("matmul", m, near)))


@pytest.mark.parametrize(
    ("op", "array", "is_it"),
    [
        ("ones", np.ones((2, 3)), True),
        ("ones", np.ones((2, 3), "int64"), False),
        ("identity", np.eye(3), True),
        ("identity", np.eye(3)[:2], False),
        ("pool_kernel", np.full((4, 1, 3, 3), 1 / 9), True),
        ("pool_kernel", np.full((4, 1, 3, 3), 1 / 9, "float32"), False),  # 3e-9 from a ninth: no check would pass
        ("pool_kernel", np.full((4, 1, 1, 4), 1 / 4, "float16"), True),
        ("pool_kernel", np.full((4, 1, 3, 3), 0.11, "float32"), False),
        ("identity_kernel", np.zeros((2, 2, 3, 3)), False),
    ],
)
def test_constant_by_value(op: str, array: np.ndarray, is_it: bool) -> None:  # type: ignore[type-arg]
    assert is_constant(op, array) is is_it


def test_stacks_of_matrices_and_integers_match_nothing() -> None:
    """An axis in a pattern is one of a matrix: in a stack of them it would be another."""
    store = Store()
    x, w = store.input("x", (3, 3, 3), "float32"), store.input("w", (3, 3, 3), "float32")
    gain = PatternRule(("(matmul (gain 1 x1 x2) x3)",), ("(matmul x1 (gain 0 x3 x2))",))
    vector = store.input("v", (3,), "float32")
    product = store.add("matmul", store.add("gain", x, vector, axis=1)[0], w)
    assert not _found(gain, StoredGraph(store, product))
    m, n = (store.input(name, (2, 2), "int64") for name in "mn")
    both = PatternRule(("(add (add x1 x2) x3)",), ("(add (add x1 x3) x2)",))
    assert not _found(both, StoredGraph(store, store.add("add", store.add("add", m, n)[0], m)))


def test_what_does_not_fit_here_raises() -> None:
    """The conditions hold, but the vectors to concatenate belong to other axes: nothing is made."""
    rule = PatternRule(("(add x1 (unary f1 x2))",), ("(add x1 (transpose t1 (unary f1 (transpose t1 x2))))",))
    assert Matcher([rule]).directed == [way for way in Matcher([rule]).directed if way.reverse]
    store = Store()
    x = store.input("x", (2, 6), "float32")
    parts = store.add("split", x, axis=1, cut=2)
    pairs = PatternRule(("(concat 1 p1 (unary f1 x1) (unary f1 x2))",), ("(unary f1 (concat 0 p1 x1 x2))",))
    whole = store.add("concat", *(store.add("tanh", part)[0] for part in parts), axis=1)
    (match,) = _found(pairs, StoredGraph(store, whole))
    with pytest.raises(ShapeMismatch):
        match.build()
