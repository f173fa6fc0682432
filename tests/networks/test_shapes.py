"""Descriptors of values, compared with ONNX's own test cases and with what the operators compute."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from deep500.frameworks import reference
from deep500.networks import Emitter, Network, add_loss, create
from deep500.networks.shapes import _evaluator
from deep500.tensors import TensorDescriptor


def image() -> tuple[Network, Emitter]:
    net = Network()
    net.add_input("x", ("N", 4, 6, 6))
    return net, Emitter(net)


def shape_of(net: Network, value: str) -> object:
    return net.descriptors()[value].shape


def test_batch_stays_symbolic_through_computed_shapes() -> None:
    """The exporter's idiom: Shape, Gather, Concat, Reshape."""
    net, op = image()
    batch = op("Unsqueeze", op("Gather", op("Shape", "x"), op.constant(np.int64(0))), op.ints(0))
    flat = op("Reshape", "x", op("Concat", batch, op.ints(-1), axis=0))
    assert shape_of(net, flat) == ("N", 144)
    assert shape_of(net, op("MatMul", flat, op.constant(np.ones((144, 7), "float32")))) == ("N", 7)


CASES: list[tuple[str, object]] = [
    ("Reshape [-1, 144]", ("N", 144)),
    ("Reshape [0, -1]", ("N", 144)),
    ("Reshape [-1]", (None,)),  # 144 N is no symbol
    ("Slice of three samples", (None, 4, 6, 6)),  # fewer if N < 3
    ("Slice of one row", ("N", 4, 1, 6)),
    ("Concat with itself", (None, 4, 6, 6)),
    ("Expand to computed shape", ("N", 4, 6, 6)),
    ("Range over the batch", ("N",)),
    ("Resize by computed sizes", ("N", 4, 12, 12)),
    ("Pad by computed pads", ("N", 4, 8, 6)),
    ("Tile", ("N", 8, 6, 6)),
]


@pytest.mark.parametrize(("case", "want"), CASES, ids=[c[0] for c in CASES])
def test_what_is_known_of_awkward_operators(case: str, want: object) -> None:
    net, op = image()
    double = ("Mul", op("Shape", "x"), op.ints(1, 1, 2, 2))
    build = {
        "Reshape [-1, 144]": lambda: op("Reshape", "x", op.ints(-1, 144)),
        "Reshape [0, -1]": lambda: op("Reshape", "x", op.ints(0, -1)),
        "Reshape [-1]": lambda: op("Reshape", "x", op.ints(-1)),
        "Slice of three samples": lambda: op("Slice", "x", op.ints(0), op.ints(3), op.ints(0)),
        "Slice of one row": lambda: op("Slice", "x", op.ints(1), op.ints(2), op.ints(2)),
        "Concat with itself": lambda: op("Concat", "x", "x", axis=0),
        "Expand to computed shape": lambda: op("Expand", op.constant(np.float32(1)), op("Shape", "x")),
        "Range over the batch": lambda: op(
            "Range", op.constant(np.int64(0)), op("Squeeze", op("Shape", "x", end=1)), op.constant(np.int64(1))
        ),
        "Resize by computed sizes": lambda: op("Resize", "x", "", "", op(*double)),
        "Pad by computed pads": lambda: op("Pad", "x", op("Concat", op.ints(0, 0), op.ints(1, 0, 0, 0, 1, 0), axis=0)),
        "Tile": lambda: op("Tile", "x", op.ints(1, 2, 1, 1)),
    }
    value = build[case]()
    got = net.descriptors()[value]
    assert got.shape == want
    net.add_output(value)
    for batch in (2, 5):  # what is claimed holds
        computed = ReferenceEvaluator(net.to_onnx()).run(None, {"x": np.zeros((batch, 4, 6, 6), "float32")})[0]
        assert got.accepts(computed.shape)
        assert [batch if s == "N" else s for s, k in zip(got.shape or (), computed.shape, strict=True) if s] == [
            k for s, k in zip(got.shape or (), computed.shape, strict=True) if s
        ]


