"""What every backend's executor must do; the requirements stand at the top of
``deep500/networks/execution/executor.py``.

Answers are compared with PyTorch's own functions or ONNX's reference evaluator, never with another executor of ours.
"""

from __future__ import annotations

import inspect
import pickle
import warnings
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from deep500.devices import DeviceWarning, GPUDevice
from deep500.errors import InputError, MissingDevice, NetworkError, UnsupportedOperator
from deep500.events import HOOKS, Event, Events
from deep500.networks import GraphExecutor, Network, add_loss, create, gradient_name
from deep500.networks.execution import capabilities
from tests.tolerances import as_numpy, assert_close

EXPORTS = (
    "Executor",
    "from_model",
    "from_onnx",
    "from_native",
    "custom_op",
    "GradientDescent",
    "MomentumOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "AdaGradOptimizer",
    "RMSPropOptimizer",
)

CAPABILITIES = {  # beyond running a network, by backend
    "reference": {"CountsStepMemory", "ProfilesSteps", "TimesNodes"},
    "pytorch": {"CountsPeakMemory", "CountsStepMemory", "MeasuresStages", "ProfilesSteps", "WatchesGradients"},
    "tensorflow": {"CountsPeakMemory", "CountsStepMemory", "ProfilesSteps"},
    "jax": {"CountsPeakMemory", "CountsStepMemory", "ProfilesSteps"},
    "onnxruntime": {"ProfilesSteps"},
}


def small(dtype: str = "float64", rate: float = 0.0) -> Network:
    """conv, batch normalization, Relu, Dropout, mean over the image, fully connected, cross entropy."""
    rng = np.random.default_rng(1)
    net = Network("small")
    net.add_input("x", ("N", 2, 6, 5), dtype)
    shapes = {"conv.weight": (4, 2, 3, 3), "conv.bias": (4,), "fc.weight": (3, 4), "fc.bias": (3,)}
    for name, shape in shapes.items():
        net.add_parameter(name, rng.normal(size=shape).astype(dtype))
    for name, low in {"bn.weight": 0.5, "bn.bias": -1, "bn.running_mean": -1, "bn.running_var": 0.5}.items():
        net.add_parameter(name, rng.uniform(low, 2, 4).astype(dtype), trainable="running" not in name)
    net.add_parameter("rate", np.array(rate, np.float32), trainable=False)
    net.add_node("Conv", ["x", "conv.weight", "conv.bias"], "conv", name="conv", pads=[1, 1, 1, 1])
    statistics = [f"bn.{n}" for n in ("weight", "bias", "running_mean", "running_var")]
    net.add_node("BatchNormalization", ["conv", *statistics], "bn", name="bn", momentum=0.8)
    net.add_node("Relu", "bn", "relu", name="relu")
    net.add_node("Dropout", ["relu", "rate"], "drop", name="drop")
    net.add_node("GlobalAveragePool", "drop", "pool", name="pool")
    net.add_node("Flatten", "pool", "flat", name="flat")
    net.add_node("Gemm", ["flat", "fc.weight", "fc.bias"], "output", name="fc", transB=1)
    net.add_output("output")
    return add_loss(net)


def batch(size: int = 4, dtype: str = "float64", seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(size, 2, 6, 5)).astype(dtype), "label": rng.integers(0, 3, size)}


