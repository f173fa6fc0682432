"""Networks in the rule language: stores, import, units, and what is written back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx.helper as oh
import pytest

from deep500.networks import Network, add_loss, create, model_names
from deep500.networks.dtype import to_dtype
from deep500.networks.execution.inputs import make_inputs
from deep500.registry import load_backend
from deep500.transformations.substitutions.graph.importing import import_network, stand_ins
from deep500.transformations.substitutions.graph.store import CycleError, Store, StoredGraph, StoreValue, parts
from deep500.transformations.substitutions.graph.units import Units, ordered
from deep500.transformations.substitutions.graph.writing import constant_array, export_network, unit_network
from deep500.transformations.substitutions.operators.specification import ShapeMismatch

# fmt: off
SMALL = {
    "resnet": {"depth": 8}, "wide_resnet": {"depth": 10, "width": 1}, "mlp": {"shape": (4,)}, "lenet": {},
    "transformer": {"layers": 1, "width": 16, "heads": 2}, "lstm": {},
}
# fmt: on


def run(network: Network, sizes: dict[str, int] | None = None) -> dict[str, Any]:
    inputs = make_inputs(network, None, 0, sizes)
    return load_backend("reference").from_model(network).inference(inputs)


def same(original: Network, written: Network, sizes: dict[str, int] | None = None, tolerance: float = 1e-12) -> None:
    want, got = run(original, sizes), run(written, sizes)
    assert list(want) == list(got)
    for name, array in want.items():
        np.testing.assert_allclose(got[name], array, rtol=tolerance, atol=tolerance * max(1.0, np.abs(array).max()))


def options(name: str) -> dict[str, Any]:
    from deep500.networks import model_options

    return {key: value for key, value in SMALL.get(name, {}).items() if key in (*model_options(name), "shape")}


# -- stores -----------------------------------------------------------------------------------------------------------
def test_equal_applications_are_one_node_whatever_the_order_of_a_sum() -> None:
    store = Store()
    x, y = store.input("x", (2, 3), "float32"), store.input("y", (2, 3), "float32")
    assert store.add("add", x, y) == store.add("add", y, x)
    assert store.add("relu", x) != store.add("tanh", x)
    count = len(store.nodes)
    store.add("relu", x)
    assert len(store.nodes) == count


def test_what_does_not_fit_is_no_node() -> None:
    store = Store()
    x, y = store.input("x", (2, 3), "float32"), store.input("y", (2, 3), "float64")
    count = len(store.nodes)
    with pytest.raises(ShapeMismatch, match="one dtype"):
        store.add("add", x, y)
    with pytest.raises(ShapeMismatch, match="matmul"):
        store.add("matmul", x, x)
    assert len(store.nodes) == count


def test_a_store_builds_the_shorter_form() -> None:
    store = Store()
    x, y, z = (store.input(name, (2, size), "float32") for name, size in (("x", 3), ("y", 4), ("z", 5)))
    (yz,) = store.add("concat", y, z, axis=1)
    (whole,) = store.add("concat", x, yz, axis=1)
    assert parts(store, whole, 1) == [x, y, z]
    assert store.add("split", whole, axis=1, cut=3) == (x, yz)
    first, rest = store.add("split", whole, axis=1, cut=5)  # inside of y: nothing shorter
    assert store.node(first).op == "split"
    assert store.add("concat", first, rest, axis=1) == (whole,)
    (turned,) = store.add("transpose", x, perm=(1, 0))
    assert store.add("transpose", turned, perm=(1, 0)) == (x,)
    (flat,) = store.add("reshape", x, shape=(6,))
    assert store.add("reshape", flat, shape=(2, 3)) == (x,)


def test_reshapes_move_behind_what_works_element_by_element() -> None:
    store = Store()
    x = store.input("x", (6, 4), "float32")
    (image,) = store.add("reshape", x, shape=(2, 3, 4))
    vector = store.constant(np.ones(4, "float32"))
    (biased,) = store.add("bias", image, vector, axis=2)
    assert store.node(biased).op == "reshape" and store.node(store.node(biased).inputs[0]).op == "bias"
    left, right = store.add("split", image, axis=2, cut=1)
    assert store.shape(left) == (2, 3, 1) and store.node(right).op == "reshape"
    (other_axis,) = store.add("bias", image, store.constant(np.ones(3, "float32")), axis=1)
    assert store.node(other_axis).op == "bias"


def test_digests_are_those_of_another_store_and_of_another_precision() -> None:
    imported = [
        import_network(to_dtype(create("resnet", depth=8), dtype)).store.digests for dtype in ("float32", "float64")
    ]
    assert imported[0] == imported[1] and len(set(imported[0])) == len(imported[0])


def test_replace_changes_readers_only_and_refuses_cycles() -> None:
    store = Store()
    x = store.input("x", (2, 2), "float32")
    (a,) = store.add("relu", x)
    (b,) = store.add("tanh", a)
    (c,) = store.add("add", a, b)
    graph = StoredGraph(store, (c,))
    new = graph.replace({b: store.add("sigmoid", a)[0]})
    assert {store.nodes[n].op for n in new.nodes()} == {"input", "relu", "sigmoid", "add"}
    assert {store.nodes[n].op for n in graph.nodes()} == {"input", "relu", "tanh", "add"}, "the old graph stays"
    (joint,) = store.add("concat", a, b, axis=0)
    first, second = store.add("split", store.add("gelu", joint)[0], axis=0, cut=2)
    with pytest.raises(CycleError):
        graph.replace({a: first, b: second})
    with pytest.raises(ShapeMismatch):
        graph.replace({a: joint})


# -- in and out -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("batch", [2, None])
@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_network_written_back_computes_the_same(name: str, batch: int | None, training: bool) -> None:
    network = to_dtype(create(name, batch, **options(name)), "float64")
    imported = import_network(network, training)
    back = export_network(imported, imported.graph)
    onnx.checker.check_model(back.to_onnx(), full_check=True)
    same(network, back, {"N": 3} if batch is None else None)
    assert list(back.inputs) == list(network.inputs) and back.outputs == network.outputs
    assert [described.shape for described in back.inputs.values()] == [
        described.shape for described in network.inputs.values()
    ]
    if training:
        assert back.trainable() == network.trainable()


def test_every_model_of_the_zoo_can_be_imported() -> None:
    for name in model_names():
        imported = import_network(create(name, 1, **options(name)), training=True)
        assert len(imported.graph.nodes()) > 1, name


def test_symbolic_sizes_get_numbers_that_divide_no_fixed_size() -> None:
    network = create("mlp", shape=(10,), classes=3, hidden=(14,))
    number = stand_ins(network, {"N": 5})["N"]
    assert number == 11 and all(size % number for size in (10, 14, 3))
    imported = import_network(network)
    back = export_network(imported, imported.graph)
    for batch in (1, 4):
        same(network, back, {"N": batch}, 1e-6)


def test_names_of_parameters_stay_and_unread_ones_go() -> None:
    network = create("lenet", batch=1)
    network.add_parameter("forgotten", np.ones(3, "float32"))
    imported = import_network(network)
    back = export_network(imported, imported.graph)
    assert "forgotten" not in back.parameters and "conv1.weight" in back.parameters
    trained = import_network(network, training=True)
    assert "forgotten" in export_network(trained, trained.graph).parameters


def body(*names: str) -> onnx.GraphProto:
    value = oh.make_tensor_value_info("inner", onnx.TensorProto.FLOAT, [2])
    return oh.make_graph([oh.make_node("Add", list(names), ["inner"])], "body", [], [value])


def test_bodies_of_if_see_the_values_they_capture() -> None:
    net = Network("branches")
    net.add_input("x", (2,))
    net.add_input("flag", (), "bool")
    net.add_node("Relu", ["x"], ["a"])
    net.add_node("Relu", ["x"], ["again"])  # one value with a: the body still finds both names
    net.add_node("Tanh", ["a"], ["b"])
    net.add_node("If", ["flag"], ["y"], then_branch=body("a", "b"), else_branch=body("again", "b"))
    net.add_output("y")
    imported = import_network(net)
    back = export_network(imported, imported.graph)
    onnx.checker.check_model(back.to_onnx(), full_check=True)
    inputs = {"x": np.array([-1.0, 2.0], "float32")}
    for flag in (True, False):
        given = {**inputs, "flag": np.array(flag)}
        want, got = (load_backend("reference").from_model(network).inference(given)["y"] for network in (net, back))
        np.testing.assert_array_equal(got, want)


def test_outputs_that_are_inputs_twins_or_constants() -> None:
    net = Network("odd")
    net.add_input("x", (2, 2))
    net.add_parameter("w", np.eye(2, dtype="float32"))
    net.add_node("Identity", ["x"], ["same"])
    net.add_node("Relu", ["x"], ["y"])
    net.add_node("Relu", ["x"], ["twin"])
    net.add_node("Add", ["w", "w"], ["twice"])
    for name in ("same", "y", "twin", "twice"):
        net.add_output(name)
    imported = import_network(net)
    same(net, export_network(imported, imported.graph))


def test_random_nodes_are_not_one_node() -> None:
    net = Network("noise")
    net.add_input("x", (2, 2))
    net.add_node("RandomNormalLike", ["x"], ["a"], name="one")
    net.add_node("RandomNormalLike", ["x"], ["b"], name="two")
    net.add_node("Sub", ["a", "b"], ["y"])
    net.add_output("y")
    imported = import_network(net)
    assert Counter(node.op_type for node in export_network(imported, imported.graph).nodes)["RandomNormalLike"] == 2


def test_custom_operators_and_broadcasts_stay_as_they_are() -> None:
    net = Network("custom")
    net.add_input("x", (2, 3))
    net.add_input("column", (2, 1))
    net.add_node("Strange", ["x"], ["a"], domain="elsewhere", level=3)
    net.add_node("Add", ["x", "column"], ["b"])
    net.add_output("a")
    net.add_output("b")
    imported = import_network(net)
    back = export_network(imported, imported.graph)
    (strange,) = [node for node in back.nodes if node.domain]
    assert (strange.op_type, strange.attribute("level")) == ("Strange", 3)
    kinds = {unit.kind for unit in Units(imported.graph)}
    assert kinds == {"opaque", "reshape", "bias"}, "a column is a vector along an axis; an unknown operator is opaque"


def test_training_keeps_what_follows_the_executors_mode() -> None:
    network = add_loss(create("resnet", depth=8))
    imported = import_network(network, training=True)
    counts = Counter(node.op_type for node in export_network(imported, imported.graph).nodes)
    assert counts["BatchNormalization"] == Counter(node.op_type for node in network.nodes)["BatchNormalization"]
    inference = import_network(network)
    assert "gain" in {inference.store.nodes[n].op for n in inference.graph.nodes()}


# -- units ------------------------------------------------------------------------------------------------------------
def graph_of(*ops: str) -> tuple[Store, StoredGraph, list[str]]:
    store = Store()
    value = store.input("x", (4, 6), "float32")
    w, b = store.constant(np.ones((6, 6), "float32")), store.constant(np.ones(6, "float32"))
    for op in ops:
        if op == "matmul":
            (value,) = store.add("matmul", value, w)
        elif op == "bias":
            (value,) = store.add("bias", value, b, axis=1)
        else:
            (value,) = store.add(op, value)
    graph = StoredGraph(store, (value,))
    return store, graph, [unit.kind for unit in Units(graph)]


def test_biases_go_into_products_without_other_readers() -> None:
    assert graph_of("matmul", "bias", "relu")[2] == ["gemm", "relu"]
    store, graph, _ = graph_of("matmul", "bias")
    (product,) = (StoreValue(n) for n in graph.nodes() if store.nodes[n].op == "matmul")
    assert [unit.kind for unit in Units(StoredGraph(store, (*graph.outputs, product)))] == ["matmul", "bias"]


def test_chains_become_one_concat_and_one_split() -> None:
    store = Store()
    x, y, z = (store.input(name, (2, 3), "float32") for name in "xyz")
    (both,) = store.add("concat", x, y, axis=1)
    (whole,) = store.add("concat", both, z, axis=1)
    (acted,) = store.add("relu", whole)
    first, rest = store.add("split", acted, axis=1, cut=2)
    second, third = store.add("split", rest, axis=1, cut=3)
    graph = StoredGraph(store, (first, second, third))
    concat, _, split = Units(graph)
    assert (concat.kind, concat.inputs) == ("concat", (x, y, z))
    assert (split.kind, dict(split.settings)["sizes"], split.outputs) == ("split", (2, 3, 4), (first, second, third))
    kept = StoredGraph(store, (first, rest, second, third))  # the rest is an output as well
    assert [unit.kind for unit in Units(kept)] == ["concat", "relu", "split", "split"]


def test_transposes_go_into_products() -> None:
    store = Store()
    x, y = store.input("x", (3, 2), "float32"), store.input("y", (3, 4), "float32")
    (turned,) = store.add("transpose", x, perm=(1, 0))
    (product,) = store.add("matmul", turned, y)
    (unit,) = Units(StoredGraph(store, (product,)))
    assert (unit.kind, unit.inputs, dict(unit.settings)) == ("gemm", (x, y), {"transA": 1, "transB": 0})
    assert [each.kind for each in Units(StoredGraph(store, (product, turned)))] == ["transpose", "gemm"]


def test_the_order_of_units_does_not_depend_on_a_stores_numbers() -> None:
    network = create("squeezenet", 1, shape=(3, 64, 64))
    plain = import_network(network)
    busy = import_network(network)
    for number in list(busy.graph.nodes()):
        if busy.store.nodes[number].op == "relu":
            busy.store.add("tanh", StoreValue(number))
    kinds = [
        [unit.kind for unit in ordered(list(Units(source.graph)), source.graph.outputs)] for source in (plain, busy)
    ]
    assert kinds[0] == kinds[1]
    written = [export_network(source, source.graph).to_onnx().SerializeToString() for source in (plain, busy)]
    assert written[0] == written[1]


def test_constants_are_computed_in_float64_and_rounded_once() -> None:
    store = Store()
    values = np.random.default_rng(0).standard_normal((3, 50, 50)).astype("float32")
    a, b, c = (store.constant(array) for array in values)
    (product,) = store.add("matmul", store.add("matmul", a, b)[0], c)
    exact = values[0].astype("float64") @ values[1].astype("float64") @ values[2].astype("float64")
    np.testing.assert_array_equal(constant_array(store, product), exact.astype("float32"))


def test_a_unit_as_a_network_of_copies() -> None:
    _, graph, _ = graph_of("matmul", "bias")
    (unit,) = Units(graph)
    network = unit_network(graph, unit, 3)
    assert len(network.nodes) == 3 and len(network.inputs) == 3 and len(network.outputs) == 3
    assert unit.key(graph) == next(iter(Units(graph_of("matmul", "bias")[1]))).key(graph)
