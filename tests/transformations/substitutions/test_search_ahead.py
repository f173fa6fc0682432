"""What takes more than one move: merging many, both orders of a concatenation, hills, forms of a network."""

from __future__ import annotations

import numpy as np
import pytest

import deep500 as d5
from deep500.networks import Network, create
from deep500.transformations.substitutions.cost import Analytic
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.graph.store import Store, StoredGraph
from deep500.transformations.substitutions.rules.matching import Matcher
from deep500.transformations.substitutions.rules.rule_file import PatternRule, read
from deep500.transformations.substitutions.search import backtracking
from deep500.transformations.substitutions.search.backtracking import Backtracking, SearchResult
from deep500.transformations.substitutions.search.moves import replay
from tests.transformations.substitutions.samples import assert_same

GATES = {"Relu": (0, 7), "Sigmoid": (1, 3, 4, 6), "Tanh": (2, 5)}
PAIRS = (("m0", "Add", "Relu t0", "Sigmoid t3"), ("m1", "Add", "Sigmoid t1", "Tanh t2"))
PAIRS += (("m2", "Mul", "Sigmoid t4", "Tanh t5"), ("m3", "Mul", "Sigmoid t6", "Relu t7"))
PAIRS += (
    ("m4", "Add", "Sigmoid m1", "Tanh m2"),
    ("m5", "Mul", "Tanh m0", "Tanh m3"),
    ("m6", "Mul", "Tanh m4", "Tanh m5"),
)


def merged_by_hand(source: Network, merge_activations: bool = False) -> Network:
    """The zoo's NasRNN with one product for the inputs of all steps, one for the state of each, gates side by side."""
    order = [gate for gates in GATES.values() for gate in gates]
    known = {name: parameter.value for name, parameter in source.parameters.items()}
    (x, described), (hidden, _) = next(iter(source.inputs.items())), known["cell.u0.weight"].shape
    _, steps, _ = described.shape
    network = Network("by hand")
    network.add_input(x, described.shape, described.dtype)
    wide = {side: np.concatenate([known[f"cell.{side}{gate}.weight"] for gate in order], 1) for side in "wu"}
    first = np.float32(known["state.weight"].astype("float64") @ wide["u"].astype("float64"))
    for name, value in {**wide, "first": first[0], "fc.w": known["fc.weight"], "fc.b": known["fc.bias"]}.items():
        network.add_parameter(name, value)

    def cut(value: str, sizes: list[int], names: list[str], axis: int) -> None:
        network.add_parameter(f"{value}.sizes", np.array(sizes, np.int64), trainable=False)
        network.add_node("Split", [value, f"{value}.sizes"], names, axis=axis)

    for step in range(steps):
        network.add_parameter(f"index{step}", np.array(step, np.int64), trainable=False)
        network.add_node("Gather", [x, f"index{step}"], [f"x{step}"], axis=1)
    network.add_node("Concat", [f"x{step}" for step in range(steps)], ["rows"], axis=0)
    network.add_node("MatMul", ["rows", "w"], ["products"])
    cut("products", [1] * steps, [f"xw{step}" for step in range(steps)], 0)
    for step in range(steps):
        if step:
            network.add_node("MatMul", [f"h{step - 1}", "u"], [f"hu{step}"])
        network.add_node("Add", [f"xw{step}", f"hu{step}" if step else "first"], [f"t{step}"])
        names = {gate: f"t{gate}.{step}" for gate in order}
        if merge_activations:
            cut(f"t{step}", [hidden * len(gates) for gates in GATES.values()], [f"{f}.{step}" for f in GATES], 1)
            for function, gates in GATES.items():
                network.add_node(function, [f"{function}.{step}"], [f"{function}_{step}"])
                cut(f"{function}_{step}", [hidden] * len(gates), [f"{function} {names[gate]}" for gate in gates], 1)
        else:
            cut(f"t{step}", [hidden] * len(order), [names[gate] for gate in order], 1)
        for result, operation, *ends in PAIRS:
            for function, value in map(str.split, ends):
                if not network.has_value(f"{function} {value}.{step}"):
                    network.add_node(function, [f"{value}.{step}"], [f"{function} {value}.{step}"])
            network.add_node(operation, [f"{end}.{step}" for end in ends], [f"{result}.{step}"])
        network.add_node("Tanh", [f"m6.{step}"], [f"h{step}"])
    network.add_node("Gemm", [f"h{steps - 1}", "fc.w", "fc.b"], source.outputs, **dict(source.nodes[-1].attributes))
    for name in source.outputs:
        network.add_output(name)
    return network


def search(graph: StoredGraph, rules: list[PatternRule] | None = None, budget: float = 600.0) -> SearchResult:
    return Backtracking(Matcher(rules or read(), 1), Analytic("pytorch"), budget).run(graph)