def torch_answer(net: Network, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """One training step of :func:`small` written with torch.nn.functional: values, gradients, running statistics."""
    torch = pytest.importorskip("torch")
    f = torch.nn.functional
    p = {n: torch.tensor(v.value, requires_grad=v.trainable) for n, v in net.parameters.items()}
    x, label = torch.from_numpy(feeds["x"]), torch.from_numpy(feeds["label"])
    h = f.conv2d(x, p["conv.weight"], p["conv.bias"], padding=1)
    h = f.batch_norm(h, p["bn.running_mean"], p["bn.running_var"], p["bn.weight"], p["bn.bias"], True, 0.2)
    output = f.linear(f.relu(h).mean((2, 3)), p["fc.weight"], p["fc.bias"])
    loss = f.cross_entropy(output, label)
    loss.backward()
    answer = {"output": output, "loss": loss, **{n: t for n, t in p.items() if "running" in n}}
    answer |= {gradient_name(n): t.grad for n, t in p.items() if t.requires_grad}
    return {name: as_numpy(value) for name, value in answer.items()}


@pytest.fixture
def executor(backend: ModuleType) -> Any:
    return backend.from_model(small())


def fetch(executor: Any, *names: str) -> list[np.ndarray]:
    return [np.array(as_numpy(t)) for t in executor.network.fetch_tensors(names)]


# -- exports ----------------------------------------------------------------------------------------------------------
def test_a_backend_exports_the_same_names_everywhere(backend: ModuleType, backend_name: str) -> None:
    assert [name for name in EXPORTS if not hasattr(backend, name)] == []
    assert issubclass(backend.Executor, GraphExecutor) and backend.Executor.backend == backend_name


def test_from_onnx_takes_a_path_bytes_and_a_message(backend: ModuleType, tmp_path: Any) -> None:
    net = small("float32")
    model = net.to_onnx(tmp_path / "small.onnx")
    feeds = batch(dtype="float32")
    want = backend.from_model(net).inference(feeds)["output"]
    for source in (tmp_path / "small.onnx", model.SerializeToString(), model):
        assert_close(backend.from_onnx(source).inference(feeds)["output"], want, "exact")


def test_options_are_named_by_signatures(backend: ModuleType) -> None:
    kind = backend.Executor
    for function in (backend.from_model, backend.from_onnx):
        parameters = inspect.signature(function).parameters
        assert {"device", "strict", "quantization", "precision", "deterministic"} <= parameters.keys()
        assert set(kind.choices) <= parameters.keys()
        assert not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    with pytest.raises(TypeError, match="swift"):
        backend.from_model(small(), swift=True)
    with pytest.raises(InputError, match="precision"):
        backend.from_model(small(), precision="iee")


# -- inference --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1, 5])
def test_inference_is_onnxs(backend: ModuleType, dtype: str, size: int) -> None:
    from onnx.reference import ReferenceEvaluator

    net, feeds = small(dtype), batch(size, dtype)
    got = backend.from_model(net).inference(feeds)
    want = ReferenceEvaluator(net.to_onnx()).run(None, feeds)
    assert list(got) == ["output", "loss"]
    for name, value in zip(got, want, strict=True):
        assert_close(got[name], np.asarray(value), err_msg=name)
        assert str(as_numpy(got[name]).dtype) == dtype
    assert np.abs(as_numpy(got["output"])).max() > 1e-3


@pytest.mark.parametrize("label", [-1, -100, 3])
def test_a_label_that_does_not_exist_is_refused(backend: ModuleType, label: int) -> None:
    """Silently it would be the last class, or none."""
    executor = backend.from_model(add_loss(create("mlp", hidden=(5,), classes=3, shape=(5,))))
    feeds = {"input": np.zeros((4, 5), np.float32), "label": np.array([0, 1, 2, label])}
    with pytest.raises(InputError, match=str(label)):
        executor.inference_and_backprop(feeds)
    executor.inference_and_backprop({**feeds, "label": np.array([0, 1, 2, 0])})
    ignoring = backend.from_model(add_loss(create("mlp", hidden=(5,), classes=3, shape=(5,)), ignore_index=label))
    assert np.isfinite(as_numpy(ignoring.inference_and_backprop(feeds)["loss"]))


def test_inference_gives_what_it_is_asked_for(executor: Any) -> None:
    feeds = batch()
    del feeds["label"]  # "output" does not depend on it
    got = executor.inference(feeds, ["relu", "output", "conv.bias"])
    assert list(got) == ["relu", "output", "conv.bias"]
    assert as_numpy(got["relu"]).shape == (4, 4, 6, 5) and as_numpy(got["relu"]).min() == 0
    assert_close(got["conv.bias"], executor.network.parameters["conv.bias"].value, "exact")
    with pytest.raises(NetworkError, match="output"):
        executor.inference(feeds, ["outptu"])


def test_what_nothing_reads_may_be_absent(backend: ModuleType) -> None:
    """Unread, or read by nodes on which no output depends; the same in both modes."""
    net, feeds = small(), batch()
    net.add_input("unread", ("N", 3))
    net.add_input("dead", ("N", 3), "float64")
    net.add_parameter("dead.weight", np.ones((3, 2)))
    net.add_node("MatMul", ["dead", "dead.weight"], "nobody")
    output, want = backend.from_model(small()).inference(feeds)["output"], torch_answer(small(), feeds)
    for more in ({}, {"unread": np.ones((9, 9)), "dead": np.ones(2, np.int32)}):  # nobody looks at them
        executor = backend.from_model(net)
        assert_close(executor.inference({**feeds, **more})["output"], output)
        assert_close(executor.inference_and_backprop({**feeds, **more})["loss"], want["loss"])
        assert_close(fetch(executor, "fc.weight.grad")[0], want["fc.weight.grad"], "gradient")
    for run in (executor.inference, executor.inference_and_backprop):
        with pytest.raises(InputError, match="got no input 'x'"):
            run({"label": feeds["label"]})
    with pytest.raises(InputError, match="got no input 'dead'"):
        executor.inference({}, ["nobody"])


def test_parts_of_a_split_have_their_size_when_the_last_are_unread(backend: ModuleType) -> None:
    net = Network()
    net.add_input("x", (7, 2))
    net.add_node("Split", "x", ["a", "b", "c"], num_outputs=3)
    net.add_output("a")
    x = np.arange(14, dtype=np.float32).reshape(7, 2)
    assert_close(as_numpy(backend.from_model(net).inference({"x": x})["a"]), x[:3])


def test_inputs_may_be_views_and_are_not_changed(executor: Any) -> None:
    feeds = batch()
    turned = {
        "x": np.ascontiguousarray(feeds["x"].transpose(0, 1, 3, 2)).transpose(0, 1, 3, 2),
        "label": feeds["label"],
    }
    before = feeds["x"].copy()
    assert not turned["x"].flags.c_contiguous
    sent = pickle.loads(pickle.dumps(feeds))  # as from another process: its dtype is an equal one
    for same in (turned, sent):
        assert_close(executor.inference(same)["output"], executor.inference(feeds)["output"])
    executor.inference_and_backprop(feeds)
    np.testing.assert_array_equal(feeds["x"], before)


BAD_INPUTS = {
    "misspelt": (lambda f: {"xx": f["x"], "label": f["label"]}, r"got input 'xx'.*did you mean 'x'"),
    "unknown": (lambda f: {**f, "weather": f["x"]}, "got input 'weather'"),
    "missing": (lambda f: {"x": f["x"]}, "got no input 'label'"),
    "dtype": (lambda f: {**f, "x": f["x"].astype("float32")}, r"'x': got dtype float32; expected float64"),
    "byte order": (lambda f: {**f, "x": f["x"].astype(">f8")}, "'x': got dtype float64 in another byte order"),
    "label dtype": (
        lambda f: {**f, "label": f["label"].astype("float64")},
        "'label': got dtype float64; expected int64",
    ),
    "shape": (lambda f: {**f, "x": f["x"][:, :1]}, r"'x': got shape \(4, 1, 6, 5\)"),
    "rank": (lambda f: {**f, "x": f["x"][0]}, r"'x': got shape \(2, 6, 5\)"),
    "batch sizes": (lambda f: {**f, "label": f["label"][:3]}, "'label': got size 3"),
    "list": (lambda f: {**f, "label": [0, 1, 2, 0]}, "'label': got list; expected an array"),
    "label range": (lambda f: {**f, "label": f["label"] + 7}, r"label|index"),
}


@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_inputs_are_errors_and_nothing_is_lost(executor: Any, case: str) -> None:
    change, message = BAD_INPUTS[case]
    before = executor.network.state()
    with pytest.raises(InputError, match=message):
        executor.inference_and_backprop(change(batch()))
    if case != "label range":  # those fail within the network, on some backends after the statistics were updated
        with pytest.raises(InputError, match=message):
            executor.inference(change(batch()))
        for name, value in executor.network.state().items():
            np.testing.assert_array_equal(value, before[name], err_msg=name)
    want = small()
    assert_close(executor.inference_and_backprop(batch())["output"], torch_answer(want, batch())["output"])


def test_unsupported_operators_are_one_error_that_names_every_node(backend: ModuleType) -> None:
    net = Network()
    net.add_input("x", (3,))
    net.add_node("NoSuch", "x", "a", name="first", domain="nowhere")
    net.add_node("Relu", "a", "b")
    net.add_node("NorThis", "b", "c", name="second", domain="nowhere")
    net.add_output("c")
    with pytest.raises(UnsupportedOperator, match=r"first.*second") as error:
        backend.from_model(net)
    assert "NoSuch" in str(error.value) and "NorThis" in str(error.value)


# -- training ---------------------------------------------------------------------------------------------------------
def test_a_training_step_is_pytorchs(executor: Any) -> None:
    net, feeds = small(), batch(6)
    want = torch_answer(net, feeds)
    got = executor.inference_and_backprop(feeds)
    assert list(got) == ["output", "loss"]
    for name in ("output", "loss"):
        assert_close(got[name], want[name], err_msg=name)
    pairs = executor.network.gradient()
    assert [p for p, _ in pairs] == net.trainable() == executor.network.get_params()
    for (_, name), gradient in zip(pairs, fetch(executor, *(g for _, g in pairs)), strict=True):
        assert_close(gradient, want[name], "gradient", err_msg=name)
        assert np.abs(gradient).max() > 1e-3 or name == "conv.bias.grad"  # batch normalization takes the bias away
    for name in ("bn.running_mean", "bn.running_var"):  # the unbiased variance
        assert_close(fetch(executor, name)[0], want[name], err_msg=name)
        assert not np.allclose(want[name], net.parameters[name].value)


def test_gradients_stay_while_the_network_is_evaluated(executor: Any) -> None:
    executor.inference_and_backprop(batch())
    (before,) = fetch(executor, "fc.weight.grad")
    executor.inference(batch(seed=1))
    np.testing.assert_array_equal(fetch(executor, "fc.weight.grad")[0], before)
    assert np.abs(before).max() > 1e-3


def test_gradients_do_not_accumulate(executor: Any) -> None:
    names = [g for _, g in executor.network.gradient()]
    executor.inference_and_backprop(batch(seed=1))
    other = fetch(executor, *names)
    executor.inference_and_backprop(batch(seed=2))
    first = fetch(executor, *names)
    executor.inference_and_backprop(batch(seed=2))
    for name, a, b, c in zip(names, first, fetch(executor, *names), other, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)
        assert name == "conv.bias.grad" or not np.allclose(a, c)


def test_the_loss_need_not_be_an_output(backend: ModuleType) -> None:
    net = small()
    net.remove_output("loss")
    executor = backend.from_model(net)
    assert list(executor.inference_and_backprop(batch())) == ["output", "loss"]
    assert list(executor.inference({"x": batch()["x"]})) == ["output"]


@pytest.mark.parametrize("loss", ["los", "output"])
def test_what_cannot_be_a_loss_is_refused(executor: Any, loss: str) -> None:
    with pytest.raises(NetworkError, match=loss):
        executor.inference_and_backprop(batch(), loss)


def test_a_loss_without_trainable_parameters_is_refused(backend: ModuleType) -> None:
    net = Network()
    net.add_input("x", ("N",))
    net.add_node("ReduceMean", "x", "loss", keepdims=0)
    net.add_output("loss")
    with pytest.raises(NetworkError, match="no trainable parameter"):
        backend.from_model(net).inference_and_backprop({"x": np.ones(3, np.float32)})


def test_evaluation_changes_no_state_and_does_not_drop(backend: ModuleType) -> None:
    executor = backend.from_model(small(rate=0.5))
    executor.inference_and_backprop(batch())
    before = executor.network.state()
    first, second = (as_numpy(executor.inference(batch())["output"]).copy() for _ in range(2))
    np.testing.assert_array_equal(first, second)
    after = executor.network.state()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name], err_msg=name)
    drop, relu = executor.inference(batch(), ["drop", "relu"]).values()
    assert_close(drop, relu, "exact")