def test_two_symbols_stay_distinct() -> None:
    net = Network()
    net.add_input("a", ("N", "M"))
    op = Emitter(net)
    swapped = op("Transpose", "a", perm=[1, 0])
    back = op("Reshape", "a", op("Shape", swapped))
    assert shape_of(net, back) == ("M", "N")


def test_symbols_that_inference_invents_are_unknown() -> None:
    net = Network()
    net.add_input("a", ("N",), "bool")
    net.add_node("NonZero", "a", "where")
    assert shape_of(net, "where") == (1, None)


def test_unknown_operators_are_unknown_and_declarations_help() -> None:
    net, op = image()
    op("Foo", "x", domain="mine", output="foo")
    op("Relu", "foo", output="after")
    op("Relu", "x", output="beside")
    assert net.descriptors()["foo"] == TensorDescriptor(None, None)
    assert net.descriptors()["after"].shape is None
    assert net.descriptors()["beside"] == TensorDescriptor("float32", ("N", 4, 6, 6))
    net.add_output("after")
    proto = net.to_onnx()
    proto.graph.value_info.append(helper.make_tensor_value_info("foo", TensorProto.FLOAT, ["N", 7]))
    declared = Network.from_onnx(proto)
    assert declared.descriptors()["after"] == TensorDescriptor("float32", ("N", 7))
    rewired = declared.copy()
    declared.replace(declared.nodes[0].name, "Bar", domain="mine")
    assert declared.descriptors()["after"].shape is None, "the declaration was for the old operator"
    rewired.add_edge("x", rewired.nodes[0].name)
    assert rewired.descriptors()["after"].shape is None, "the declaration was for fewer inputs"


def test_descriptors_follow_edits() -> None:
    net, op = image()
    flat = op("Flatten", "x")
    assert shape_of(net, flat) == ("N", 144)
    first = net.descriptors()
    assert net.descriptors() is first, "kept until the next edit"
    net.replace(net.producer(flat).name, "GlobalAveragePool")
    assert shape_of(net, flat) == ("N", 4, 1, 1)


def test_weights_are_described_but_not_copied() -> None:
    net = Network()
    net.add_input("x", (1, 1000))
    net.add_parameter("w", np.ones((1000, 3), "float16"))
    net.add_parameter("empty", np.ones((0, 3), "float16"))
    net.add_parameter("text", np.array(["a"]), trainable=False)
    described = net.descriptors()
    assert described["w"] == TensorDescriptor("float16", (1000, 3))
    assert described["empty"] == TensorDescriptor("float16", (0, 3)) and described["text"].dtype == "string"


@pytest.mark.parametrize("name", ["simple_cnn", "resnet", "transformer"])
def test_gradients_have_the_shape_of_what_they_belong_to(name: str) -> None:
    net = add_loss(create(name))
    with_gradient = net.with_gradient()
    described = with_gradient.descriptors()
    pairs = net.gradient()
    assert len(pairs) == len(net.trainable())
    for parameter, gradient in pairs:
        assert described[gradient] == described[parameter]


def test_every_shape_agrees_with_the_operator_tests_of_onnx() -> None:
    """Every eighth of ONNX's node tests, for speed: they load; no inferred shape contradicts the expected output."""
    from onnx.backend.test.case.node import collect_testcases

    with np.errstate(all="ignore"):
        cases = [case for case in collect_testcases(None) if case.data_sets][::8]
    checked, exact = 0, 0
    for case in cases:
        net = Network.from_onnx(case.model)
        described = net.descriptors()
        for name, want in zip(net.outputs, case.data_sets[0][1], strict=True):
            if isinstance(want, np.ndarray):
                got = described[name]
                assert got.accepts(want.shape), (case.name, name, str(got), want.shape)
                checked += 1
                exact += got.shape == want.shape
    assert checked > 200 and exact > 0.95 * checked, (checked, exact)


def test_full_check_of_onnx_accepts_what_is_written() -> None:
    net = add_loss(create("simple_cnn")).with_gradient()
    onnx.checker.check_model(net.to_onnx(), full_check=True)


