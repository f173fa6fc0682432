"""What only the TensorFlow backend does: its layout pass, tracing, fused steps, Keras models."""

from __future__ import annotations

import collections
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from deep500.errors import InputError, NetworkError
from deep500.events import Event, Events
from deep500.frameworks.reference import Executor as Reference
from deep500.networks import Network, add_loss, create, gradient_name
from tests.conftest import HANG, load_backend
from tests.tolerances import as_numpy, assert_close

pytestmark = pytest.mark.backend("tensorflow")


@pytest.fixture(scope="module")
def backend() -> Any:
    return load_backend("tensorflow")


def image_network() -> Network:
    """Everything that the layout pass knows, once: convolutions, pooling, broadcasts, concatenation, a softmax."""
    rng = np.random.default_rng(3)
    net = Network("layout")
    net.add_input("x", ("N", 4, 9, 7), "float64")
    for name, shape in {
        "w1": (6, 4, 3, 3),
        "b1": (6,),
        "w2": (6, 1, 3, 2),
        "w3": (8, 3, 2, 2),
        "s": (6, 1, 1),
        "t": (7, 5),
        "slope": (6, 1, 1),
        "wt": (8, 2, 3, 3),
        "fc": (3, 8),
    }.items():
        net.add_parameter(name, rng.normal(size=shape))
    net.add_parameter("half", np.array(0.5), trainable=False)
    net.add_node("Conv", ["x", "w1", "b1"], "c1", pads=[1, 0, 1, 2], dilations=[1, 2])
    net.add_node("PRelu", ["c1", "slope"], "a1")
    net.add_node("Mul", ["a1", "s"], "m1")  # one factor per channel
    net.add_node("Mul", ["half", "m1"], "m2")
    net.add_node("Conv", ["m2", "w2"], "c2", group=6, auto_pad="SAME_LOWER", strides=[1, 1])  # each channel by itself
    net.add_node("Add", ["c2", "m1"], "a2")
    net.add_node("MaxPool", "a2", "p1", kernel_shape=[3, 2], strides=[1, 1], pads=[1, 0, 1, 1])
    net.add_node("AveragePool", "a2", "p2", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    net.add_node("Concat", ["p1", "p2"], "cat", axis=1)
    net.add_node("Conv", ["cat", "w3"], "c3", group=4, strides=[2, 1])
    net.add_node("Softmax", "c3", "soft", axis=1)
    net.add_node(
        "ConvTranspose", ["soft", "wt"], "up", group=4, strides=[2, 1], pads=[1, 0, 0, 1], output_padding=[1, 0]
    )
    net.add_node("GlobalAveragePool", "up", "pool")
    net.add_node("Flatten", "pool", "flat")
    net.add_node("Gemm", ["flat", "fc"], "output", transB=1)
    net.add_output("output")
    return add_loss(net)


def image_batch(size: int = 3) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {"x": rng.normal(size=(size, 4, 9, 7)), "label": rng.integers(0, 3, size)}


def gradients(executor: Any) -> dict[str, np.ndarray]:
    names = [g for _, g in executor.network.gradient()]
    return {n: as_numpy(t) for n, t in zip(names, executor.network.fetch_tensors(names), strict=True)}


def graph_of(executor: Any) -> Any:
    """The graph of its inference function."""
    compiled = executor.compiled(tuple(executor.network.outputs), None)
    chosen = next(c.cell_contents for c in compiled.call.__closure__ if isinstance(c.cell_contents, list))
    return chosen[0].graph


# -- the layout pass --------------------------------------------------------------------------------------------------
def test_channels_last_changes_no_value_and_no_gradient(backend: Any) -> None:
    net, feeds = image_network(), image_batch()
    ours, reference = backend.from_model(net), Reference(net)
    got, want = ours.inference_and_backprop(feeds), reference.inference_and_backprop(feeds)
    for name in ("output", "loss"):
        assert_close(got[name], want[name], err_msg=name)
    for name, value in gradients(reference).items():
        assert_close(gradients(ours)[name], value, "gradient", err_msg=name)
        assert np.abs(value).max() > 1e-6 or name == "half.grad"


def test_activations_are_transposed_once(backend: Any) -> None:
    net = create("resnet", depth=20, shape=(3, 16, 16))
    executor = backend.from_model(net)
    executor.inference({"input": np.zeros((2, 3, 16, 16), np.float32)})
    counts = collections.Counter(op.type for op in graph_of(executor).get_operations())
    assert counts["Conv2D"] == 21 and counts["FusedBatchNormV3"] == 21
    assert counts["Transpose"] == 1  # the image: kernels are held turned


def kernel_network() -> Network:
    """A kernel [2, 3, 1, 4] that a convolution reads, and a penalty as it is."""
    net = Network()
    net.add_input("x", ("N", 3, 5, 6), "float64")
    net.add_parameter("w", np.random.default_rng(1).normal(size=(2, 3, 1, 4)))
    net.add_parameter("slope", np.arange(4.0), trainable=False)
    net.add_node("Conv", ["x", "w"], "y")
    net.add_node("ReduceSumSquare", "y", "error", keepdims=0)
    net.add_node("Mul", ["w", "slope"], "sloped")
    net.add_node("ReduceSumSquare", "sloped", "penalty", keepdims=0)
    net.add_node("Add", ["error", "penalty"], "loss")
    for name in ("loss", "w"):
        net.add_output(name)
    return net


def test_kernels_are_held_turned_and_shown_as_onnx_has_them(backend: Any) -> None:
    net, feeds = kernel_network(), {"x": np.random.default_rng(2).normal(size=(2, 3, 5, 6))}
    start = net.parameters["w"].value
    for modifier in (None, lambda name, old, gradient: gradient):  # a fused step, and one in two functions
        ours, reference = backend.from_model(net), Reference(net)
        assert ours.kernels == {"w"} and tuple(ours.variables["w"].shape) == (1, 4, 3, 2)
        optimizer = backend.MomentumOptimizer(ours, "loss", 0.01, gradient_modifier=modifier)
        got, want = optimizer.step(feeds), reference.inference_and_backprop(feeds)
        expected = gradients(reference)["w.grad"]
        assert_close(got["loss"], want["loss"])
        assert_close(got["w"], start)
        assert_close(gradients(ours)["w.grad"], expected, "gradient")
        assert_close(ours.network.state()["w"], start - 0.01 * expected, "gradient")
        state = optimizer.state_dict()
        assert_close(state["momentum_buffer/w"], expected, "gradient")
        optimizer.load_state_dict(state)
        assert np.array_equal(optimizer.state_dict()["momentum_buffer/w"], state["momentum_buffer/w"])
        ours.network.feed_tensor("w", start)
        assert_close(ours.inference(feeds)["loss"], want["loss"])


def test_a_kernel_outlives_its_convolution(backend: Any) -> None:
    executor, feeds = backend.from_model(kernel_network()), {"x": np.ones((1, 3, 5, 6))}
    executor.network.feed_tensor("w", np.full((2, 3, 1, 4), 2.0))
    executor.network.remove_output("loss")
    for name in ("Add_loss", "ReduceSumSquare_error", "Conv_y"):
        executor.network.remove_node(name)
    assert_close(executor.inference({}, ["penalty"])["penalty"], 4 * 6 * (np.arange(4.0) ** 2).sum())
    executor.network.add_node("Conv", ["x", "w"], "z")
    executor.network.add_output("z")
    assert_close(executor.inference(feeds)["z"], np.full((1, 2, 5, 3), 24.0))


def test_convolutions_of_constants_keep_their_layout(backend: Any) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(1, 2, 5, 6)), rng.normal(size=(3, 2, 3, 3))
    values = [
        helper.make_node("Constant", [], [n], value=numpy_helper.from_array(v)) for n, v in {"x": x, "w": w}.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("MaxPool", ["c"], ["y"], kernel_shape=[2, 3]),
    ]
    branch = helper.make_graph([*values, *nodes], "branch", [], [helper.make_tensor_value_info("y", 11, None)])
    net = Network()
    net.add_parameter("yes", np.array(True), trainable=False)
    net.add_node("If", "yes", "out", then_branch=branch, else_branch=branch)
    net.add_output("out")
    assert_close(backend.from_model(net).inference({})["out"], Reference(net).inference({})["out"])