def count(graph: StoredGraph, op: str) -> int:
    nodes = (graph.store.nodes[number] for number in graph.nodes())
    return sum(node.op == op and not node.constant for node in nodes)


@pytest.mark.parametrize("merged", [False, True])
def test_the_hand_merged_form_computes_what_the_network_does(merged: bool) -> None:
    network = create("nasrnn", batch=1, shape=(2, 8), classes=5)
    assert_same(network, merged_by_hand(network, merged), 1e-5)


@pytest.mark.parametrize(("steps", "hidden"), [(2, 16), (5, 64)])
@pytest.mark.slow
def test_nasrnn_is_merged_as_far_as_by_hand(steps: int, hidden: int) -> None:
    """One product a step and one for all inputs, activations of gates merged where two or more are alike."""
    network = create("nasrnn", batch=1, shape=(steps, hidden), classes=10)
    result, price = search(import_network(network).graph), Analytic("pytorch")
    by_hand = [price.total(import_network(merged_by_hand(network, merged)).graph) for merged in (False, True)]
    assert by_hand[1] < by_hand[0] < result.first.cost
    assert result.best[0].cost <= 1.0001 * by_hand[1]
    assert count(result.best[0].graph, "matmul") <= steps + 1, "one for all inputs, one a step, the classifier"


def sums(gates: int, width: int = 16, biases: bool = False) -> StoredGraph:
    """Gates x W + h U (+ b), whose operands lie in any order."""
    store, generator = Store(), np.random.default_rng(0)
    x, h = (store.input(name, (1, width), "float32") for name in "xh")
    outputs = []
    for _ in range(gates):
        w, u = (store.constant(generator.standard_normal((width, width)).astype("float32")) for _ in "wu")
        (gate,) = store.add("add", store.add("matmul", x, w)[0], store.add("matmul", h, u)[0])
        if biases:
            (gate,) = store.add("bias", gate, store.constant(generator.standard_normal(width, "float32")), axis=1)
        outputs += store.add("sigmoid", gate)
    return StoredGraph(store, tuple(outputs))


SUM = PatternRule(
    ("(add (matmul x y) (matmul z w))",), ("(matmul (concat 1 p x z) (concat 0 p y w))",), ("p = size x 1",)
)
COLUMNS = PatternRule(
    ("(matmul x y)", "(matmul x z)"),
    ("(split 0 1 p (matmul x (concat 1 p y z)))", "(split 1 1 p (matmul x (concat 1 p y z)))"),
    ("p = size y 1",),
)


def test_sums_are_concatenated_in_one_order_so_that_their_products_merge() -> None:
    summed, merged = (search(sums(8), rules).best[0].graph for rules in ([SUM], [SUM, COLUMNS]))
    assert (count(summed, "matmul"), count(summed, "concat")) == (8, 1), "x before h in each, or after it in each"
    assert (count(merged, "matmul"), count(merged, "concat")) == (1, 1)


@pytest.mark.parametrize("forms", [0, 4])
def test_biases_are_no_hill(forms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merging products leaves each bias an operator of its own; that they merge as well is seen by looking ahead."""
    monkeypatch.setattr(backtracking, "FORMS", forms)
    best = search(sums(6, biases=True)).best[0].graph
    assert (count(best, "matmul"), count(best, "bias"), count(best, "sigmoid")) in {(1, 1, 1), (2, 1, 1)}


def test_branches_of_repvgg_become_one_convolution() -> None:
    network = create("repvgg", batch=1, classes=5, shape=(3, 16, 16), blocks=(2,), widths=(8,))
    found = d5.optimize_network(network, measure=False, budget=600.0)
    kinds = [node.op_type for node in found.network.nodes]
    blocks = sum(node.op_type == "Relu" for node in network.nodes)
    assert kinds == [*["Conv", "Relu"] * blocks, "GlobalAveragePool", "Reshape", "Gemm"] or sorted(kinds) == sorted(
        [*["Conv", "Relu"] * blocks, "GlobalAveragePool", "Flatten", "Gemm"]
    )
    assert found.equivalence is not None and found.equivalence.outputs is not None
    assert found.equivalence.outputs <= 1e-10


@pytest.mark.parametrize(
    ("name", "options"), [("nasrnn", dict(shape=(2, 8))), ("mlp", dict(shape=(12,))), ("lenet", {})]
)
def test_nothing_is_worse_and_the_same_is_found_again(name: str, options: dict[str, object]) -> None:
    network = create(name, batch=1, classes=4, **options)
    results = []
    for _ in range(2):
        imported = import_network(network)
        results.append(search(imported.graph))
        assert results[-1].best[0].cost <= results[-1].first.cost and not results[-1].timed_out
        again = replay(import_network(network).graph, results[-1].best[0].history, Matcher(read(), 1))
        assert Analytic("pytorch").total(again) == results[-1].best[0].cost
    assert [state.history for state in results[0].best] == [state.history for state in results[1].best]
    assert results[0].priced == results[1].priced
