"""Which candidate is taken: what is timed once and twice, what does the same work, how long compiling may take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deep500.measure.comparison import FASTER, Comparison
from deep500.measure.statistics import Interval
from deep500.networks import Network, create
from deep500.transformations.substitutions import choosing, optimize
from deep500.transformations.substitutions.choosing import ORIGINAL, fastest
from deep500.transformations.substitutions.cost import Analytic, Remeasured, ranking, remeasure, work_hash
from deep500.transformations.substitutions.deadline import Deadline
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.graph.writing import export_network
from deep500.transformations.substitutions.loading import load_rules
from deep500.transformations.substitutions.optimize import optimize_network
from deep500.transformations.substitutions.rules.matching import Matcher
from deep500.transformations.substitutions.search.backtracking import SearchResult, State
from tests.transformations.substitutions.samples import assert_same


def measured(ratios: dict[str, float]) -> Remeasured:
    """As if candidates took so many times what the original takes."""
    compared = tuple(
        Comparison(name, ORIGINAL, Interval(r, r - 0.001, r + 0.001, 40), 1e-6, FASTER if r < 1 else "slower")
        for name, r in ratios.items()
    )
    taken = {name: Interval(1e-3 * r, 1e-3 * r, 1e-3 * r, 40) for name, r in {ORIGINAL: 1.0, **ratios}.items()}
    return Remeasured(taken, compared, Interval(1.0, 0.999, 1.001, 40), 40)


def networks(*widths: int) -> dict[str, Network]:
    return {f"w{width}": create("mlp", batch=1, shape=(4,), hidden=(width,)) for width in widths}


def timed(*rounds: dict[str, float]) -> tuple[list[str], list[set[str]]]:
    """The order of candidates by times that are given one after the other, and what was timed each time."""
    asked, left = list[set[str]](), list(rounds)

    def compare(every: dict[str, Network], backend: str, **_: Any) -> Remeasured:
        asked.append(set(every) - {ORIGINAL})
        return measured({name: ratio for name, ratio in left.pop(0).items() if name in every})

    every = networks(5, 6, 7, 8, 9)
    _, order = fastest(every.pop("w5"), every, "reference", compare, Deadline(60.0), {})
    return order, asked


def test_the_fastest_are_timed_twice_and_both_times_count() -> None:
    order, asked = timed({"w6": 0.80, "w7": 0.82, "w8": 0.95, "w9": 1.1}, {"w6": 0.90, "w7": 0.83})
    assert asked == [{"w6", "w7", "w8", "w9"}, {"w6", "w7"}]
    assert order == ["w7", "w6", "w8"]


def test_what_is_not_faster_the_second_time_is_not_taken() -> None:
    assert timed({"w6": 0.97, "w7": 0.99}, {"w6": 1.01, "w7": 0.99})[0] == ["w7"]
    assert timed({"w6": 0.97}, {"w6": 1.0})[0] == []


def test_no_second_time_where_there_is_none_left() -> None:
    every = networks(5, 6)
    deadline = Deadline(60.0)
    deadline.reserved = 60.0
    runs = list[int]()

    def compare(*_: Any, **__: Any) -> Remeasured:
        runs.append(1)
        return measured({"w6": 0.8})

    assert fastest(every.pop("w5"), every, "reference", compare, deadline, {})[1] == ["w6"] and len(runs) == 1


def test_what_does_the_same_work_is_not_timed() -> None:
    network = create("mlp", batch=1)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("there is nothing to compare")

    again = create("mlp", batch=1, seed=1)
    assert fastest(network, {"again": again}, "reference", never, Deadline(60.0), {}) == (None, [])


def convolution(attributes: dict[str, Any], end: str = "Flatten", weight: float = 1.0) -> Network:
    network = Network("n")
    network.add_input("x", (1, 2, 5, 5))
    network.add_parameter("w", np.full((3, 2, 3, 3), weight, "float32"))
    network.add_parameter("flat", np.array([1, -1]), trainable=False)
    network.add_node("Conv", ["x", "w"], ["y"], **attributes)
    network.add_node(end, ["y", "flat"] if end == "Reshape" else ["y"], ["z"])
    network.add_output("z")
    return network


def test_the_same_work() -> None:
    first = work_hash(convolution({}))
    said = {"kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1], "pads": [0, 0, 0, 0], "group": 1}
    assert first == work_hash(convolution(said)) == work_hash(convolution({}, "Reshape"))
    assert first == work_hash(convolution({}, weight=2.0)), "weights do not count"
    assert first not in {work_hash(convolution({"strides": [2, 2]})), work_hash(convolution({"pads": [1, 1, 1, 1]}))}
    network = convolution({})
    network.add_node("Relu", ["y"], ["unread"])
    assert first != work_hash(network), "what nothing reads runs, too"


def test_constants_folded_are_a_candidate_whatever_a_search_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(imported: Any, *_: Any, **__: Any) -> SearchResult:
        first = State(imported.graph, 1.0)
        return SearchResult([first], first)

    def takes_all(network: Network, candidates: dict[str, Network], *_: Any) -> Any:
        return measured(dict.fromkeys(candidates, 0.5)), list(candidates)

    monkeypatch.setattr(optimize, "Measured", lambda backend, *_, **__: Analytic(backend))
    monkeypatch.setattr(optimize, "_search", nothing)
    monkeypatch.setattr(optimize, "fastest", takes_all)
    network = normalized(3.0)
    found = optimize_network(network, "reference", budget=60.0)
    assert found.chosen and "BatchNormalization" not in {node.op_type for node in found.network.nodes}
    assert_same(network, found.network, 1e-4)


def test_a_scale_behind_a_bias_goes_into_the_product_before() -> None:
    """Layer scale of ConvNeXt: three operators in a row that no single rule makes cheaper."""
    generator, network = np.random.default_rng(0), Network("layer scale")
    network.add_input("x", (1, 3, 4))
    for name, size in (("w", (4, 6)), ("b", (6,)), ("gamma", (6,))):
        network.add_parameter(name, generator.normal(size=size).astype("float32"))
    network.add_node("MatMul", ["x", "w"], ["y"])
    network.add_node("Add", ["b", "y"], ["z"])
    network.add_node("Mul", ["gamma", "z"], ["scaled"])
    network.add_output("scaled")
    imported = import_network(network)
    (state,) = optimize._folded(imported, Matcher(load_rules(), 1), "pytorch", 60.0)
    made = export_network(imported, state.graph)
    assert [node.op_type for node in made.nodes] == ["Reshape", "Gemm", "Reshape"]
    assert_same(network, made, 1e-6)


def normalized(bias: float) -> Network:
    network = convolution({})
    for name, value in (("scale", 2.0), ("bias", bias), ("mean", 0.0), ("variance", 1.0)):
        network.add_parameter(name, np.full(3, value, "float32"))
    network.add_node("BatchNormalization", ["y", "scale", "bias", "mean", "variance"], ["normal"])
    network.add_output("normal")
    network.remove_output("z")
    network.remove_node(network.producer("z").name)  # type: ignore[union-attr]
    return network


@pytest.mark.parametrize(("bias", "inputs"), [(0.0, 2), (1.0, 3)])
def test_biases_that_come_out_as_zeros_are_left_out(bias: float, inputs: int) -> None:
    network = normalized(bias)
    found = optimize_network(network, measure=False)
    assert [(node.op_type, len(node.inputs)) for node in found.network.nodes] == [("Conv", inputs)]
    assert_same(network, found.network, 1e-5)


def test_what_compiling_takes_is_guessed_from_what_was_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first has in it what all have in common; the second is taken to need half, others what the second took."""
    now, cost = [0.0], {5: 10.0, 6: 3.0, 7: 3.0, 8: 3.0}

    class Runner:
        def __init__(self, *_: Any) -> None:
            pass

        def __call__(self, network: Network, _: Any) -> Any:
            width = network.parameters["fc1.bias"].value.size
            now[0] += cost[width]
            return lambda: None

    monkeypatch.setattr(ranking, "Runner", Runner)
    monkeypatch.setattr(ranking, "cpu_seconds", lambda: now[0])
    monkeypatch.setattr(ranking, "time", SimpleNamespace(perf_counter=lambda: now[0], perf_counter_ns=lambda: 0))
    monkeypatch.setattr(ranking, "in_turns", lambda functions, *_: measured(dict.fromkeys([*functions][1:], 1.0)))
    for until, expected in ((14.9, []), (15.0, ["w6"]), (16.0, ["w6", "w7"]), (19.0, ["w6", "w7", "w8"])):
        now[0] = 0.0
        failed = dict[str, str]()
        every = networks(5, 6, 7, 8)
        timed = remeasure(every, "reference", until=until, failed=failed)
        assert [comparison.first for comparison in timed.comparisons] == expected
        assert set(failed) == {"w6", "w7", "w8"} - set(expected)