def test_convolutions_of_whole_numbers(backend: Any) -> None:
    """Kernels larger than one tap, which ONNX's suite has none of."""
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.integers(0, 9, (2, 2, 5, 6)).astype(np.uint8),
        "w": rng.integers(0, 9, (3, 2, 3, 2)).astype(np.uint8),
    }
    net = Network()
    for name, value in feeds.items():
        net.add_input(name, value.shape, "uint8")
    for name, number in {"zero": np.uint8(2), "scale": np.float32(0.25), "finer": np.float32(0.5)}.items():
        net.add_parameter(name, np.array(number), trainable=False)
    net.add_parameter("zeros", np.array([1, 2, 3], np.uint8), trainable=False)
    net.add_node("ConvInteger", ["x", "w", "zero", "zeros"], "whole", strides=[2, 1])
    scaled = ["x", "scale", "zero", "w", "scale", "zero", "finer", "zero"]
    net.add_node("QLinearConv", scaled, "scaled", pads=[1, 0, 0, 1])
    for name in ("whole", "scaled"):
        net.add_output(name)
    got, want = backend.from_model(net).inference(feeds), Reference(net).inference(feeds)
    for name, value in want.items():
        assert np.ptp(as_numpy(value)) > 3
        assert_close(got[name], value, "exact")


