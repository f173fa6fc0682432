"""Neighbourhoods in one move: what becomes of them, that it is the same, and what stops it."""

from __future__ import annotations

import numpy as np
import pytest

import deep500 as d5
from deep500.networks import Network, create
from deep500.transformations.substitutions.cost import Analytic
from deep500.transformations.substitutions.equivalence import check_equivalent
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.graph.writing import export_network
from deep500.transformations.substitutions.rules.matching import Matcher
from deep500.transformations.substitutions.rules.rule_file import read
from deep500.transformations.substitutions.rules.rule_text import from_text
from deep500.transformations.substitutions.search.backtracking import Backtracking
from deep500.transformations.substitutions.search.moves import replay
from deep500.transformations.substitutions.search.normal_forms import ENLARGE, FOLD, MERGE, REORDER, NormalForms
from tests.transformations.substitutions.samples import acnet, assert_same, mixture, optimized, saved

RULES = read()


def normalized(network: Network) -> list[str]:
    """Operators of the network with all its neighbourhoods in normal form, which is held against it in float64."""
    imported = import_network(network)
    forms, graph, steps = NormalForms(RULES), imported.graph, []
    for root in forms.roots(graph):
        way = list(forms.normalize(graph, root))
        graph, steps = (way[-1][0] if way else graph), [*steps, *(step for _, step in way)]
    written = export_network(imported, graph)
    assert check_equivalent(imported, graph, written, 0).outputs < 1e-10
    again = import_network(network)
    assert saved(export_network(again, replay(again.graph, steps, Matcher(RULES, 1)))) == saved(written)
    return [node.op_type for node in written.nodes]


def test_every_rule_is_one_that_is_shipped() -> None:
    shipped = {rule.id for rule in RULES}
    assert [text for text in (*FOLD, *ENLARGE, *MERGE, *REORDER) if from_text(text).rule.id not in shipped] == []


@pytest.mark.parametrize(
    "options", [{}, {"identity": True}, {"norm": False, "bias": True}, {"bias": True, "smaller": (0,)}, {"batch": "N"}]
)
def test_a_block_of_convolutions_is_one(options: dict[str, object]) -> None:
    assert normalized(acnet(2, 4, 6, **options)) == ["Conv", "Relu"] * 2  # type: ignore[arg-type]