def test_reseed_decides_what_is_dropped(backend: ModuleType) -> None:
    executor = backend.from_model(small(rate=0.5))

    def runs() -> list[np.ndarray]:
        executor.reseed(3)
        return [as_numpy(executor.inference_and_backprop(batch())["output"]).copy() for _ in range(2)]

    (a, b), (c, d) = runs(), runs()
    np.testing.assert_array_equal(a, c)
    np.testing.assert_array_equal(b, d)
    assert not np.allclose(a, b)
    executor.reseed(4)
    assert not np.allclose(a, as_numpy(executor.inference_and_backprop(batch())["output"]))


def test_executors_in_turns_drop_what_each_drops_alone(backend: ModuleType) -> None:
    """As ranks that are threads do; one process has other generators for each."""

    def runs(executor: Any, count: int) -> list[np.ndarray]:
        return [as_numpy(executor.inference_and_backprop(batch())["output"]).copy() for _ in range(count)]

    first, second = (backend.from_model(small(rate=0.5)) for _ in range(2))
    alone = []
    for seed, executor in ((3, first), (4, second)):
        executor.reseed(seed)
        alone.append(runs(executor, 3))
    first.reseed(3)
    together: tuple[list[np.ndarray], list[np.ndarray]] = (runs(first, 1), [])
    second.reseed(4)
    for _ in range(2):
        together[1].extend(runs(second, 1))
        together[0].extend(runs(first, 1))
    together[1].extend(runs(second, 1))
    np.testing.assert_array_equal(together, alone)


