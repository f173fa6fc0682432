"""Deployments: a name says backend and options; what compiles networks is searched by formulas and timed whole."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import deep500.networks as d5nt
from deep500.errors import MissingBackend, UnsupportedOperator
from deep500.networks import create
from deep500.registry import load_backend
from deep500.transformations.substitutions import choosing, optimize
from deep500.transformations.substitutions.cost import Analytic, deployment, deployment_names, deployments, remeasure
from deep500.transformations.substitutions.cost.clock import cpu_seconds
from deep500.transformations.substitutions.cost.timing import Runner
from deep500.transformations.substitutions.graph.importing import import_network
from deep500.transformations.substitutions.graph.store import Store, StoredGraph
from deep500.transformations.substitutions.graph.units import Units
from deep500.transformations.substitutions.optimize import optimize_network
from deep500.transformations.substitutions.search.backtracking import SearchResult, State
from tests.transformations.substitutions.samples import branches


@pytest.fixture
def fusing(monkeypatch: pytest.MonkeyPatch) -> str:
    """A deployment that counts as a compiler, and runs where everything is installed."""
    made = deployments.Deployment("fusing", "reference", compiles=True)
    monkeypatch.setattr(deployments, "KNOWN", {"fusing": made})
    return "fusing"


def test_names_are_of_backends_and_of_deployments() -> None:
    assert {"reference", "pytorch", "pytorch-compiled", "onnxruntime", "jax", "tensorflow"} <= set(deployment_names())
    assert len(set(deployment_names())) == len(deployment_names())
    with pytest.raises(MissingBackend, match="did you mean 'pytorch-compiled'"):
        deployment("pytorch-compile")
    with pytest.raises(MissingBackend, match="expected one of the known ones"):
        optimize_network(create("mlp"), "tensorrt", measure=False)


def test_options_reach_the_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, Any]] = []
    reference = load_backend("reference").from_model

    def from_model(network: Any, device: Any = None, **options: Any) -> Any:
        given.append(options)
        return reference(network, device=device)

    monkeypatch.setattr(deployments, "load_backend", lambda name: SimpleNamespace(from_model=from_model))
    for name in ("pytorch-compiled", "pytorch", "onnxruntime"):
        Runner(name)(create("mlp", batch=1))
    assert given == [{"compile": True}, {}, {"optimization": "all"}]


def test_what_compiles_has_no_prices_of_operators(fusing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def priced(*_: Any, **__: Any) -> Any:
        raise AssertionError("operators of a compiler were priced")

    monkeypatch.setattr(optimize, "Measured", priced)
    monkeypatch.setattr(choosing, "MOST_TIMING", 0.05)
    result = optimize_network(branches(2, 2, 8), fusing, budget=10.0)
    assert result.backend == "fusing" and result.measured is not None
    with pytest.raises(AssertionError, match="were priced"):
        optimize_network(branches(), "reference", budget=5.0)


def test_a_compilers_formula_has_elementwise_work_in_the_loops_of_others() -> None:
    store = Store()
    x, w = store.input("x", (64, 64), "float32"), store.constant(np.ones((64, 64), "float32"))
    (y,) = store.add("matmul", x, w)
    (z,) = store.add("relu", y)
    graph = StoredGraph(store, (*store.add("split", z, axis=1, cut=16),))
    product, relu, split = Units(graph)
    alone, fused = Analytic("pytorch"), Analytic("pytorch", fused=True, without=("split",))
    assert fused.unit(graph, product) == alone.unit(graph, product)
    assert fused.unit(graph, relu) < 0.1 * alone.unit(graph, relu)
    assert fused.unit(graph, split) > 9 * alone.unit(graph, split), "no search makes what is so dear"


def test_no_more_is_compiled_than_there_is_time_for() -> None:
    nets, failed = {"a": create("mlp", batch=1), "b": create("mlp", batch=1)}, dict[str, str]()
    timed = remeasure(nets, "reference", limit=0.01, failed=failed, until=cpu_seconds() - 1)
    assert not timed.comparisons and not timed.faster and "too little time to compile" in failed["b"]
    assert remeasure(nets, "reference", limit=0.01, failed={}, until=cpu_seconds() + 3600).comparisons


def test_where_no_candidate_runs_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    first, failed = create("mlp", batch=1), dict[str, str]()

    def executor(self: Any, network: Any, device: Any = None) -> Any:
        if network is not first:
            raise UnsupportedOperator("planted")
        return load_backend("reference").from_model(network)

    monkeypatch.setattr(deployments.Deployment, "executor", executor)
    assert not remeasure({"a": first, "b": first.copy()}, "reference", limit=0.01, failed=failed).comparisons
    assert "planted" in failed["b"]


@pytest.mark.parametrize(
    ("threads", "clocks"), [("1", "cpu cpu wall"), ("4", "wall wall wall"), ("", "wall wall wall")]
)
def test_one_thread_is_timed_by_its_processor(threads: str, clocks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"cpu": time.process_time_ns, "wall": time.perf_counter_ns}
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    names = ("pytorch-compiled", "onnxruntime", "jax")
    assert [deployment(name).clock() for name in names] == [known[word] for word in clocks.split()]


def test_the_best_of_every_search_is_a_candidate_before_the_second_of_any() -> None:
    store = Store()
    x = store.input("x", (4,), "float32")
    chain = [x]
    for _ in range(8):
        chain += store.add("tanh", chain[-1])
    states = [State(StoredGraph(store, (value,)), float(n)) for n, value in enumerate(chain[1:], 1)]
    first = states[-1]
    searches = [SearchResult([states[n], states[n + 1], first], first, priced=5) for n in (2, 0, 4)]
    searches[2].timed_out = True
    joined = optimize._joined(searches, Analytic(), searches[0])
    assert [state.graph for state in joined.best] == [states[n].graph for n in (2, 0, 4)]
    assert joined.priced == 15 and joined.timed_out and joined.first is first
    assert joined.best[1].cost == Analytic().total(states[0].graph), "one price for all, whatever found them"


def test_biases_of_zeros_are_no_operators() -> None:
    network = d5nt.Network("zeros")
    network.add_input("x", (2, 3))
    network.add_parameter("b", np.zeros(3, "float32"))
    network.add_node("Add", ["b", "x"], ["y"])
    network.add_node("Relu", ["y"], ["z"])
    network.add_output("z")
    kinds = [[unit.kind for unit in Units(import_network(network, training).graph)] for training in (False, True)]
    assert kinds == [["relu"], ["bias", "relu"]], "what trains does not stay zero"


@pytest.mark.parametrize(("cores", "clock"), [({3}, time.process_time_ns), ({2, 3}, time.perf_counter_ns)])
def test_tensorflow_on_one_core_is_timed_by_the_processors_time(
    cores: set[int], clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr("os.sched_getaffinity", lambda _: cores, raising=False)
    assert deployment("tensorflow").clock() is clock
