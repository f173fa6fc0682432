"""Divided networks: what the checker passes computes the serial step; mutants are caught by checker, proof and run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deep500 as d5
from deep500.distributed import Threads
from deep500.distributed.collectives import communicating_by
from deep500.errors import Deep500Error, PlanError
from deep500.networks import Network, add_loss, create
from deep500.networks.node import Node
from deep500.transformations.parallel.checking import check_division
from deep500.transformations.parallel.costs import StepCosts
from deep500.transformations.parallel.dividing import Division, StepGraph, part
from deep500.transformations.parallel.joint import joint_network
from deep500.transformations.parallel.planning import Wishes, parallelize
from deep500.transformations.parallel.rules import SHARDING_RULES
from deep500.transformations.parallel.shardings import R, Sharding
from tests.transformations.parallel.side_by_side import SideBySide, layout_axioms, prove_division

pytestmark = pytest.mark.backend("reference")


def serial_step(
    batch: int = 6, weights: bool = False
) -> tuple[StepGraph, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A perceptron with a mean over a hidden layer, on two ranks; its inputs, and what it gives."""
    network = Network("perceptron")
    rng = np.random.default_rng(1)
    network.add_input("x", ("N", 5), "float64")
    network.add_input("label", ("N",), "int64")
    network.add_parameter("w1", rng.normal(size=(5, 6)))
    network.add_parameter("b1", rng.normal(size=6))
    network.add_parameter("w2", rng.normal(size=(6, 4)))
    network.add_parameter("b2", rng.normal(size=4))
    network.add_node("Gemm", ["x", "w1", "b1"], ["h"], "fc1")
    network.add_node("Tanh", ["h"], ["a"], "act")
    network.add_node("Gemm", ["a", "w2", "b2"], ["scores"], "fc2")
    network.add_node("SoftmaxCrossEntropyLoss", ["scores", "label"], ["loss"], "loss", ignore_index=3)
    network.add_node("ReduceMean", ["a"], ["mean"], "mean", keepdims=0)
    for name in ("loss", "mean"):
        network.add_output(name)
    feeds = {"x": rng.normal(size=(batch, 5)), "label": rng.integers(0, 4, batch)}
    joint = joint_network(network, {name: value.shape for name, value in feeds.items()})
    executor = d5.load_backend("reference").from_model(network)
    expected = dict(executor.inference_and_backprop(feeds))
    names = ["w1", "b1", "w2", "b2"]
    expected |= dict(
        zip([f"{n}.grad" for n in names], executor.network.fetch_tensors([f"{n}.grad" for n in names]), strict=True)
    )
    return StepGraph(joint, 2), feeds, {name: np.asarray(value) for name, value in expected.items()}


def run(division: Division, networks: list[Network], feeds: dict[str, np.ndarray]) -> list[dict[str, np.ndarray]]:
    """The outputs of every rank."""
    ranks = division.graph.ranks

    def work(comm: d5.Communicator) -> dict[str, np.ndarray]:
        mine = {n: np.ascontiguousarray(part(v, division.shardings[n], ranks, comm.rank)) for n, v in feeds.items()}
        with communicating_by(comm):
            executor = d5.load_backend("reference").from_model(networks[comm.rank])
            return {name: np.asarray(v) for name, v in executor.inference(mine).items()}

    return Threads(ranks, timeout=20).run(work)


def equal(division: Division, networks: list[Network], feeds: Any, expected: dict[str, np.ndarray]) -> bool:
    """Whether the ranks' outputs are their parts of the serial ones."""
    outcomes = run(division, networks, feeds)
    for rank, outcome in enumerate(outcomes):
        for name, value in outcome.items():
            want = part(expected[name], division.outputs[name], division.graph.ranks, rank)
            if value.shape != want.shape or not np.allclose(value, want, rtol=1e-12, atol=1e-13):
                return False
    return True


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_choice_of_strategies_is_right_or_refused_by_name(data: st.DataObject) -> None:
    """Not the planner's plans alone: strategies at random."""
    graph, feeds, expected = serial_step(data.draw(st.sampled_from([4, 5])))
    graph = StepGraph(graph.joint, data.draw(st.integers(2, 3)))
    sources = {n: data.draw(st.sampled_from(graph.source_shardings(n))) for n in graph.sources}
    strategies = {n.name: data.draw(st.sampled_from(graph.strategies[n.name])).name for n in graph.nodes}
    try:
        division = Division(graph, sources, strategies)
    except PlanError as error:
        assert "there is none: choose another strategy" in str(error)
        return
    networks = [division.network(rank) for rank in range(graph.ranks)]
    check_division(division, networks)
    assert equal(division, networks, feeds, expected)