def test_weights_move_and_the_loss_falls(backend: ModuleType) -> None:
    net = small("float32")
    executor = backend.from_model(net)
    optimizer = backend.MomentumOptimizer(executor, "loss", 0.1, 0.9)
    feeds = batch(16, "float32")
    losses = [float(as_numpy(optimizer.step(feeds)["loss"])) for _ in range(30)]
    assert losses[-1] < 0.7 * losses[0]
    state = executor.network.state()
    for name, parameter in net.parameters.items():
        if name != "conv.bias":  # batch normalization takes it away
            assert np.array_equal(parameter.value, state[name]) == (name == "rate"), name
    assert net.content_hash() == small("float32").content_hash()  # the network that it was made from stays as it is


# -- parameters -------------------------------------------------------------------------------------------------------
def test_feeding_and_fetching_parameters(executor: Any) -> None:
    value = np.arange(4.0)
    executor.network.feed_tensor("conv.bias", value)
    value += 1  # a copy was taken
    np.testing.assert_array_equal(fetch(executor, "conv.bias")[0], np.arange(4.0))
    twin = small()
    twin.set_parameter("conv.bias", np.arange(4.0))
    assert executor.network.content_hash() == twin.content_hash()
    tensor = executor.network.to_tensor(np.full(4, 2.0))
    executor.network.assign_tensor("conv.bias", tensor)
    np.testing.assert_array_equal(fetch(executor, "conv.bias")[0], np.full(4, 2.0))
    outputs = executor.inference_and_backprop(batch())
    np.testing.assert_array_equal(fetch(executor, "loss")[0], as_numpy(outputs["loss"]))


