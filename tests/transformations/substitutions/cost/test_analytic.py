"""The deterministic cost model: every price follows from its formula, and totals are sums that are looked up."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from deep500.errors import NetworkError
from deep500.transformations.substitutions.cost import Analytic
from deep500.transformations.substitutions.cost.analytic import (
    ELEMENTARY,
    MACHINES,
    ONNX,
    OTHER,
    BackendConstants,
    operations,
    traffic,
)
from deep500.transformations.substitutions.graph.store import Store, StoredGraph, StoreValue
from deep500.transformations.substitutions.graph.units import Unit, Units
from deep500.transformations.substitutions.operators.elementwise import ACTIVATIONS
from deep500.transformations.substitutions.operators.specification import operators

N, C, H, M, K = 2, 6, 9, 10, 3  # batch, channels, height and width, output channels, kernel
WINDOW = {"kernel": (K, K), "strides": (1, 1), "pads": (1, 1, 1, 1)}
F4 = 4  # bytes of a float32


def _store() -> tuple[Store, dict[str, StoreValue]]:
    store = Store()
    made = {
        "image": store.input("image", (N, C, H, H), "float32"),
        "kernel": store.constant(np.ones((M, C // 2, K, K), "float32")),
        "vector": store.constant(np.ones(M, "float32")),
        "x": store.input("x", (4, 5), "float32"),
        "y": store.input("y", (4, 5), "float32"),
        "w": store.input("w", (7, 5), "float32"),
        "v": store.constant(np.ones((5, 7), "float32")),
    }
    return store, made


def _units(store: Store, *values: StoreValue) -> list[tuple[Unit, StoredGraph]]:
    graph = StoredGraph(store, values)
    return [(unit, graph) for unit in Units(graph)]


def _made(name: str) -> tuple[Unit, StoredGraph]:
    """One unit by the name of a row of EXPECTED."""
    store, v = _store()
    conv = {**WINDOW, "dilations": (1, 1), "groups": 2}
    makers = {
        "conv": lambda: store.add("conv", v["image"], v["kernel"], **conv),
        "conv+bias": lambda: store.add(
            "bias", store.add("conv", v["image"], v["kernel"], **conv)[0], v["vector"], axis=1
        ),
        "matmul": lambda: store.add("matmul", v["x"], v["v"]),
        "gemm": lambda: store.add("matmul", v["x"], store.add("transpose", v["w"], perm=(1, 0))[0]),
        "add": lambda: store.add("add", v["x"], v["y"]),
        "x+x": lambda: store.add("add", v["x"], v["x"]),
        "tanh": lambda: store.add("tanh", v["x"]),
        "concat": lambda: store.add("concat", store.add("concat", v["x"], v["y"], axis=0)[0], v["w"], axis=0),
        "split": lambda: store.add("split", v["x"], axis=1, cut=2),
        "maxpool": lambda: store.add("maxpool", v["image"], **WINDOW),
    }
    ((unit, graph),) = _units(store, *makers[name]())
    return unit, graph


EXPECTED = {  # name: (operations, elements moved), by the textbook
    "conv": (2 * N * M * H * H * (C // 2) * K * K, N * C * H * H + M * (C // 2) * K * K + N * M * H * H),
    "conv+bias": (N * M * H * H * (2 * (C // 2) * K * K + 1), N * C * H * H + M * (C // 2) * K * K + M + N * M * H * H),
    "matmul": (2 * 4 * 5 * 7, 4 * 5 + 5 * 7 + 4 * 7),
    "gemm": (2 * 4 * 5 * 7, 4 * 5 + 5 * 7 + 4 * 7),
    "add": (20, 3 * 20),
    "x+x": (20, 2 * 20),
    "tanh": (20 * ELEMENTARY, 2 * 20),
    "concat": (0, 2 * (20 + 20 + 35)),
    "split": (0, 2 * 20),
    "maxpool": (N * C * H * H * K * K, 2 * N * C * H * H),
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("backend", ["reference", "pytorch", "onnxruntime", "another"])
def test_price_is_the_roofline_of_the_textbook_counts(name: str, backend: str) -> None:
    unit, graph = _made(name)
    count, elements = EXPECTED[name]
    assert (operations(graph, unit), traffic(graph, unit)) == (count, F4 * elements)
    machine = MACHINES.get(backend, OTHER)
    rate = machine.products if name in ("conv", "conv+bias", "matmul", "gemm") else machine.others
    moved = F4 * elements / machine.bandwidth
    if name == "split" and backend in ("reference", "pytorch"):
        moved = 0  # they make views
    assert Analytic(backend).unit(graph, unit) == pytest.approx(machine.overhead + max(count / rate, moved), rel=1e-12)


def test_copies_are_free_only_where_a_backend_makes_views() -> None:
    store = Store()
    x = store.input("x", (1000, 1000), "float32")
    moves = {
        "split": store.add("split", x, axis=1, cut=500),
        "transpose": store.add("transpose", x, perm=(1, 0)),
        "reshape": store.add("reshape", x, shape=(1000000,)),
        "concat": store.add("concat", x, x, axis=0),
    }
    copied = {}
    for backend in ("pytorch", "reference", "onnxruntime", "jax", "tensorflow"):
        cost = Analytic(backend)
        copied[backend] = {
            name for name, made in moves.items() if cost.total(StoredGraph(store, made)) > 10 * cost.machine.overhead
        }
    eager, compiled = {"concat"}, {"concat", "split", "transpose"}
    assert copied == {
        "pytorch": eager,
        "reference": eager,
        "onnxruntime": compiled,
        "jax": compiled,
        "tensorflow": compiled,
    }


def test_a_total_is_the_sum_of_its_units_and_constants_are_free() -> None:
    store, v = _store()
    doubled = store.add("add", v["v"], v["v"])[0]  # computed beforehand
    (y,) = store.add("matmul", v["x"], doubled)
    (z,) = store.add("relu", y)
    cost = Analytic("pytorch")
    graph = StoredGraph(store, (z,))
    assert [unit.kind for unit in Units(graph)] == ["matmul", "relu"]
    assert cost.total(graph) == sum(cost.unit(graph, unit) for unit in Units(graph)) > 0


def test_opaque_units_cost_nothing_and_are_named() -> None:
    store = Store()
    x = store.input("x", (3, 4), "float32")
    (soft,) = store.opaque((x,), [(3, 4)], ["float32"], (("node", "softmax"),))
    (y,) = store.add("relu", soft)
    cost, graph = Analytic(), StoredGraph(store, (y,))
    assert cost.total(graph) == cost.total(StoredGraph(store, store.add("relu", x)))
    assert [unit.kind for unit in Units(graph) if not cost.unit(graph, unit)] == ["opaque"]
    assert cost.total(StoredGraph(store, (soft,))) == 0


def test_every_kind_that_can_run_has_a_formula() -> None:
    written = {name for name, spec in operators().items() if spec.arity}
    assert written <= {*ONNX, *ACTIVATIONS}


def test_a_kind_without_a_formula_is_an_error() -> None:
    store, v = _store()
    with pytest.raises(NetworkError, match=r"got a unit of kind 'wave'; expected one of \["):
        operations(StoredGraph(store, (v["x"],)), Unit("wave", (3,), (v["x"],), (v["x"],)))


def test_a_key_is_priced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store, v = _store()
    asked: list[str] = []
    price = Analytic.price
    monkeypatch.setattr(
        Analytic, "price", lambda self, graph, unit: asked.append(unit.kind) or price(self, graph, unit)
    )
    cost = Analytic()
    (y,) = store.add("tanh", v["x"])
    (z,) = store.add("tanh", y)  # the same shape: the same key
    first = cost.total(StoredGraph(store, (z,)))
    other, w = _store()
    assert cost.total(StoredGraph(other, (other.add("tanh", w["y"])[0],))) == pytest.approx(first / 2)
    assert asked == ["tanh"]


def test_it_is_the_same_in_every_process() -> None:
    code = (
        "from tests.transformations.substitutions.cost.test_analytic import _made\n"
        "from deep500.transformations.substitutions.cost import Analytic\n"
        "unit, graph = _made('conv+bias'); print(Analytic('pytorch').unit(graph, unit).hex())"
    )
    done = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(p for p in sys.path if p)},
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    unit, graph = _made("conv+bias")
    assert set(done) == {Analytic("pytorch").unit(graph, unit).hex()}


def test_machines_are_plausible() -> None:
    for machine in (*MACHINES.values(), OTHER, BackendConstants(1e-6)):
        assert 0 < machine.overhead < 1e-4
        assert machine.others < machine.products
        assert "concat" not in machine.views
