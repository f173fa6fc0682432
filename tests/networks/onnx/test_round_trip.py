"""Networks to ONNX and back: what the models of other exporters mean, and what is kept."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from deep500.errors import NetworkError
from deep500.networks import Network, create
from deep500.networks.node import OPSET
from deep500.networks.onnx.load import DoubtfulParametersWarning
from deep500.networks.onnx.opsets import WRITTEN
from deep500.registry import load_backend
from deep500.tensors import TensorDescriptor
from tests.networks.test_graph import with_if

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
LIGHT = sorted((DATA / "light").glob("*.onnx"))
FOLDERS = [p for kind in ("pytorch-converted", "pytorch-operator") for p in sorted((DATA / kind).iterdir())]


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[Any] | None],
    outputs: list[str],
    arrays: dict[str, np.ndarray] | None = None,
    opset: int = OPSET,
    ir_version: int = 8,
) -> onnx.ModelProto:
    """A small model with float inputs and outputs."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in (arrays or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def affine() -> onnx.ModelProto:
    arrays = {"w": np.arange(6, dtype="float32").reshape(3, 2), "b": np.ones(2, "float32")}
    return model([helper.make_node("Gemm", ["x", "w", "b"], ["y"])], {"x": ["N", 3]}, ["y"], arrays)


def run(proto: onnx.ModelProto, *inputs: np.ndarray) -> list[Any]:
    return ReferenceEvaluator(proto).run(None, dict(zip([v.name for v in proto.graph.input], inputs, strict=True)))


def execute(network: Network, inputs: dict[str, np.ndarray]) -> dict[str, Any]:
    """The network's outputs on our reference backend."""
    return load_backend("reference").Executor(network).inference(inputs)


def saved_inputs(folder: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    def read(kind: str) -> list[np.ndarray]:
        paths = sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb"), key=lambda p: int(p.stem.split("_")[-1]))
        return [numpy_helper.to_array(onnx.load_tensor(str(p))) for p in paths]

    return read("input"), read("output")


# -- models of other exporters ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("path", FOLDERS, ids=lambda p: p.name)
def test_pytorch_models_compute_what_they_should(path: Path) -> None:
    network = Network.from_onnx(path / "model.onnx")
    again = Network.from_onnx(network.to_onnx())
    assert again == network
    inputs, expected = saved_inputs(path)
    once, twice = (execute(n, dict(zip(n.inputs, inputs, strict=True))) for n in (network, again))
    for name, want in zip(network.outputs, expected, strict=True):
        np.testing.assert_array_equal(once[name], twice[name])
        np.testing.assert_allclose(once[name], want, rtol=1e-3, atol=1e-5)
        assert network.descriptors()[name] == TensorDescriptor(str(want.dtype), want.shape)


@pytest.mark.parametrize("path", LIGHT, ids=lambda p: p.stem)
def test_light_models_load_and_round_trip(path: Path) -> None:
    network = Network.from_onnx(path)
    assert network == Network.from_onnx(network.to_onnx())
    shape = network.descriptors()[network.outputs[0]].shape
    assert shape is not None and 1000 in shape and len(network.nodes) > 15
    assert "?" not in str(network).splitlines()[-1]


def test_squeezenet_gives_the_published_output() -> None:
    """With logits of 1.6e10, which only a runtime that sums all alike computes: not onnx.reference."""
    ort = pytest.importorskip("onnxruntime")
    network = Network.from_onnx(DATA / "light" / "light_squeezenet.onnx")
    want = numpy_helper.to_array(onnx.load_tensor(str(DATA / "light" / "light_squeezenet_output_0.pb")))
    session = ort.InferenceSession(network.to_onnx(opset=22).SerializeToString(), providers=["CPUExecutionProvider"])
    got = session.run(None, {n: np.ones(d.shape, "float32") for n, d in network.inputs.items()})[0]
    np.testing.assert_allclose(got, want, rtol=1e-3)


@pytest.mark.parametrize("name", ["simple_cnn", "transformer", "lstm"])
def test_zoo_networks_give_the_same_bits_after_a_round_trip(name: str) -> None:
    network = create(name, batch=2, seed=3)
    inputs = {n: np.random.default_rng(0).random(d.shape).astype(d.dtype) for n, d in network.inputs.items()}
    again = Network.from_onnx(network.to_onnx().SerializeToString())
    first, second = execute(network, inputs), execute(again, inputs)
    assert first and all(np.abs(v).max() > 1e-3 for v in first.values())
    for output, value in first.items():
        np.testing.assert_array_equal(value, second[output])


# -- what a file's parts become ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("ir_version", [3, 4, 8])
def test_initializers_are_parameters_whether_or_not_they_are_inputs(listed: bool, ir_version: int) -> None:
    proto = affine()
    proto.ir_version = ir_version
    if listed:
        proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 2]))
        proto.graph.input.append(helper.make_tensor_value_info("b", TensorProto.FLOAT, [2]))
    network = Network.from_onnx(proto)
    assert list(network.inputs) == ["x"] and network.trainable() == ["w", "b"]
    assert [v.name for v in network.to_onnx().graph.input] == ["x"]