BAD_FEEDS = {
    "shape": ("conv.bias", np.zeros(5), InputError, "conv.bias"),
    "dtype": ("conv.bias", np.zeros(4, np.float32), InputError, "float32"),
    "name": ("conv.bais", np.zeros(4), NetworkError, r"did you mean 'conv.bias'"),
}


@pytest.mark.parametrize("case", BAD_FEEDS)
def test_bad_feeds_are_errors(executor: Any, case: str) -> None:
    name, value, kind, message = BAD_FEEDS[case]
    for method in (executor.network.feed_tensor, executor.network.assign_tensor):
        with pytest.raises(kind, match=message):
            method(name, value)
    np.testing.assert_array_equal(fetch(executor, "conv.bias")[0], small().parameters["conv.bias"].value)


def test_fetching_what_is_not_there_is_an_error(executor: Any) -> None:
    executor.inference_and_backprop(batch())
    for name in ("relu", "conv.weigth"):
        with pytest.raises(NetworkError, match=name):
            executor.network.fetch_tensors([name])


def test_state_goes_round(backend: ModuleType) -> None:
    first, second = backend.from_model(small()), backend.from_model(small())
    for seed in range(3):
        first.inference_and_backprop(batch(seed=seed))
    state = first.network.state()
    assert list(state) == list(small().parameters) and all(isinstance(v, np.ndarray) for v in state.values())
    assert not np.array_equal(state["bn.running_var"], small().parameters["bn.running_var"].value)
    second.network.load_state(state)
    assert_close(second.inference(batch())["output"], first.inference(batch())["output"], "exact")
    state["bn.running_var"][:] = 0  # copies
    assert fetch(first, "bn.running_var")[0].min() > 0
    for wrong in ({k: v for k, v in state.items() if k != "fc.bias"}, {**state, "more": np.zeros(1)}):
        with pytest.raises(InputError, match=r"fc\.bias|more"):
            second.network.load_state(wrong)