def test_a_compiler_is_loaded_once_and_not_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    from deep500.transformations.substitutions.cost import deployments

    made = list[str]()
    place = deployments.Deployment("warm", "reference", compiles=True)
    before = deployments.Deployment.executor
    monkeypatch.setattr(deployments, "_warmed", set())
    monkeypatch.setattr(
        deployments.Deployment, "executor", lambda self, n, d=None: made.append(n.name) or before(self, n, d)
    )
    place.prepare()
    place.prepare()
    assert made == ["one operator"]
    assert choosing.TIMING_COMPILED > choosing.TIMING


@pytest.mark.parametrize(("quick", "each"), [(60.0, ranking.TWINS), (-1.0, 1)])
def test_networks_that_are_built_quickly_are_built_several_times(
    quick: float, each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran, made = list[int](), list[int]()

    class Runner:
        def __init__(self, *_: Any) -> None:
            pass

        def __call__(self, network: Network, _: Any) -> Any:
            made.append(len(made))
            return lambda number=made[-1]: ran.append(number)

    monkeypatch.setattr(ranking, "Runner", Runner)
    monkeypatch.setattr(ranking, "QUICK", quick)
    remeasure(networks(5, 6), "reference", limit=0.05)
    assert len(made) == 2 * each and set(ran) == set(made), "all of them run"