def test_symbolic_sizes_stay_symbolic() -> None:
    network = Network.from_onnx(affine())
    assert network.inputs["x"] == TensorDescriptor("float32", ("N", 3))
    assert network.to_onnx().graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert network.descriptors()["y"].shape == ("N", 2)


def test_the_callers_model_is_not_changed() -> None:
    proto = affine()
    before = proto.SerializeToString(deterministic=True)
    Network.from_onnx(proto)
    assert proto.SerializeToString(deterministic=True) == before


def test_trainable_are_weights_only() -> None:
    # fmt: off
    arrays = {
        "scale": np.ones(3, "float32"), "shift": np.zeros(3, "float32"), "mean": np.zeros(3, "float32"),
        "var": np.ones(3, "float32"), "low": np.float32(0), "pads": np.array([0, 0, 1, 1]), "fill": np.float32([0]),
        "unread": np.ones(2, "float32"), "kernel": np.ones((2, 3, 1, 1), "float16"), "table": np.ones((2, 3)),
        "scalar": np.float32(2),
    }
    # fmt: on
    nodes = [
        helper.make_node("BatchNormalization", ["x", "scale", "shift", "mean", "var"], ["n"]),
        helper.make_node("Clip", ["n", "low"], ["c"]),
        helper.make_node("Mul", ["c", "scalar"], ["m"]),
        helper.make_node("Cast", ["table"], ["t"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["m", "t"], ["y"]),
        helper.make_node("Conv", ["h", "kernel"], ["k"]),
    ]
    proto = model(nodes, {"x": [2, 3], "h": [1, 3, 4, 4]}, ["y"], arrays)
    proto.graph.input[1].type.tensor_type.elem_type = TensorProto.FLOAT16
    with pytest.warns(DoubtfulParametersWarning, match=r"4 arrays train, 7 do not.*'scalar' \(a single number"):
        network = Network.from_onnx(proto)
    assert network.trainable() == ["scale", "shift", "kernel", "table"]
    assert set(network.parameters) == set(arrays)
    again = Network.from_onnx(network.to_onnx())
    assert list(again.parameters) == list(network.parameters)


def test_trainability_round_trips() -> None:
    network = Network.from_onnx(affine())
    network.set_parameter("w", network.parameters["w"].value, trainable=False)
    network.add_parameter("odd", np.float64(1))  # a trainable scalar that is unread
    again = Network.from_onnx(network.to_onnx())
    assert again.trainable() == ["b", "odd"] and again == network


def test_large_and_small_arrays_keep_their_order_and_bits() -> None:
    rng = np.random.default_rng(0)
    network = Network()
    network.add_input("x", (1, 64))
    for i, size in enumerate((4096, 3, 2048, 1)):
        network.add_parameter(f"p{i}", rng.standard_normal(size).astype("float32"))
    network.add_parameter("text", np.array(["a", "b"]), trainable=False)
    for dtype in ("bfloat16", "float8e4m3fn", "int4"):
        kind = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, dtype.upper()))
        network.add_parameter(dtype, np.array([1, 2, 3]).astype(kind), trainable=False)
    again = Network.from_onnx(network.to_onnx())
    assert list(again.parameters) == list(network.parameters) and again == network