# -- editing ----------------------------------------------------------------------------------------------------------
def test_an_edit_is_compiled_before_the_next_run(backend: ModuleType, executor: Any) -> None:
    feeds = batch()
    before = as_numpy(executor.inference(feeds)["output"]).copy()
    executor.inference_and_backprop(feeds)
    executor.network.replace("relu", "Sigmoid")
    fresh = backend.from_model(executor.network.copy())
    got = executor.inference(feeds)["output"]
    assert_close(got, fresh.inference(feeds)["output"], "exact")
    assert not np.allclose(as_numpy(got), before)
    for trained in (executor, fresh):
        trained.inference_and_backprop(feeds)
    assert_close(fetch(executor, "conv.weight.grad")[0], fetch(fresh, "conv.weight.grad")[0], "exact")
    executor.network.add_output("drop")
    got = executor.inference(feeds)
    assert list(got) == ["output", "loss", "drop"] and as_numpy(got["drop"]).min() > 0
    assert list(executor.inference_and_backprop(feeds)) == ["output", "loss", "drop"]


def test_an_edit_keeps_trained_parameters(executor: Any) -> None:
    executor.inference_and_backprop(batch())
    mean = fetch(executor, "bn.running_mean")[0]
    executor.network.add_parameter("scale", np.full((), 3.0))
    executor.network.add_node("Mul", ["output", "scale"], "scaled")
    executor.network.add_output("scaled")
    got = executor.inference(batch())
    assert_close(got["scaled"], 3 * as_numpy(got["output"]))
    np.testing.assert_array_equal(fetch(executor, "bn.running_mean")[0], mean)
    executor.inference_and_backprop(batch())


# -- devices and events -----------------------------------------------------------------------------------------------
def test_an_absent_gpu_is_a_warning_or_under_strict_an_error(backend: ModuleType) -> None:
    far = GPUDevice(99)
    with pytest.warns(DeviceWarning, match="running on the CPU instead"):
        executor = backend.from_model(small(), far)
    assert executor.device.kind == "cpu"
    with warnings.catch_warnings(), pytest.raises(MissingDevice, match="gpu:99"):
        backend.from_model(small(), far, strict=True)


def test_executors_publish_where_they_are(executor: Any) -> None:
    seen: list[str] = []
    listener = Event()
    for hook in HOOKS:
        setattr(listener, hook, lambda source, hook=hook: seen.append(hook) if source is executor else None)
    executor.events = Events([listener])
    executor.inference(batch())
    assert seen == ["before_forward", "after_forward"]
    seen.clear()
    executor.inference_and_backprop(batch())
    together = ["before_forward_backward", "after_forward_backward"]
    apart = ["before_forward", "after_forward", "before_backward", "after_backward"]
    assert seen in (together, apart)
    executor.synchronize()


# -- capabilities -----------------------------------------------------------------------------------------------------
def test_what_an_executor_can_do_beyond_running_is_what_its_methods_say(backend_name: str, executor: Any) -> None:
    known = (
        *("CountsPeakMemory", "CountsStepMemory", "MeasuresStages"),
        *("ProfilesSteps", "TimesNodes", "WatchesGradients"),
    )
    got = {name for name in known if isinstance(executor, getattr(capabilities, name))}
    assert got == CAPABILITIES[backend_name]


def test_what_an_executor_lacks_is_not_measured(executor: Any) -> None:
    asked = {
        "CountsStepMemory": capabilities.step_memory(executor, batch()),
        "TimesNodes": capabilities.node_times(executor, executor.network, batch(), samples=1),
        "WatchesGradients": capabilities.watch_gradients(executor, None) or None,
    }
    for name, answer in asked.items():
        assert answer is None or isinstance(executor, getattr(capabilities, name)), name
    assert asked["TimesNodes"] is None or min(asked["TimesNodes"].values()) > 0
    if not isinstance(executor, capabilities.MeasuresStages):
        assert capabilities.measure_stages(executor, [], batch()) is None