def test_statistics_that_two_nodes_share_are_updated_by_one_after_the_other(backend: Any) -> None:
    for dtype in ("float32", "float64"):
        net = Network()
        net.add_input("x", ("N", 3, 4, 4), dtype)
        for name, value in {"scale": 1.5, "shift": 0.5, "mean": 0.0, "variance": 1.0}.items():
            net.add_parameter(name, np.full(3, value, dtype), trainable=name in ("scale", "shift"))
        net.add_node("BatchNormalization", ["x", "scale", "shift", "mean", "variance"], "a", epsilon=1e-5, momentum=0.7)
        net.add_node("BatchNormalization", ["a", "scale", "shift", "mean", "variance"], "b", epsilon=1e-5, momentum=0.7)
        net.add_node("ReduceMean", "b", "loss", keepdims=0)
        net.add_output("loss")
        feeds = {"x": np.random.default_rng(0).normal(2, 3, (5, 3, 4, 4)).astype(dtype)}
        ours, reference = backend.from_model(net), Reference(net)
        for _ in range(2):
            ours.inference_and_backprop(feeds), reference.inference_and_backprop(feeds)
        for name, value in reference.network.state().items():
            assert_close(ours.network.state()[name], value, err_msg=name)
        assert not np.allclose(reference.network.state()["variance"], 1)


# -- tracing ----------------------------------------------------------------------------------------------------------
def test_one_trace_serves_every_batch_size(backend: Any, monkeypatch: Any) -> None:
    from deep500.frameworks.tensorflow import executor as module

    traces: list[bool] = []
    original = module.Walk.run

    def run(self: Any, *args: Any) -> Any:
        traces.append(self.training)
        return original(self, *args)

    monkeypatch.setattr(module.Walk, "run", run)
    executor = backend.from_model(image_network())
    optimizer = backend.MomentumOptimizer(executor, "loss", 0.1)
    for size in (1, 4, 2):
        executor.inference(image_batch(size))
        optimizer.step(image_batch(size))
        optimizer.set_parameter("lr", 0.1 / size)
    assert traces == [False, True]


def test_what_only_a_run_knows_is_run_eagerly(backend: Any) -> None:
    net = Network()
    net.add_input("x", ("N", 3), "float64")
    net.add_input("axes", (1,), "int64")
    net.add_parameter("w", np.array([1.0, 2.0, 3.0]))
    net.add_node("Mul", ["x", "w"], "y")
    net.add_node("ReduceSum", ["y", "axes"], "sum", keepdims=0)
    net.add_node("ReduceSum", "sum", "loss", keepdims=0)
    net.add_output("sum")
    net.add_output("loss")
    executor, x = backend.from_model(net), np.arange(6.0).reshape(2, 3)
    for axis in (0, 1):
        got = executor.inference_and_backprop({"x": x, "axes": np.array([axis])})
        assert_close(got["sum"], (x * [1, 2, 3]).sum(axis))
        assert_close(gradients(executor)["w.grad"], x.sum(0))


def test_windows_of_three_axes_have_gradients_where_nothing_is_traced(backend: Any) -> None:
    """TensorFlow's tape does not record what an operator has by default."""
    rng, net = np.random.default_rng(0), Network()
    net.add_input("x", ("N", 4, 3, 5, 6), "float64")
    net.add_input("axes", (1,), "int64")
    net.add_parameter("w", rng.normal(size=(4, 4, 1, 3, 3)))
    net.add_parameter("grouped", rng.normal(size=(4, 2, 1, 3, 3)))
    net.add_parameter("turned", rng.normal(size=(4, 2, 1, 2, 2)))
    net.add_node("Conv", ["x", "w"], "a", pads=[0, 1, 1, 0, 1, 1])
    net.add_node("Conv", ["a", "grouped"], "b", group=2, pads=[0, 1, 1, 0, 1, 1])
    net.add_node("MaxPool", "b", "c", kernel_shape=[1, 2, 2])
    net.add_node("AveragePool", "c", "d", kernel_shape=[2, 2, 2])
    net.add_node("ConvTranspose", ["d", "turned"], "e", group=2)
    net.add_node("ReduceSum", ["e", "axes"], "sum", keepdims=0)
    net.add_node("ReduceSumSquare", "sum", "loss", keepdims=0)
    net.add_output("loss")
    feeds = {"x": rng.normal(size=(2, 4, 3, 5, 6)), "axes": np.array([1])}
    got, want = backend.from_model(net), Reference(net)
    for executor in (got, want):
        executor.inference_and_backprop(feeds)
    for name, value in gradients(want).items():
        assert_close(gradients(got)[name], value, err_msg=name)