def test_constants_become_parameters() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones((2, 3), "float32"))),
        helper.make_node("Constant", [], ["axes"], value_ints=[1]),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("Constant", [], ["word"], value_string="abc"),
        helper.make_node("Constant", [], ["unread"], value_int=3),
        helper.make_node("Add", ["x", "c"], ["s"]),
        helper.make_node("ReduceSum", ["s", "axes"], ["r"], keepdims=0),
        helper.make_node("Mul", ["r", "half"], ["y"]),
    ]
    proto = model(nodes, {"x": [2, 3]}, ["y", "word"])
    proto.graph.output[1].type.tensor_type.elem_type = TensorProto.STRING
    network = Network.from_onnx(proto)
    assert [n.op_type for n in network.nodes] == ["Add", "ReduceSum", "Mul"] and network.trainable() == []
    assert set(network.parameters) == {"c", "axes", "half", "word"}
    assert network.parameters["word"].value.tolist() == "abc"
    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(run(network.to_onnx(), x)[0], run(proto, x)[0])


def test_identities_of_initializers_do_not_tie_parameters() -> None:
    nodes = [
        helper.make_node("Identity", ["ones"], ["w2"]),
        helper.make_node("Identity", ["w2"], ["w3"]),
        helper.make_node("Identity", ["only_shared"], ["w4"]),
        helper.make_node("Add", ["x", "ones"], ["a"]),
        helper.make_node("Mul", ["a", "w2"], ["b"]),
        helper.make_node("Mul", ["b", "w3"], ["c"]),
        helper.make_node("Mul", ["c", "w4"], ["d"]),
        helper.make_node("Identity", ["d"], ["y"]),
    ]
    arrays = {"ones": np.ones(3, "float32"), "only_shared": np.ones(3, "float32")}
    network = Network.from_onnx(model(nodes, {"x": [3]}, ["y"], arrays))
    assert network.trainable() == ["ones", "w2", "w3", "w4"] == list(network.parameters)
    values = [network.parameters[n].value for n in network.trainable()]
    assert not any(np.shares_memory(values[0], v) for v in values[1:])
    assert [n.op_type for n in network.nodes] == ["Add", "Mul", "Mul", "Mul", "Identity"]