def test_equal_shape_operators_are_prepared_once() -> None:
    """Preparing ONNX's evaluator takes longer than running it, and exported models repeat a few operators all over."""
    net, op = image()
    value = "x"
    for axis in (0, 1, 2, 3) * 5:
        size = op("Unsqueeze", op("Gather", op("Shape", value), op.constant(np.int64(axis))), op.ints(0))
        value = op("Reshape", value, op("Concat", op.ints(-1), size, axis=0))
        value = op("Reshape", value, op.ints(2, 4, 6, 6))
    _evaluator.cache_clear()
    assert shape_of(net, value) == (2, 4, 6, 6)
    assert _evaluator.cache_info().misses <= 5, "one for each kind of operator"


def test_one_evaluator_for_nodes_whose_inputs_repeat_differently() -> None:
    net, op = image()
    two, three = op.ints(2), op.ints(3)
    shapes = [
        shape_of(net, op("Expand", op.constant(np.zeros(1)), op("Mul", a, b))) for a, b in [(two, three), (two, two)]
    ]
    assert shapes == [(6,), (4,)]


@pytest.mark.parametrize("height", [2, "H"])
def test_windows_larger_than_images_do_not_end_the_process(height: int | str) -> None:
    """ONNX's inference does, at a cut of an axis of size -1."""
    network = Network("windows")
    network.add_input("x", ("N", 1, height, 2))
    network.add_parameter("w", np.ones((1, 1, 4, 1), "float32"))
    for name, number in (("begin", 0), ("end", -1), ("axis", 2)):
        network.add_parameter(name, np.array([number]), trainable=False)
    network.add_node("Conv", ["x", "w"], ["y"])
    network.add_node("Slice", ["y", "begin", "end", "axis"], ["z"])
    network.add_output("z")
    assert network.descriptors()["z"].shape in (None, ("N", 1, None, 2))


def test_types_behind_an_if_that_only_the_file_tells() -> None:
    """Its branches give unlike types, as an exporter writes: what follows is known by the declaration of its output."""
    text = """<ir_version: 10, opset_import: ["" : 20]> g (bool go, double[N,2] x) => (double[N,2] y) <double[N,2] h> {
        h = If (go) <then_branch = t () => (double[N,2] a) { a = Neg(x) },
                     else_branch = e () => (float[N,2] b) { s = Shape(x) b = ConstantOfShape(s) }>
        z = Mul(h, x) y = Abs(z) }"""
    network = Network.from_onnx(onnx.parser.parse_model(text))
    described = network.descriptors()
    assert [str(described[name]) for name in ("h", "z", "y")] == ["float64[Nx2]"] * 3


@pytest.mark.parametrize("factor", [0.4, 0.7, 1.1, 1.3, 1.7, 2.3, 5 / 3])
def test_factors_are_rounded_as_kernels_round_them(factor: float) -> None:
    """10 times 1.3 is 13; the gradient of a mean behind it divides by that. One behind another, too."""
    network = Network("resized")
    network.add_input("x", ("N", 1, 3, 10))
    network.add_parameter("w", np.ones((1, 1, 1, 1), np.float32))
    network.add_parameter("factors", np.array([1, 1, 1, factor], np.float32), trainable=False)
    network.add_node("Mul", ["x", "w"], ["h"])
    network.add_node("Resize", ["h", "", "factors"], ["wide"], mode="linear")
    network.add_node("Resize", ["wide", "", "factors"], ["wider"], mode="linear")
    network.add_node("ReduceMean", ["wider"], ["loss"], keepdims=0)
    for name in ("loss", "wide", "wider"):
        network.add_output(name)
    executor = reference.from_model(network)
    x = np.random.default_rng(0).normal(size=(2, 1, 3, 10)).astype(np.float32)
    outputs = executor.inference_and_backprop({"x": x}, "loss")
    for name in ("wide", "wider"):
        assert network.descriptors()[name].shape == ("N", *outputs[name].shape[1:])
    gradient = executor.network.fetch_tensors(["w.grad"])[0]
    np.testing.assert_allclose(gradient.sum(), outputs["loss"], rtol=1e-5)  # it is linear in w
