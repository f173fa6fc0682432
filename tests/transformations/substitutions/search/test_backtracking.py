"""Moves, groups of moves and backtracking, on graphs small enough to know the answer."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import NetworkError
from deep500.networks import create
from deep500.transformations.substitutions.cost import Analytic
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.graph.sizes import symbol
from deep500.transformations.substitutions.graph.store import Store, StoredGraph
from deep500.transformations.substitutions.rules.matching import Matcher
from deep500.transformations.substitutions.rules.rule_file import PatternRule
from deep500.transformations.substitutions.search.backtracking import Backtracking
from deep500.transformations.substitutions.search.groups import groups
from deep500.transformations.substitutions.search.moves import AppliedRule, replay

SHARED = PatternRule(
    ("(matmul x y)", "(matmul x z)"),
    ("(split 0 1 p (matmul x (concat 1 p y z)))", "(split 1 1 p (matmul x (concat 1 p y z)))"),
    ("p = size y 1",),
)
FACTOR = PatternRule(("(add (matmul x z) (matmul y z))",), ("(matmul (add x y) z)",))
ACTIVE = PatternRule(
    ("(unary f (split 0 a p x))", "(unary f (split 1 a p x))"),
    ("(split 0 a p (unary f x))", "(split 1 a p (unary f x))"),
)


def products(count: int) -> StoredGraph:
    """Several products of one input, each with its own activation."""
    store, generator = Store(), np.random.default_rng(0)
    x = store.input("x", (1, 8), "float32")
    outputs = []
    for n in range(count):
        w = store.constant(generator.standard_normal((8, 8)).astype("float32"))
        outputs += store.add(("relu", "tanh")[n % 2], store.add("matmul", x, w)[0])
    return StoredGraph(store, tuple(outputs))


def sum_of_products() -> StoredGraph:
    """Two products of one matrix, added."""
    store = Store()
    x, y = (store.input(name, (2, 3), "float32") for name in "xy")
    w = store.input("w", (3, 3), "float32")
    return StoredGraph(store, store.add("add", store.add("matmul", x, w)[0], store.add("matmul", y, w)[0]))


def kinds(graph: StoredGraph) -> list[str]:
    return sorted(graph.store.nodes[n].op for n in graph.nodes() if not graph.store.nodes[n].constant)


class ByKind:
    """Prices that a test can do in its head: each splits costs 3, each other operator 1."""

    def __init__(self, **prices: float) -> None:
        self.prices = {"split": 3.0, "input": 0.0, **prices}

    def total(self, graph: StoredGraph) -> float:
        return sum(self.prices.get(kind, 1.0) for kind in kinds(graph))

    def unit(self, graph: StoredGraph, unit: object) -> float:
        return self.prices.get(unit.kind, 1.0)  # type: ignore[attr-defined]


# -- backtracking -----------------------------------------------------------------------------------------------------
def test_a_sum_of_products_is_factored() -> None:
    graph = sum_of_products()
    result = Backtracking(Matcher([FACTOR]), ByKind()).run(graph)
    assert kinds(result.best[0].graph) == ["add", "input", "input", "input", "matmul"]
    assert result.best[0].cost == 2.0 and result.first.cost == 3.0 and not result.timed_out
    assert [step.rule for step in result.best[0].history] == [Matcher([FACTOR]).directed[0].name]


def test_merging_all_pays_where_merging_two_does_not() -> None:
    """A chain of splits is one operator: pairs cost a split each and lose, eight products become one and win."""

    class Chained(ByKind):
        def total(self, graph: StoredGraph) -> float:
            count = kinds(graph).count("split")
            return super().total(graph) - 3.0 * max(0, count - 1)

    pairs = Chained()
    graph = products(2)
    assert Backtracking(Matcher([SHARED]), pairs).run(graph).best[0].cost == pairs.total(graph)
    graph = products(8)
    result = Backtracking(Matcher([SHARED]), pairs, alpha=1.0).run(graph)
    assert kinds(result.best[0].graph).count("matmul") == 1
    assert result.best[0].cost == 8 + 1 + 3 < pairs.total(graph)


def test_like_is_merged_with_like_so_that_readers_merge_too() -> None:
    result = Backtracking(Matcher([SHARED, ACTIVE]), ByKind(split=0.1)).run(products(8))
    best = kinds(result.best[0].graph)
    assert (best.count("matmul"), best.count("relu"), best.count("tanh")) == (1, 1, 1)


def test_a_history_replays_in_another_store() -> None:
    matcher = Matcher([SHARED, ACTIVE])
    result = Backtracking(matcher, ByKind(split=0.1)).run(products(6))
    history = result.best[0].history
    again = replay(products(6), history, matcher)
    digests = [[graph.store.digests[value.node] for value in graph.outputs] for graph in (again, result.best[0].graph)]
    assert digests[0] == digests[1] and len(history) >= 5
    with pytest.raises(NetworkError, match="step 0 of 1"):
        replay(products(6), [AppliedRule(history[0].rule, ("nowhere",))], matcher)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_history_replays_whatever_numbers_the_operands_have(swapped: bool) -> None:
    """The two products of a sum look alike; which is the first must not depend on which was made first."""

    def graph(turned: bool) -> StoredGraph:
        store = Store()
        x, y, w = (store.input(name, (3, 3), "float32") for name in "xyw")
        made = {n: store.add("matmul", (x, y)[n], w)[0] for n in ((1, 0) if turned else (0, 1))}
        return StoredGraph(store, store.add("relu", store.add("add", made[0], made[1])[0]))

    matcher = Matcher([FACTOR])
    result = Backtracking(matcher, ByKind()).run(graph(False)).best[0]
    assert len(result.history) == 1
    again = replay(graph(swapped), result.history, matcher)
    digests = [made.store.digests[made.outputs[0].node] for made in (again, result.graph)]
    assert digests[0] == digests[1]


def test_no_time_gives_the_first_state() -> None:
    graph = products(8)
    result = Backtracking(Matcher([SHARED]), ByKind(split=0.1), budget=0.0).run(graph)
    assert result.timed_out and result.best[0].graph.outputs == graph.outputs


def test_symbolic_sizes_are_never_cut() -> None:
    """Rows may be merged where their number is fixed, and not where a number only stands for it."""
    rows = PatternRule(
        ("(matmul x z)", "(matmul y z)"),
        ("(split 0 0 p (matmul (concat 0 p x y) z))", "(split 1 0 p (matmul (concat 0 p x y) z))"),
        ("p = size x 0",),
    )
    cheap, counts = ByKind(split=0.1, concat=0.1), list[int]()
    for size in (7, symbol("N", 7)):
        store = Store()
        x, y = (store.input(name, (size, 3), "float32") for name in "xy")
        w = store.input("w", (3, 3), "float32")
        graph = StoredGraph(store, (*store.add("matmul", x, w), *store.add("matmul", y, w)))
        counts.append(kinds(Backtracking(Matcher([rows]), cheap).run(graph).best[0].graph).count("matmul"))
    assert counts == [1, 2]


def test_products_that_stay_apart_are_named_with_their_price() -> None:
    """Queries, keys and values: one product and a split where that costs more, and nothing is said where it is made."""
    for price, texts in ((9.0, ["3 products of one value: merged, all costs 2.333 times as much or more"]), (0.1, [])):
        result = Backtracking(Matcher([SHARED]), ByKind(split=price)).run(products(3))
        assert list(dict.fromkeys(result.refused)) == texts, result.refused


def test_two_runs_find_the_same() -> None:
    result = [Backtracking(Matcher([SHARED, FACTOR, ACTIVE]), Analytic("pytorch")).run(products(7)) for _ in range(2)]
    assert result[0].best[0].history == result[1].best[0].history and result[0].priced == result[1].priced > 0


def test_groups_share_a_value() -> None:
    graph = products(4)
    result = groups(list(Matcher([SHARED]).matches(graph)))
    assert {graph.store.node(group.value).op for group in result} >= {"input"}
    for group, members in result.items():
        assert len(members) > 1 and all(group.holds(match) for match in members)


def test_whole_networks_can_be_searched_by_formula() -> None:
    imported = import_network(create("nasrnn", hidden=8))
    result = Backtracking(Matcher([SHARED]), Analytic("reference"), budget=60.0).run(imported.graph)
    assert result.best[0].cost < 0.95 * result.first.cost
