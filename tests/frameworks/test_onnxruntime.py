"""The ONNX Runtime backend: what it writes in other words, modes of inference, dtypes, seeds, others' sessions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from deep500.errors import InputError, NetworkError, UnsupportedOperator
from deep500.networks import Network, add_loss, create
from tests.conftest import load_backend
from tests.tolerances import assert_close

pytestmark = pytest.mark.backend("onnxruntime")


@pytest.fixture(scope="module")
def ort() -> Any:
    return load_backend("onnxruntime")


def feeds_of(net: Network, size: int = 2) -> dict[str, np.ndarray]:
    rng, feeds = np.random.default_rng(0), {}
    for name, described in net.inputs.items():
        shape = tuple(size if isinstance(d, str) else d for d in described.shape)
        real = described.dtype.startswith("float")
        feeds[name] = (rng.normal(size=shape) if real else rng.integers(0, 3, shape)).astype(described.dtype)
    return feeds


SMALL = {"lenet": {"shape": (1, 12, 12)}, "resnet": {"depth": 8, "shape": (3, 8, 8)}, "lstm": {"width": 6}}


@pytest.mark.parametrize("name", SMALL)
def test_forward_in_float32_is_the_references(ort: Any, name: str) -> None:
    net = create(name, **SMALL[name])
    feeds = feeds_of(net)
    got, want = (module.from_model(net).inference(feeds)["output"] for module in (ort, load_backend("reference")))
    assert np.abs(want).max() > 1e-3
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


# -- nodes in other words ---------------------------------------------------------------------------------------------
def single(op_type: str, arrays: list[np.ndarray], outputs: int = 1, domain: str = "", **attributes: Any) -> Network:
    net = Network("single")
    for i, array in enumerate(arrays):
        net.add_input(f"x{i}", (None,) * array.ndim, str(array.dtype))
    names = [f"y{i}" for i in range(outputs)]
    net.add_node(op_type, [f"x{i}" for i in range(len(arrays))], names, name="node", domain=domain, **attributes)
    for name in names:
        net.add_output(name)
    return net


def run(ort: Any, net: Network, arrays: list[np.ndarray]) -> list[np.ndarray]:
    return list(ort.from_model(net).inference({f"x{i}": a for i, a in enumerate(arrays)}).values())


CONVOLUTIONS: list[tuple[dict[str, Any], int]] = [
    ({}, 1),
    ({"strides": [2, 1], "pads": [1, 0, 2, 1]}, 1),
    ({"dilations": [2, 1], "strides": [1, 3]}, 2),
    ({"group": 2, "pads": [1, 1, 1, 1]}, 2),
]


@pytest.mark.parametrize(("attributes", "group"), CONVOLUTIONS)
def test_convolution_in_float64_is_pytorchs(ort: Any, attributes: dict[str, Any], group: int) -> None:
    torch = pytest.importorskip("torch")
    rng, attributes = np.random.default_rng(0), {**attributes, "group": group}
    x, w, b = rng.normal(size=(2, 4, 9, 8)), rng.normal(size=(6, 4 // group, 3, 2)), rng.normal(size=6)
    top, left, bottom, right = attributes.get("pads", [0] * 4)
    stride, dilation = attributes.get("strides", 1), attributes.get("dilations", 1)
    wide = torch.nn.functional.pad(torch.tensor(x), (left, right, top, bottom))
    want = torch.nn.functional.conv2d(wide, torch.tensor(w), torch.tensor(b), stride, 0, dilation, group)
    assert_close(run(ort, single("Conv", [x, w, b], **attributes), [x, w, b])[0], want)


@pytest.mark.parametrize(
    "extra", [{}, {"strides": [2, 3], "output_padding": [1, 0]}, {"dilations": [2, 2], "group": 2}]
)
def test_transposed_convolution_in_float64_is_pytorchs(ort: Any, extra: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    rng, group = np.random.default_rng(0), extra.get("group", 1)
    x, w, b = rng.normal(size=(2, 4, 5, 4)), rng.normal(size=(4, 6 // group, 3, 3)), rng.normal(size=6)
    want = torch.nn.functional.conv_transpose2d(
        *(torch.tensor(v) for v in (x, w, b)),
        extra.get("strides", 1),
        1,
        extra.get("output_padding", 0),
        group,
        extra.get("dilations", 1),
    )
    got = run(ort, single("ConvTranspose", [x, w, b], pads=[1, 1, 1, 1], **extra), [x, w, b])[0]
    assert_close(got, want)


def _rows() -> dict[str, tuple[str, list[np.ndarray], dict[str, Any]]]:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 3, 6, 5))
    floats = np.array([5.5, -5.5, 4.0, -4.0, 0.3]), np.array([-2.0, 2.0, 2.0, -2.0, np.inf])
    shifts = np.array([1, 7, 8, -1, 0], np.int8)
    return {
        "AveragePool": ("AveragePool", [x], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}),
        "AveragePool padded": (
            "AveragePool",
            [x],
            {"kernel_shape": [2, 2], "pads": [1, 1, 0, 0], "count_include_pad": 1},
        ),
        "AveragePool same": ("AveragePool", [x], {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
        "GlobalMaxPool": ("GlobalMaxPool", [x], {}),
        "InstanceNormalization": ("InstanceNormalization", [x, x[0, :, 0, 0], x[1, :, 0, 0]], {"epsilon": 2.0**-10}),
        "LayerNormalization": ("LayerNormalization", [x, x[0, 0, 0], x[1, 0, 0]], {}),
        "Tan": ("Tan", [x], {}),
        "Mean": ("Mean", [x, 2 * x], {}),
        "NonZero": ("NonZero", [np.array([[0.0, 1.0], [np.nan, 0.0]])], {}),
        "OneHot": ("OneHot", [np.array([0, 2, -1]), np.array(3), np.array([-0.5, 2.5])], {}),
        "Mod": ("Mod", list(floats), {}),
        "BitShift right": ("BitShift", [np.array([-1, 127, -128, -100, 5], np.int8), shifts], {"direction": "RIGHT"}),
        "BitShift left": ("BitShift", [np.array([-127, 3, 1, 1, 5], np.int8), shifts], {"direction": "LEFT"}),
        "Mul of int16": ("Mul", [np.array([300, -7], np.int16), np.array([300, 2], np.int16)], {}),
    }


@pytest.mark.parametrize("case", _rows())
def test_other_words_mean_the_same(ort: Any, case: str) -> None:
    from onnx.reference import ReferenceEvaluator

    op_type, arrays, attributes = _rows()[case]
    net = single(op_type, arrays, **attributes)
    for i in range(len(arrays)):  # shapes that are known, for automatic padding
        net.inputs[f"x{i}"] = type(net.inputs["x0"])(str(arrays[i].dtype), arrays[i].shape)
    (got,) = run(ort, net, arrays)
    want = np.asarray(ReferenceEvaluator(net.to_onnx()).run(None, {f"x{i}": a for i, a in enumerate(arrays)})[0])
    assert got.dtype == want.dtype
    assert_close(got, want, err_msg=case)


def test_erf_in_float64_is_as_exact_as_the_dtype(ort: Any) -> None:
    from scipy.special import erf

    x = np.concatenate([np.linspace(-7, 7, 5001), [0.0, 1e-300, np.inf, -np.inf]])
    np.testing.assert_allclose(run(ort, single("Erf", [x]), [x])[0], erf(x), rtol=4e-15)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "uint4"])
def test_dtypes_that_numpy_lacks_go_in_and_out(ort: Any, dtype: str) -> None:
    import ml_dtypes

    kind = np.dtype(getattr(ml_dtypes, dtype))
    x = np.array([[1, 2, 3], [0, 5, 6]], np.float32)  # an odd row: 4-bit numbers share bytes across rows
    (got,) = run(ort, single("Cast", [x], to=onnx.helper.np_dtype_to_tensor_dtype(kind)), [x])
    np.testing.assert_array_equal(got.astype(np.float32), x)
    assert got.dtype == kind
    (back,) = run(ort, single("Cast", [got], to=onnx.TensorProto.FLOAT), [got])
    np.testing.assert_array_equal(back, x)


# -- sessions ---------------------------------------------------------------------------------------------------------
def test_models_are_written_for_what_the_installed_version_reads(ort: Any) -> None:
    from deep500.frameworks.onnxruntime.compiler import _model, cut
    from deep500.frameworks.onnxruntime.session import limits

    opset, ir = limits()
    model = _model(cut(create("mlp"), ["output"]), [], opset)
    assert model.ir_version <= ir and model.opset_import[0].version == opset <= onnx.defs.onnx_opset_version()
    newest = create("mlp").to_onnx()
    newest.ir_version = onnx.IR_VERSION
    assert ort.from_onnx(newest).inference(feeds_of(create("mlp")))["output"].shape == (2, 10)


def test_running_statistics_are_not_overwritten_in_place(ort: Any) -> None:
    net = add_loss(create("resnet", depth=8, shape=(3, 8, 8)))
    executor = ort.from_model(net)
    held = executor.network.fetch_tensors(["bn1.running_mean", "bn1.running_var"])
    kept = [array.copy() for array in held]
    executor.inference_and_backprop(feeds_of(net, 4))
    for array, copy, name in zip(held, kept, ["bn1.running_mean", "bn1.running_var"], strict=True):
        np.testing.assert_array_equal(array, copy)
        assert not np.array_equal(executor.network.fetch_tensors([name])[0], copy)


def test_inference_follows_every_write(ort: Any) -> None:
    net = Network()
    net.add_input("x", ("N",))
    net.add_parameter("w", np.float32(2))
    net.add_parameter("c", np.float32(1), trainable=False)
    net.add_node("Mul", ["x", "w"], ["h"])
    net.add_node("Add", ["h", "c"], ["y"])
    net.add_output("y")
    executor, x = ort.from_model(net), {"x": np.ones(2, np.float32)}
    for step in range(1, 6):
        assert executor.inference(x)["y"][0] == executor.network.fetch_tensors(["w"])[0] + 1
        executor.network.feed_tensor("w", np.float32(10 * step))
    assert executor._live  # parameters are inputs by now: no session per write
    sessions = [program.session for program, _ in executor._inferences.values()]
    executor.network.feed_tensor("w", np.float32(7))
    assert executor.inference(x)["y"][0] == 8
    assert [program.session for program, _ in executor._inferences.values()] == sessions
    executor.network.feed_tensor("c", np.float32(5))
    assert executor.inference(x)["y"][0] == 12


def test_dropout_is_a_function_of_the_executors_seed(ort: Any) -> None:
    net = Network()
    net.add_input("x", ("N",))
    net.add_parameter("w", np.float32(1))
    net.add_parameter("rate", np.float32(0.25), trainable=False)
    net.add_node("Mul", ["x", "w"], ["h"])
    net.add_node("Dropout", ["h", "rate"], ["d"], seed=11)
    net.add_node("ReduceMean", "d", "loss", keepdims=0)
    for name in ("d", "loss"):
        net.add_output(name)
    first, second = ort.from_model(net, seed=5), ort.from_model(net, seed=5)
    x = {"x": np.ones(4000, np.float32)}
    a, b = (first.inference_and_backprop(x)["d"] for _ in range(2))
    np.testing.assert_array_equal(a, second.inference_and_backprop(x)["d"])
    assert not np.array_equal(a, b)
    assert set(np.unique(a)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((a == 0).mean() - 0.25) < 0.05
    np.testing.assert_allclose(first.network.fetch_tensors(["w.grad"])[0], b.mean(), rtol=1e-5)
    first.reseed(6)  # the node's own seed does not pin it
    assert not np.array_equal(a, first.inference_and_backprop(x)["d"])


def test_what_cannot_run_is_named_as_the_user_knows_it(ort: Any) -> None:
    net = single("ImageDecoder", [np.zeros(4, np.uint8)])
    net.add_input("u", (3,), "uint64")
    net.add_parameter("k", np.array([1]), trainable=False)
    net.add_node("TopK", ["u", "k"], ["v", "i"], name="top")
    net.add_output("v")
    with pytest.raises(UnsupportedOperator, match=r"got 2 node.*'node' \(ImageDecoder.*'top' \(TopK") as error:
        ort.from_model(net)
    assert "reference" in str(error.value) and "onnxruntime_src" not in str(error.value)


def test_shapes_that_do_not_fit_are_an_error_of_ours(ort: Any) -> None:
    arrays = [np.zeros((2, 3), np.float32), np.zeros((4, 5), np.float32)]
    with pytest.raises((InputError, NetworkError), match=r"shape|fit"):
        run(ort, single("MatMul", arrays), arrays)


def test_native_sessions_run_and_do_not_train(ort: Any) -> None:
    import onnxruntime

    net = create("mlp", shape=(4,), classes=3)
    session = onnxruntime.InferenceSession(
        net.to_onnx(opset=22).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    executor, feeds = ort.from_native(session), feeds_of(net)
    assert_close(executor.inference(feeds)["output"], ort.from_model(net).inference(feeds)["output"])
    np.testing.assert_array_equal(executor.network.fetch_tensors(["output"])[0], session.run(None, feeds)[0])
    with pytest.raises(InputError, match="weather"):
        executor.inference({**feeds, "weather": feeds["input"]})
    with pytest.raises(UnsupportedOperator, match="from_onnx"):
        executor.inference_and_backprop(feeds)
    with pytest.raises(NetworkError, match="from_onnx"):
        executor.network.add_output("output")
    with pytest.raises(UnsupportedOperator, match="InferenceSession"):
        ort.from_native(net)


def test_equal_initial_statistics_stay_apart():
    """BatchNormalization in training mode writes into its statistics, which ONNX Runtime would share where equal."""
    network = Network("two normalizations")
    network.add_input("x", (4, 3))
    value = "x"
    for layer in range(2):
        for name, start in (("scale", 1.0), ("bias", 0.0), ("mean", 0.0), ("var", 1.0)):
            network.add_parameter(f"{name}{layer}", np.full(3, start, np.float32), trainable=name in ("scale", "bias"))
        reads = [value, *(f"{name}{layer}" for name in ("scale", "bias", "mean", "var"))]
        network.add_node("BatchNormalization", reads, [f"y{layer}", f"m{layer}", f"v{layer}"], training_mode=1)
        value = f"square{layer}"
        network.add_node("Mul", [f"y{layer}", f"y{layer}"], [value])
    for name in ("square1", "m0", "v0", "m1", "v1"):
        network.add_output(name)
    x = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    ours, expected = (load_backend(name).from_model(network) for name in ("onnxruntime", "reference"))
    for _ in range(2):
        got, wanted = ours.inference({"x": x}), expected.inference({"x": x})
    for name, array in wanted.items():
        np.testing.assert_allclose(np.asarray(got[name]), array, rtol=1e-5, atol=1e-6, err_msg=name)


def test_its_own_optimization_has_levels_that_change_the_graph_and_not_the_answer(ort: Any, tmp_path: Any) -> None:
    from deep500.frameworks.onnxruntime.session import open_session, options

    network = create("resnet", depth=8, shape=(3, 8, 8), batch=2)
    feeds, sizes, answers = feeds_of(network), {}, {}
    for level in ("disabled", "basic", "extended", "all"):
        settings = options(1, optimization=level)
        settings.optimized_model_filepath = str(tmp_path / f"{level}.onnx")
        open_session(network.to_onnx(opset=21), settings)
        sizes[level] = len(onnx.load(tmp_path / f"{level}.onnx").graph.node)
        executor = ort.from_model(network, optimization=level)
        assert executor.settings.graph_optimization_level == settings.graph_optimization_level
        answers[level] = executor.inference(feeds)["output"]
    assert sizes["disabled"] == len(network.nodes)
    assert sizes["disabled"] > sizes["basic"] > sizes["extended"], "basic folds normalization, extended fuses ReLU"
    for level in ("basic", "extended", "all"):
        assert_close(answers[level], answers["disabled"], dtype="float32")
    with pytest.raises(InputError, match=r"got optimization 'al'; expected a level of ONNX Runtime.*'all'"):
        ort.from_model(network, optimization="al")


def test_a_padded_kernel_is_no_padded_image():
    """ONNX Runtime would fuse the Pad with the convolution as if it padded the image."""
    network = Network("padded kernel")
    network.add_input("x", (1, 2, 4, 4))
    network.add_parameter("w", np.random.default_rng(1).normal(size=(3, 2, 1, 3)).astype(np.float32))
    network.add_node("Constant", [], ["pads"], value=np.array([0, 0, 1, 0, 0, 0, 1, 0]))
    network.add_node("Pad", ["w", "pads"], ["wide"])
    network.add_node("Conv", ["x", "wide"], ["y"], pads=[1, 1, 1, 1])
    network.add_output("y")
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(np.float32)
    got, wanted = (load_backend(name).from_model(network).inference({"x": x}) for name in ("onnxruntime", "reference"))
    np.testing.assert_allclose(np.asarray(got["y"]), wanted["y"], rtol=1e-5, atol=1e-6)


def test_memory_of_thousands_of_nodes_is_not_planned_whose_planning_grows_with_the_square(ort: Any) -> None:
    from deep500.frameworks.onnxruntime import session

    planned = {}
    for count in (session._PLANNED, session._PLANNED + 1):
        network = Network("chain")
        network.add_input("x", (3,))
        value = "x"
        for k in range(count):
            network.add_node("Neg", [value], [f"n{k}"])
            value = f"n{k}"
        network.add_output(value)
        settings = session.options(1, optimization="disabled")
        opened = session.open_session(network.to_onnx(opset=21), settings)
        planned[count] = settings.enable_mem_reuse
        x = np.array([1, -2, 3], np.float32)
        np.testing.assert_array_equal(opened.run(None, {"x": x})[0], -x if count % 2 else x)
    assert list(planned.values()) == [True, False]