@pytest.mark.parametrize("untrained", [False, True])
def test_identities_of_trained_arrays_are_these_arrays(untrained: bool) -> None:
    """Also where a branch captures one; in a network that was not trained, a line says so: they may be copies."""
    branches = [
        helper.make_graph(
            [helper.make_node(kind, ["x", "w3"], [kind])],
            kind,
            [],
            [helper.make_tensor_value_info(kind, TensorProto.FLOAT, None)],
        )
        for kind in ("Mul", "Add")
    ]
    nodes = [
        helper.make_node("Identity", ["w"], ["w2"]),
        helper.make_node("Identity", ["w2"], ["w3"]),
        helper.make_node("Identity", ["ones"], ["more"]),
        helper.make_node("If", ["go"], ["b"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Mul", ["b", "w"], ["c"]),
        helper.make_node("Mul", ["c", "w2"], ["d"]),
        helper.make_node("Mul", ["d", "ones"], ["e"]),
        helper.make_node("Mul", ["e", "more"], ["y"]),
    ]
    ones = np.ones(3, "float32") if untrained else np.array([1, 2, 4], "float32")
    arrays = {"w": np.array([1, 3, 2], "float32"), "ones": ones, "go": np.array(True)}
    proto = model(nodes, {"x": [3]}, ["y"], arrays)
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        network = Network.from_onnx(proto)
    assert network.trainable() == ["w", "ones", *["more"] * untrained]
    assert [str(note.message) for note in noted] == [] or "got 'w', tied, for 3 nodes" in str(noted[0].message)
    assert len(noted) == untrained
    x = np.arange(3, dtype="float32")
    np.testing.assert_array_equal(run(network.to_onnx(), x)[0], run(proto, x)[0])


def test_own_files_are_read_as_they_stand() -> None:
    """Constant and Identity nodes that the user put into a network survive."""
    network = Network.from_onnx(affine())
    network.add_node("Identity", "w", "tied")
    network.add_node("Constant", [], "c", value=np.ones(2, "float32"))
    network.add_node("MatMul", ["x", "tied"], "m")
    assert Network.from_onnx(network.to_onnx()) == network
    assert [n.op_type for n in Network.from_onnx(network.to_onnx()).nodes] == ["Gemm", "Identity", "Constant", "MatMul"]


@pytest.mark.parametrize(("read", "outputs"), [(False, 1), (True, 3)])
def test_batch_normalization_follows_the_mode_unless_its_statistics_are_read(read: bool, outputs: int) -> None:
    """PyTorch's legacy export in training has training_mode=1 and statistics that go nowhere."""
    arrays = {n: np.ones(3, "float32") for n in ("s", "b", "m", "v")}
    node = helper.make_node(
        "BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "m2", "v2"], training_mode=1, momentum=0.8
    )
    network = Network.from_onnx(model([node], {"x": [2, 3]}, ["y", "m2"] if read else ["y"], arrays))
    (node,) = network.nodes
    assert len(node.outputs) == outputs and node.attribute("training_mode") == int(read)
    assert node.attribute("momentum") == pytest.approx(0.8)


@pytest.mark.parametrize("on", [False, True])
def test_dropout_that_always_drops_follows_the_mode(on: bool) -> None:
    arrays = {"ratio": np.float32(0.3), "on": np.array(on)}
    node = helper.make_node("Dropout", ["x", "ratio", "on"], ["y"])
    network = Network.from_onnx(model([node], {"x": [2, 3]}, ["y"], arrays))
    assert network.nodes[0].inputs == (("x", "ratio") if on else ("x", "ratio", "on"))


@pytest.mark.backend("pytorch")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_pytorch_exports_train_like_the_module(training: bool) -> None:
    """Equal initial weights are shared by the exporter, its training mode writes training_mode=1: see both undone."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, bias=False),
        nn.BatchNorm2d(8),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    x = torch.randn(2, 3, 5, 5)
    want = module.eval()(x).detach().numpy()
    file = io.BytesIO()
    torch.onnx.export(
        module.train(training),
        (x,),
        file,
        dynamo=False,
        do_constant_folding=False,
        input_names=["x"],
        training=torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL,
        dynamic_axes={"x": {0: "batch"}},
    )
    network = Network.from_onnx(file.getvalue())
    assert set(network.trainable()) == {name for name, _ in module.named_parameters()}
    statistics = {name for name, _ in module.named_buffers() if "running" in name}
    assert statistics == {n for n, p in network.parameters.items() if p.value.size == 8 and not p.trainable}
    assert all(n.attribute("training_mode") == 0 for n in network.nodes if n.op_type == "BatchNormalization")
    assert network.inputs["x"].shape == ("batch", 3, 5, 5)
    if not training:  # the training export runs the module and so changes its statistics
        np.testing.assert_allclose(execute(network, {"x": x.numpy()})[network.outputs[0]], want, rtol=1e-4, atol=1e-6)


def test_old_opsets_mean_what_they_meant() -> None:
    """Softmax before opset 13 flattens all axes from ``axis`` on."""
    proto = model([helper.make_node("Softmax", ["x"], ["y"])], {"x": [2, 3, 2]}, ["y"], opset=11)
    x = np.random.default_rng(0).standard_normal((2, 3, 2)).astype("float32")
    got = run(Network.from_onnx(proto).to_onnx(), x)[0]
    flat = np.exp(x.reshape(2, 6))
    np.testing.assert_allclose(got.reshape(2, 6), flat / flat.sum(1, keepdims=True), rtol=1e-5)


def test_names_are_made_unique() -> None:
    named = [("x", "Relu_b", "n"), ("Relu_b", "b", "n"), ("b", "y", ""), ("y", "z", "Relu_y")]
    nodes = [helper.make_node("Relu", [read], [written], name=name) for read, written, name in named]
    network = Network.from_onnx(model(nodes, {"x": [1]}, ["z"]))
    assert [n.name for n in network.nodes] == ["n", "n_1", "Relu_y_1", "Relu_y"]


def test_inputs_and_parameters_may_be_outputs_and_unused_inputs_stay() -> None:
    proto = model([], {"x": [2], "unused": [3]}, ["x", "w"], {"w": np.ones(2, "float32")})
    network = Network.from_onnx(proto)
    assert network.outputs == ["x", "w"] and list(network.inputs) == ["x", "unused"]
    assert Network.from_onnx(network.to_onnx()) == network


def test_sparse_initializers_become_dense() -> None:
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2, 3]}, ["y"])
    values = numpy_helper.from_array(np.float32([5, 7]), "w")
    for indices in (np.array([1, 5]), np.array([[0, 1], [1, 2]])):
        del proto.graph.sparse_initializer[:]
        sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(indices, "i"), [2, 3])
        proto.graph.sparse_initializer.append(sparse)
        network = Network.from_onnx(proto)
        np.testing.assert_array_equal(network.parameters["w"].value, [[0, 5, 0], [0, 0, 7]])


def test_local_functions_are_inlined() -> None:
    function = helper.make_function(
        "mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", OPSET)]
    )
    proto = model([helper.make_node("Twice", ["x"], ["y"], domain="mine")], {"x": [2]}, ["y"])
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    proto.functions.append(function)
    assert [n.op_type for n in Network.from_onnx(proto).nodes] == ["Add"]


def test_sequences_optionals_and_unknown_ranks_are_kept() -> None:
    network = Network()
    network.add_input("several", ("N", 2), "sequence(float32)")
    network.add_input("perhaps", None, "optional(sequence(int64))")
    network.add_input("any", None)
    network.add_node("SequenceLength", "several", "n")
    network.add_node("Relu", "any", "relu")
    network.add_node("Foo", "any", "foo", domain="mine", numbers=[1.0, 2.0], word="w", empty=[])
    for name in ("several", "n", "relu", "foo"):
        network.add_output(name)
    again = Network.from_onnx(network.to_onnx())
    assert again == network and again.inputs == network.inputs
    assert again.descriptors()["relu"] == TensorDescriptor("float32", None)
    assert again.descriptors()["foo"] == TensorDescriptor(None, None)


def test_subgraphs_round_trip() -> None:
    network = with_if()
    network.add_output("chosen")
    again = Network.from_onnx(network.to_onnx())
    assert again == network and again.node("if").reads == ("yes", "sum", "xw")


def test_constants_that_sub_graphs_would_hide() -> None:
    """ONNX lets a later node use a name from inside an earlier sub-graph; there it is renamed."""
    proto = with_if().to_onnx()
    del proto.metadata_props[:]
    for name in ("a", "free"):  # the first is a name inside the branches
        proto.graph.node.append(helper.make_node("Constant", [], [name], value_float=1.0))
        proto.graph.node.append(helper.make_node("Neg", [name], [f"minus_{name}"]))
    network = Network.from_onnx(proto)
    assert {"a", "free"} <= set(network.parameters)
    onnx.checker.check_model(network.to_onnx())


def test_every_domain_is_imported() -> None:
    network = Network()
    network.add_input("x", (2, 3))
    network.add_node("Normalizer", "x", "y", domain="ai.onnx.ml", norm="L2")
    network.add_node("Foo", "y", "z", domain="mine")
    imports = {o.domain: o.version for o in network.to_onnx().opset_import}
    assert imports.pop("ai.onnx.ml") > 1
    assert imports == {"": WRITTEN, "mine": 1}


# -- lower opsets -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("opset", [26, 22, 17, 15])
def test_lower_opsets_run_in_onnxruntime(opset: int) -> None:
    ort = pytest.importorskip("onnxruntime")
    network = create("resnet", depth=20, batch=1, seed=1)
    proto = network.to_onnx(opset=opset)
    assert {o.domain: o.version for o in proto.opset_import} == {"": opset}
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype("float32")
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    got = session.run(None, {next(iter(network.inputs)): x})[0]
    want = run(network.to_onnx(), x)[0]
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())
    assert Network.from_onnx(proto) == network


def test_what_cannot_be_converted_down_is_named() -> None:
    network = Network.from_onnx(affine())
    network.add_node("Gelu", "y", "z")
    with pytest.raises(NetworkError, match=r"opset 15, to which Gelu cannot be converted.*choose a higher opset"):
        network.to_onnx(opset=15)
    for opset in (0, OPSET + 1):
        with pytest.raises(NetworkError, match=f"got opset {opset}; expected 1 to {OPSET}"):
            network.to_onnx(opset=opset)


def test_what_the_converter_adds_is_never_trainable() -> None:
    nodes = [helper.make_node("Dropout", ["x"], ["d"], ratio=0.4), helper.make_node("Clip", ["d"], ["y"], max=2.0)]
    network = Network.from_onnx(model(nodes, {"x": [2]}, ["y"], opset=7))
    assert len(network.parameters) >= 2 and network.trainable() == []
    ours = model(nodes, {"x": [2]}, ["y"], opset=7)
    helper.set_model_props(ours, {"deep500.constants": "[]"})
    assert Network.from_onnx(ours).trainable() == []