def megatron() -> tuple[Division, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Columns, then rows; the mean by columns, with weights."""
    graph, feeds, expected = serial_step(5)
    sources = {"w1": "S1", "b1": "S0", "w2": "S0", "x": "R", "label": "S0"}
    wanted = {"fc1": "n", "act": "d1", "fc2": "k", "mean": "d1"}
    return Division(graph, {n: Sharding.parse(s) for n, s in sources.items()}, wanted), feeds, expected


def edited(network: Network, edit: Callable[[list[Node]], list[Node]]) -> Network:
    twin = network.copy()
    twin.set_nodes(edit(list(twin.nodes)))
    return twin


def first(nodes: list[Node], op_type: str) -> int:
    return next(i for i, node in enumerate(nodes) if node.op_type == op_type)


def dropped(op_type: str) -> Callable[[list[Node]], list[Node]]:
    def edit(nodes: list[Node]) -> list[Node]:
        nodes[first(nodes, op_type)] = replace(
            nodes[first(nodes, op_type)], op_type="Identity", domain="", attributes={}
        )
        return nodes

    return edit


def doubled(nodes: list[Node]) -> list[Node]:
    i = first(nodes, "AllReduce")
    again = replace(nodes[i], inputs=("again",), name="again")
    nodes[i : i + 1] = [replace(nodes[i], outputs=("again",)), again]
    return nodes


def averaged(nodes: list[Node]) -> list[Node]:
    i = first(nodes, "AllReduce")
    mean = Node("Mean", ("sum", "zero"), nodes[i].outputs, "mean of ranks")
    nodes[i : i + 1] = [replace(nodes[i], outputs=("sum",)), Node("Sub", ("sum", "sum"), ("zero",), "zero"), mean]
    return nodes


def changed(op_type: str, **attributes: Any) -> Callable[[list[Node]], list[Node]]:
    def edit(nodes: list[Node]) -> list[Node]:
        i = first(nodes, op_type)
        nodes[i] = replace(nodes[i], attributes={**nodes[i].attributes, **attributes})
        return nodes

    return edit


def every_bias(nodes: list[Node]) -> list[Node]:
    """The bias enters the sum once a rank."""
    i = first(nodes, "Where")
    nodes[i] = Node("Identity", (nodes[i].inputs[1],), nodes[i].outputs, nodes[i].name)
    return nodes


def unweighted(nodes: list[Node]) -> list[Node]:
    i = next(i for i, node in enumerate(nodes) if node.name == "mean:share")
    nodes[i] = Node("Identity", (nodes[i].inputs[0],), nodes[i].outputs, nodes[i].name)
    return nodes


def other_reader(nodes: list[Node]) -> list[Node]:
    """The second layer reads what the first gives before its function."""
    i = next(i for i, node in enumerate(nodes) if node.name == "fc2")
    nodes[i] = replace(nodes[i], inputs=("h", *nodes[i].inputs[1:]))
    return nodes


MUTANTS: dict[str, Callable[[list[Node]], list[Node]]] = {
    "all-reduce dropped": dropped("AllReduce"),
    "all-reduce twice": doubled,
    "mean instead of sum": averaged,
    "maximum instead of sum": changed("AllReduce", reduction="max"),
    "bias added by every rank": every_bias,
    "mean without weights": unweighted,
    "product without transposition": changed("Gemm", alpha=0.5),
    "another value": other_reader,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught_by_the_checker_and_by_the_run(name: str) -> None:
    division, feeds, expected = megatron()
    networks = [division.network(rank) for rank in range(2)]
    check_division(division, networks)
    assert equal(division, networks, feeds, expected)
    mutants = [edited(network, MUTANTS[name]) for network in networks]
    with pytest.raises(PlanError, match=r"rank 0"):
        check_division(division, mutants)
    assert not equal(division, mutants, feeds, expected)


def gathering() -> tuple[Division, dict[str, np.ndarray], dict[str, np.ndarray]]:
    graph, feeds, expected = serial_step(5)
    sources = {n: Sharding("S", 0) for n in ("x", "w1", "w2")}
    return Division(graph, sources, {"fc1": "n", "act": "d0", "fc2": "m"}), feeds, expected


WRONG_AXES: dict[str, Callable[[list[Node]], list[Node]]] = {
    "gathered along another axis": changed("AllGather", axis=1),
    "pieces of other sizes": changed("AllGather", sizes=(2, 3)),
    "pieces of another rank": changed("AllToAll", rank=1),
}


@pytest.mark.parametrize("name", WRONG_AXES)
def test_wrong_axes_sizes_and_ranks_are_caught(name: str) -> None:
    division, feeds, expected = gathering()
    networks = [division.network(rank) for rank in range(2)]
    check_division(division, networks)
    assert equal(division, networks, feeds, expected)
    mutants = [edited(networks[0], WRONG_AXES[name]), networks[1]]
    with pytest.raises(PlanError, match="rank 0"):
        check_division(division, mutants)
    try:
        assert not equal(division, mutants, feeds, expected)
    except Deep500Error:  # shapes that do not meet
        pass


def test_other_parameters_orders_and_numbers_are_caught() -> None:
    division, _, _ = megatron()
    networks = [division.network(rank) for rank in range(2)]
    with pytest.raises(PlanError, match="got 1 networks; expected 2"):
        check_division(division, networks[:1])
    with pytest.raises(PlanError, match="got 'w1' of shape"):
        swapped = networks[0].copy()
        swapped.put_parameters({"w1": replace(swapped.parameter("w1"), value=np.ones((5, 6)))})
        check_division(division, [swapped, networks[1]])
    constant = next(n for n in division.graph.constants if division.graph.constants[n].dtype == np.float64)
    with pytest.raises(PlanError, match="got other values in constant"):
        other = networks[0].copy()
        other.put_parameters({constant: replace(other.parameter(constant), value=other.parameter(constant).value + 1)})
        check_division(division, [other, networks[1]])


def test_the_zoo_is_divided_by_rules_alone() -> None:
    """Every node of these steps has a rule that divides it on two ranks, and replication is all that others have."""
    for model, options in (
        ("mlp", {}),
        ("lenet", {}),
        ("resnet", {"depth": 20}),
        ("transformer", {}),
        ("causal_transformer", {"layers": 1}),
        ("lstm_language_model", {"shape": (5,)}),
    ):
        network = add_loss(create(model, **options))
        shapes = {
            n: tuple(4 if isinstance(d, str) else d for d in about.shape or ()) for n, about in network.inputs.items()
        }
        graph = StepGraph(joint_network(network, shapes), 2)
        assert graph.without_rule() == [], model
        division = Division(graph, {}, {})
        assert division.crossings == []
        assert all(s == R for s in division.shardings.values())


# -- proofs by the engine of graph substitutions, with collectives as axioms (side_by_side.py) -------------------------
CHEAP = Wishes(model=StepCosts(latency=1e-9, start=1e-9))
"""A machine whose messages cost next to nothing: plans divide what they can."""
PROVED: dict[str, tuple[dict[str, Any], dict[str, int | str]]] = {  # options; nodes that axioms must prove, by operator
    "mlp": ({"shape": (4,), "hidden": (8,), "classes": 3}, {"Gemm": 5}),
    "lenet": ({"shape": (1, 16, 16), "classes": 4}, {"Gemm": 9, "Conv": 4}),
    "causal_transformer": ({"shape": (4,), "classes": 8, "width": 8, "heads": 4, "layers": 1}, {"Gemm": 7}),
    "lstm_language_model": ({"shape": (3,), "classes": 8, "width": 8, "embedding": 6}, {}),
}


def planned(model: str, ranks: int) -> tuple[Division, list[Network]]:
    network = add_loss(create(model, **PROVED[model][0]))
    shapes = {n: tuple(6 if isinstance(d, str) else d for d in a.shape or ()) for n, a in network.inputs.items()}
    plan = parallelize(network, ranks, shapes, wishes=CHEAP)
    return plan.division(network), plan.networks(network)


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("model", PROVED)
def test_plans_are_proved_by_rewriting_the_serial_graph(model: str, ranks: int) -> None:
    """Where axioms reach, all but comparisons, softmax, gathering and the like."""
    pytest.importorskip("egglog", reason="an extra: pip install 'deep500[substitutions]'")
    division, networks = planned(model, ranks)
    assert division.crossings
    proof = prove_division(division, networks)
    nodes = division.graph.by_name
    assert sorted([*proof.by_axioms, *proof.by_rules]) == sorted(nodes)
    by_axioms = Counter(nodes[name].op_type for name in proof.by_axioms)
    for operator, count in PROVED[model][1].items():
        assert by_axioms[operator] == count, Counter(nodes[name].op_type for name in proof.by_rules)


BY_THE_CHECKER_ALONE = {"mean without weights", "product without transposition"}
"""Mutants of which no axiom speaks: a mean that is weighted, and a product times a number."""


@pytest.mark.parametrize("name", [*MUTANTS, *WRONG_AXES])
def test_mutants_are_not_proved(name: str) -> None:
    pytest.importorskip("egglog")
    division, _, _ = megatron() if name in MUTANTS else gathering()
    networks = [division.network(rank) for rank in range(2)]
    assert prove_division(division, networks).by_rules == (("mean",) if name in MUTANTS else ())
    edits = [MUTANTS[name]] * 2 if name in MUTANTS else [WRONG_AXES[name], list]
    mutants = [edited(network, edit) for network, edit in zip(networks, edits, strict=True)]
    with pytest.raises(PlanError):
        prove_division(division, mutants)
    if name not in BY_THE_CHECKER_ALONE:  # the rewriting alone
        with pytest.raises((PlanError, Deep500Error)):
            SideBySide(division, mutants).prove()


def test_a_wrong_rule_is_not_proved_by_axioms(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tanh as if it were linear: checker and plan believe it, and the proof says that nothing but the rule does."""
    pytest.importorskip("egglog")
    monkeypatch.setitem(SHARDING_RULES, "Tanh", SHARDING_RULES["Neg"])
    graph, feeds, expected = serial_step(5)
    sources = {"x": Sharding("S", 1), "w1": Sharding("S", 0)}
    division = Division(graph, sources, {"fc1": "k", "act": "partial0"})
    networks = [division.network(rank) for rank in range(2)]
    check_division(division, networks)
    assert "act" in prove_division(division, networks).by_rules
    assert not equal(division, networks, feeds, expected)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_axioms_of_layouts_hold(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    cut = data.draw(st.integers(0, len(shape)))
    reshaped = (int(np.prod(shape[:cut])), *shape[cut:])
    ranks = data.draw(st.integers(2, 4))
    array = np.arange(float(np.prod(shape))).reshape(shape)
    cases = [("transpose", shape, order), ("reshape", shape, reshaped), ("reshape", reshaped, shape)]
    for op, before, about in cases:
        for axiom in layout_axioms(op, before, about, ranks):
            move = np.transpose if op == "transpose" else np.reshape
            size = axiom.shape[axiom.axis]
            whole = np.take(array.reshape(before), range(size), axiom.axis)
            parts = np.split(whole, [axiom.cut], axiom.axis)
            assert [part.shape for part in parts] == [piece for piece, _ in axiom.pieces]
            moved = [move(part, about) for part, (_, about) in zip(parts, axiom.pieces, strict=True)]
            assert moved[0].shape[axiom.to] == axiom.cut_to
            np.testing.assert_array_equal(np.concatenate(moved, axiom.to), move(whole, axiom.about))