def test_a_constant_that_is_fed_is_traced_again(backend: Any) -> None:
    net = Network()
    net.add_input("x", ("N", 4))
    net.add_parameter("shape", np.array([-1, 2]), trainable=False)
    net.add_node("Reshape", ["x", "shape"], "y")
    net.add_output("y")
    executor, x = backend.from_model(net), np.arange(8, dtype=np.float32).reshape(2, 4)
    assert tuple(executor.inference({"x": x})["y"].shape) == (4, 2)
    executor.network.feed_tensor("shape", np.array([1, 8]))
    assert tuple(executor.inference({"x": x})["y"].shape) == (1, 8)


def test_xla_computes_the_same(backend: Any) -> None:
    net, x = create("mlp", shape=(4,)), np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    want = backend.from_model(net).inference({"input": x})["output"]
    assert_close(backend.from_model(net, jit_compile=True).inference({"input": x})["output"], want)


def test_tensors_go_in_as_they_are(backend: Any) -> None:
    import tensorflow as tf

    executor, feeds = backend.from_model(image_network()), image_batch()
    want = executor.inference(feeds)["output"]
    assert_close(executor.inference({n: tf.constant(v) for n, v in feeds.items()})["output"], want, "exact")
    with pytest.raises(InputError, match="float32; expected float64"):
        executor.inference({**feeds, "x": tf.constant(feeds["x"], tf.float32)})


# -- optimizers -------------------------------------------------------------------------------------------------------
def test_the_fused_step_is_the_step_in_two_functions(backend: Any) -> None:
    class Watch(Event):
        norms: list[float] = []  # noqa: RUF012

        def before_update(self, source: Any) -> None:
            self.norms.append(float(np.linalg.norm(gradients(source.executor)["w1.grad"])))

    fused, watched = (backend.from_model(image_network()) for _ in range(2))
    watched.events = Events([Watch()])
    for executor in (fused, watched):
        optimizer = backend.AdamOptimizer(executor, "loss", 0.01)
        for _ in range(3):
            optimizer.step(image_batch())
    assert len(Watch.norms) == 3 and min(Watch.norms) > 0
    for name, value in watched.network.state().items():
        assert_close(fused.network.state()[name], value, "training", err_msg=name)
    assert_close(gradients(fused)["w1.grad"], gradients(watched)["w1.grad"], "training")


def test_an_edit_between_steps_keeps_slots(backend: Any) -> None:
    executor = backend.from_model(image_network())
    optimizer = backend.MomentumOptimizer(executor, "loss", 0.1, dampening=0.5)
    optimizer.step(image_batch())
    velocity = optimizer.state_dict()["momentum_buffer/fc"]
    executor.network.add_parameter("shift", np.zeros(3))
    executor.network.add_node("Add", ["output", "shift"], "shifted")
    executor.network.add_output("shifted")
    optimizer.step(image_batch())
    state = optimizer.state_dict()
    want = 0.9 * velocity + 0.5 * gradients(executor)["fc.grad"]
    assert_close(state["momentum_buffer/fc"], want, "training")


# -- Keras ------------------------------------------------------------------------------------------------------------
def keras_model() -> Any:
    import keras

    keras.utils.set_random_seed(0)
    layers = [
        keras.layers.Dense(16, activation="relu"),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.2, seed=1),
    ]
    return keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(3)])


def test_a_keras_model_trains_in_place(backend: Any) -> None:
    model = keras_model()
    before = [v.numpy().copy() for v in model.trainable_variables]
    executor = backend.from_native(model, np.zeros((1, 4), np.float32))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 4)).astype(np.float32)
    feeds = {"input": x, "label": x[:, :3].argmax(1)}
    optimizer = backend.AdamOptimizer(executor, "loss", 0.02)
    losses = [float(optimizer.step(feeds)["loss"]) for _ in range(40)]
    assert losses[-1] < 0.5 * losses[0]
    for old, variable in zip(before, model.trainable_variables, strict=True):
        assert not np.array_equal(old, variable.numpy())
    assert_close(executor.inference(feeds, ["output"])["output"], model(x, training=False), "exact")
    assert executor.network.get_params() == [v.path for v in model.trainable_variables]
    with pytest.raises(NetworkError, match="native model"):
        executor.network.add_output("hidden")