def random_block(seed: int) -> tuple[Network, bool]:
    """Branches of one image in a random sum, and whether one convolution can do it."""
    chance, network = np.random.default_rng(seed), Network("block")
    network.add_input("x", ("N", 4, 5, 5))
    groups = int(chance.choice([1, 1, 2]))
    terms, foreign = ["start"], bool(chance.integers(2))
    network.add_parameter("start.w", chance.normal(size=(4, 4 // groups, 3, 3)).astype("float32"))
    network.add_node("Conv", ["x", "start.w"], ["start"], pads=[1, 1, 1, 1], group=groups)
    for n in range(int(chance.integers(1, 5))):
        name, (high, wide) = f"t{n}", chance.choice([[1, 1], [1, 3], [3, 1], [3, 3]])
        network.add_parameter(f"{name}.w", chance.normal(size=(4, 4 // groups, high, wide)).astype("float32"))
        pads = [int(high) // 2, int(wide) // 2]
        network.add_node("Conv", ["x", f"{name}.w"], [f"{name}.c"], pads=pads + pads, group=groups)
        kind = chance.choice(["plain", "gain", "bias", "scale"])
        if kind == "plain":
            network.add_node("Identity", [f"{name}.c"], [name])
        else:
            shape = () if kind == "scale" else (4, 1, 1)
            network.add_parameter(f"{name}.v", chance.normal(size=shape).astype("float32"))
            network.add_node("Add" if kind == "bias" else "Mul", [f"{name}.c", f"{name}.v"], [name])
        terms.append(name)
    if foreign:
        network.add_node("Tanh", ["x"], ["foreign"])
        terms.append("foreign")
    order = [terms[int(n)] for n in chance.permutation(len(terms))]
    total = order[0]
    for n, term in enumerate(order[1:]):
        total, before = f"s{n}", total
        network.add_node("Add", [before, term], [total])
    network.add_node("Relu", [total], ["y"])
    network.add_output("y")
    return network, not foreign


def test_random_sums_of_branches_have_one_convolution() -> None:
    for seed in range(8):
        network, alone = random_block(seed)
        kinds = normalized(network)
        assert sorted(kinds) == (["Conv", "Relu"] if alone else ["Add", "Conv", "Relu", "Tanh"]), seed


def test_a_mixture_without_biases_has_two_products_and_its_gates() -> None:
    kinds = [node.op_type for node in optimized(mixture(4, 8, 8, bias=False), backend="pytorch").network.nodes]
    assert kinds.count("MatMul") + kinds.count("Gemm") <= 3 and "Reshape" not in kinds
    assert kinds.count("Mul") == 4, "a column broadcasts as it is"


def test_what_is_read_elsewhere_stays() -> None:
    """The sum of the first two branches is an output too: it is one convolution, and the others are another."""
    network = acnet(1, 4, 6, norm=False)
    network.add_output("b0.sum0")
    kinds = normalized(network)
    assert kinds.count("Relu") == 1 and 2 <= kinds.count("Conv") <= 3 and kinds.count("Add") == kinds.count("Conv") - 1


def test_branches_that_share_weights_and_defaults_that_callers_may_replace() -> None:
    network = Network("shared")
    network.add_input("x", (1, 2, 4, 4))
    network.add_parameter("w", np.ones((2, 2, 3, 3), "float32"))
    for name in "ab":
        network.add_node("Conv", ["x", "w"], [name], pads=[1, 1, 1, 1])
    network.add_node("Add", ["a", "b"], ["s"])
    network.add_node("Relu", ["s"], ["y"])
    network.add_output("y")
    result = optimized(network)
    assert [node.op_type for node in result.network.nodes].count("Conv") == 1
    assert_same(network, result.network, 1e-5)


def test_a_form_that_costs_more_is_refused_and_says_so() -> None:
    """A row and a column are six weights; as one kernel they would be nine."""
    network = acnet(1, 64, 56, ((1, 3), (3, 1)), norm=False)
    search = Backtracking(Matcher(RULES, 1), Analytic("onnxruntime"), 60.0)
    result = search.run(import_network(network).graph)
    assert result.refused and "times as much" in result.refused[0]
    assert result.best[0].cost <= result.first.cost


def test_neighbourhoods_that_others_take_in_are_left_out() -> None:
    """In NASNet's cells a sum ends two of them, so that one is gone when its turn comes."""
    network = create("nasnet_a", 1, shape=(3, 32, 32), cells=1, groups=1, filters=4, stem=4, last_reduction=False)
    imported = import_network(network)
    forms, graph, gone = NormalForms(RULES), imported.graph, 0
    for root in forms.roots(graph):
        way = list(forms.normalize(graph, root))
        gone += root not in graph.users()
        assert way == [] or root in graph.users()
        graph = way[-1][0] if way else graph
    assert gone > 0


def test_what_no_rule_joins_is_said() -> None:
    result = optimized(acnet(1, 4, 9, ((5, 5), (3, 3)), norm=False))
    assert "not merged: convolutions of one image, kernels [(5, 5), (3, 3)]: no rule joins them" in str(result)


def test_the_optimizer_finds_whole_forms_and_replays_them() -> None:
    network = acnet(2, 8, 6, batch="N")
    result = optimized(network, backend="onnxruntime")
    assert [node.op_type for node in result.network.nodes] == ["Conv", "Relu"] * 2
    assert saved(d5.replay_history(network, result.history)) == saved(result.network)
    network = acnet(1, 2, 4)
    trained = optimized(network, backend="onnxruntime", training=True)
    assert set(trained.network.trainable()) == set(network.trainable())