def test_a_keras_models_gradient_is_tensorflows(backend: Any) -> None:
    import keras
    import tensorflow as tf

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(3)])
    x, label = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), np.arange(6) % 3
    executor = backend.from_native(model, x)
    executor.inference_and_backprop({"input": x, "label": label})
    with tf.GradientTape() as tape:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(label, model(x))
    for got, want in zip(gradients(executor).values(), tape.gradient(loss, model.trainable_variables), strict=True):
        assert_close(got, want, "gradient")


def test_keras_dropout_follows_the_seed(backend: Any) -> None:
    executor = backend.from_native(keras_model(), np.zeros((1, 4), np.float32))
    feeds = {"input": np.ones((8, 4), np.float32), "label": np.zeros(8, np.int64)}

    def draw(seed: int) -> np.ndarray:
        executor.reseed(seed)
        return as_numpy(executor.inference_and_backprop(feeds)["output"]).copy()

    first = draw(5)
    assert np.array_equal(first, draw(5)) and not np.array_equal(first, draw(6))


@pytest.mark.slow
def test_importing_it_writes_nothing(backend: Any) -> None:
    code = "import deep500.frameworks.tensorflow as b; b.from_model"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG)
    assert done.stderr == "" and done.stdout == ""


def test_a_native_loss_may_be_one_of_keras(backend: Any) -> None:
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    batch = {"input": np.eye(4, dtype=np.float32), "label": np.array([0, 1, 2, 0])}
    got = backend.from_native(model, np.zeros((1, 4), np.float32), loss=loss).inference_and_backprop(batch, "loss")
    assert_close(got["loss"], loss(batch["label"], model(batch["input"])).numpy(), "forward")


def test_a_native_model_brings_its_own_terms_of_the_loss(backend: Any) -> None:
    """Of weights and of activities, as ``model.fit`` adds them; what Keras does after a step is refused."""
    import keras
    import tensorflow as tf

    heavy = keras.layers.Dense(3, kernel_regularizer=keras.regularizers.L2(0.1))
    model = keras.Sequential([keras.Input((4,)), heavy, keras.layers.ActivityRegularization(0.01)])
    x, label = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32), np.arange(6) % 3
    executor = backend.from_native(model, x)
    got = executor.inference_and_backprop({"input": x, "label": label}, "loss")
    with tf.GradientTape() as tape:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(label, model(x, training=True))
        total = loss + sum(model.losses)
    assert total > loss + 0.01
    assert_close(got["loss"], total.numpy(), "forward")
    for ours, theirs in zip(gradients(executor).values(), tape.gradient(total, model.trainable_variables), strict=True):
        assert_close(ours, theirs, "gradient")
    bounded = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, kernel_constraint="non_neg")])
    with pytest.raises(NetworkError, match=r"got NonNeg for .*; expected no constraint"):
        backend.from_native(bounded, x)


def test_a_gather_after_each_of_several_gather_nds_of_one_value_has_a_gradient(backend: Any) -> None:
    """TensorFlow's own gradient of gather_nd takes the sparse gradient of a gather for a dense one."""
    network = Network("picks")
    network.add_parameter("w", np.random.default_rng(0).normal(size=(9, 4)))
    network.add_node("Mul", ["w", "w"], "squares")
    sums = []
    for k, (first, then) in enumerate((([1, 3, 5, 7, 8], [0, 4]), ([0, 2, 4, 6], [2, 3]), ([8, 7, 5], [1, 2]))):
        network.add_parameter(f"first{k}", np.array(first)[:, None], trainable=False)
        network.add_parameter(f"then{k}", np.array(then), trainable=False)
        network.add_node("GatherND", ["squares", f"first{k}"], f"some{k}")
        network.add_node("Gather", [f"some{k}", f"then{k}"], f"few{k}", axis=0)
        network.add_node("ReduceSum", f"few{k}", f"sum{k}", keepdims=0)
        sums.append(f"sum{k}")
    network.add_node("Sum", sums, "loss")
    network.add_output("loss")
    executor = backend.from_model(network)
    executor.inference_and_backprop({}, "loss")
    (gradient,) = executor.network.fetch_tensors([gradient_name("w")])
    times = np.array([0, 1, 0, 0, 1, 1, 1, 1, 1])[:, None]
    np.testing.assert_allclose(np.asarray(gradient), 2 * times * network.parameters["w"].value, rtol=1e-14)
