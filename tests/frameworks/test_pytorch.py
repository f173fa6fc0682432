"""The PyTorch executor: an ordinary module, the seam's requirements, and the same network written by hand."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import deep500.frameworks.pytorch as d5fw  # noqa: E402
from deep500.devices import CPUDevice, DeviceWarning, GPUDevice  # noqa: E402
from deep500.errors import InputError, MissingDevice, NetworkError, UnsupportedOperator  # noqa: E402
from deep500.events import Event, Events  # noqa: E402
from deep500.frameworks.pytorch import compiler  # noqa: E402
from deep500.networks import Network, add_loss, create, to_dtype  # noqa: E402
from deep500.networks.execution.program import from_network  # noqa: E402
from tests.benchmarks.overhead.pytorch import ResNet20  # noqa: E402
from tests.tolerances import assert_close  # noqa: E402

pytestmark = pytest.mark.backend("pytorch")
F = torch.nn.functional


def batch(network: Network, size: int = 4, seed: int = 0) -> dict[str, np.ndarray]:
    """Inputs for a network with a cross-entropy loss."""
    rng = np.random.default_rng(seed)
    wanted = network.inputs["input"]
    shape = (size, *wanted.shape[1:])
    x = rng.integers(0, 8, shape) if "int" in wanted.dtype else rng.standard_normal(shape)
    return {"input": x.astype(wanted.dtype), "label": rng.integers(0, 10, size)}


def tiny() -> Network:
    """``loss = mean((x w + b - label)^2)`` on three features."""
    network = Network("tiny")
    network.add_input("x", ("N", 3))
    network.add_parameter("w.1", np.arange(6, dtype=np.float32).reshape(3, 2))
    network.add_parameter("b", np.ones(2, np.float32))
    network.add_node("MatMul", ["x", "w.1"], ["h"])
    network.add_node("Add", ["h", "b"], ["y"])
    network.add_output("y")
    return add_loss(network, "mean_squared_error")


def feed(size: int = 2) -> dict[str, np.ndarray]:
    """Inputs for :func:`tiny`."""
    rng = np.random.default_rng(1)
    return {"x": rng.standard_normal((size, 3)).astype("f4"), "label": rng.standard_normal((size, 2)).astype("f4")}


# -- the same answers as PyTorch's own functions -----------------------------------------------------------------------
def test_resnet20_is_the_hand_written_module() -> None:
    network = to_dtype(add_loss(create("resnet", depth=20)), "float64")
    native = ResNet20().double()
    assert sum(p.numel() for p in native.parameters()) == 272_474
    names = dict(native.named_parameters()) | dict(native.named_buffers())
    executor = d5fw.from_model(network)
    for name, tensor in zip(network.parameters, executor.network.fetch_tensors(list(network.parameters)), strict=True):
        key = name.replace("mean", "running_mean").replace("var", "running_var") if name not in names else name
        names[key].data.copy_(tensor)
    inputs = batch(network, 8)
    before = executor.network.state()
    ours = d5fw.MomentumOptimizer(executor, "loss", 0.1, 0.9)
    theirs = torch.optim.SGD(native.parameters(), 0.1, 0.9)
    for _ in range(3):
        got = ours.step(inputs)
        theirs.zero_grad()
        logits = native(torch.from_numpy(inputs["input"]))
        loss = F.cross_entropy(logits, torch.from_numpy(inputs["label"]))
        loss.backward()
        theirs.step()
        assert_close(got["output"], logits, "gradient")
        assert_close(got["loss"], loss, "gradient")
    after = executor.network.state()
    for name in network.trainable():
        assert_close(after[name], names[name], "gradient", name)
        assert not np.allclose(after[name], before[name]), name
    assert_close(executor.inference(inputs)["output"], native.eval()(torch.from_numpy(inputs["input"])), "training")


@pytest.mark.parametrize("name", ["simple_cnn", "transformer", "lstm"])
def test_emitted_gradients_run_here_and_equal_autograd(name: str) -> None:
    network = to_dtype(add_loss(create(name)), "float64")
    inputs, pairs = batch(network), network.gradient()
    executor = d5fw.from_model(network)
    executor.module.eval()
    loss = executor.module(*map(torch.from_numpy, inputs.values()))[-1]
    loss.backward()
    wanted = executor.network.fetch_tensors([gradient for _, gradient in pairs])
    emitted = d5fw.from_model(network.with_gradient("loss")).inference(inputs)
    for (parameter, gradient), want in zip(pairs, wanted, strict=True):
        assert_close(emitted[gradient], want, "gradient", parameter)


# -- an ordinary module -----------------------------------------------------------------------------------------------
def test_module_is_an_ordinary_trainable_module() -> None:
    executor = d5fw.from_model(add_loss(create("lenet")))
    module, inputs = executor.module, batch(add_loss(create("lenet")))
    assert isinstance(module, torch.nn.Module) and module.names["conv1_weight"] == "conv1.weight"
    assert set(dict(module.named_parameters())) == {n.replace(".", "_") for n in executor.network.get_params()}
    calls: list[int] = []
    hook = module.register_forward_hook(lambda *_: calls.append(1))
    got = executor.inference_and_backprop(inputs)
    hook.remove()
    assert calls == [1] and module.conv1_weight.grad is not None
    twins = (copy.deepcopy(module), pickle.loads(pickle.dumps(module)))
    for twin in twins:
        logits, _ = twin(*map(torch.from_numpy, inputs.values()))
        assert_close(logits, got["output"], "exact")
    torch.optim.SGD(module.parameters(), 0.1).step()  # PyTorch's own optimizer moves our network
    assert not np.allclose(executor.inference(inputs)["output"], got["output"])
    executor.module.load_state_dict(twins[0].state_dict())
    assert_close(executor.inference(inputs)["output"], got["output"], "exact")


def test_mode_belongs_to_the_module_and_inference_gives_it_back() -> None:
    executor = d5fw.from_model(add_loss(create("resnet", shape=(3, 8, 8))))
    module, inputs = executor.module, batch(executor.network)
    before = executor.network.state()
    executor.inference(inputs)
    assert module.training
    for name, value in executor.network.state().items():
        assert_close(value, before[name], "exact", name)
    module.eval()
    executor.inference(inputs)
    assert not module.training
    executor.inference_and_backprop(inputs)
    assert module.training
    moved = [n for n, v in executor.network.state().items() if not np.array_equal(v, before[n])]
    assert moved and not set(moved) & set(executor.network.get_params())


def test_dropout_follows_the_mode_and_the_seed() -> None:
    network = Network("drop")
    network.add_input("input", ("N", 64))
    network.add_parameter("w", np.ones((64, 10), np.float32))
    network.add_node("Dropout", ["input"], ["kept", "mask"])
    network.add_node("MatMul", ["kept", "w"], ["output"])
    network.add_output("output")
    network.add_output("mask")
    executor = d5fw.from_model(add_loss(network))
    inputs = {"input": np.ones((2, 64), np.float32), "label": np.array([0, 1])}
    assert_close(executor.inference(inputs)["output"], np.full((2, 10), 64.0, np.float32))
    runs = []
    for seed in (1, 1, 2):
        executor.reseed(seed)
        out = executor.inference_and_backprop(inputs)
        assert_close(out["output"], out["mask"].sum(1, keepdim=True).expand(2, 10) * 2.0)
        runs.append(out["mask"].numpy())
    assert np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[1], runs[2])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own
def test_torch_compile_takes_the_module_as_one_graph() -> None:
    """The C++ code generator, which takes a minute, is torch's business."""
    executor = d5fw.from_model(add_loss(create("resnet", shape=(3, 8, 8))))
    inputs = [torch.from_numpy(v) for v in batch(executor.network).values()]
    compiled = torch.compile(executor.module, backend="eager", fullgraph=True)
    assert_close(compiled(*inputs)[0], executor.module(*inputs)[0], "forward")


# -- the seam ---------------------------------------------------------------------------------------------------------
def test_inputs_arrays_tensors_read_only_strided() -> None:
    executor, inputs = d5fw.from_model(tiny()), feed()
    want = executor.inference(inputs)["y"]
    frozen = inputs["x"].copy()
    frozen.flags.writeable = False
    forms = [torch.from_numpy(inputs["x"]), frozen, np.asfortranarray(inputs["x"]), inputs["x"][::-1].copy()[::-1]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for form in forms:
            assert_close(executor.inference({"x": form}, ["y"])["y"], want, "exact")


BAD = [
    ({"x": np.zeros((2, 3), "f8")}, "float64"),
    ({"x": np.zeros((2, 4), "f4")}, "shape"),
    ({"z": np.zeros((2, 3), "f4")}, "'z'"),
    ({}, "'x'"),
    ({"x": [[1.0, 2.0, 3.0]]}, "np.asarray"),
]


@pytest.mark.parametrize(("inputs", "said"), BAD)
def test_bad_inputs_are_input_errors(inputs: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        d5fw.from_model(tiny()).inference(inputs, ["y"])


def test_label_out_of_range_is_an_input_error() -> None:
    executor = d5fw.from_model(add_loss(create("mlp", shape=(4,))))
    with pytest.raises(InputError, match="label or index 10; expected 0 to 9"):
        executor.inference_and_backprop({"input": np.zeros((1, 4), "f4"), "label": np.array([10])})


def test_outputs_are_selected_with_shared_parameters() -> None:
    executor, inputs = d5fw.from_model(tiny()), feed()
    first = executor.inference({"x": inputs["x"]}, ["h"])
    assert set(first) == {"h"}
    with pytest.raises(NetworkError, match="'hh'"):
        executor.inference(inputs, ["hh"])
    executor.network.feed_tensor("w.1", np.zeros((3, 2), np.float32))
    assert not executor.inference({"x": inputs["x"]}, ["h"])["h"].any()


def test_gradients_are_those_of_one_run() -> None:
    executor, inputs = d5fw.from_model(tiny()), feed()
    executor.inference_and_backprop(inputs)
    first = [g.clone() for g in executor.network.fetch_tensors(["w.1.grad", "b.grad"])]
    executor.inference_and_backprop(inputs)
    for before, again in zip(first, executor.network.fetch_tensors(["w.1.grad", "b.grad"]), strict=True):
        assert_close(again, before, "exact")
        assert before.abs().max() > 0
    with pytest.raises(NetworkError, match="add_output"):
        executor.network.fetch_tensors(["h"])
    with pytest.raises(NetworkError, match="scalar"):
        executor.inference_and_backprop(inputs, "y")


def test_feed_and_assign_write_the_live_tensor() -> None:
    executor = d5fw.from_model(tiny())
    parameter = executor.module.b
    executor.network.feed_tensor("b", np.array([5, 6], np.float32))
    assert executor.module.b is parameter and parameter.tolist() == [5, 6]
    executor.network.assign_tensor("b", torch.tensor([7.0, 8.0]))
    assert executor.module.b is parameter and parameter.tolist() == [7, 8] and parameter.requires_grad
    assert executor.network.copy().parameters["b"].value.tolist() == [7, 8]
    for bad in (np.zeros(3, np.float32), np.zeros(2)):
        with pytest.raises(InputError, match="'b'"):
            executor.network.feed_tensor("b", bad)


def test_editing_recompiles_and_keeps_what_was_learned() -> None:
    executor, inputs = d5fw.from_model(tiny()), feed()
    optimizer = d5fw.MomentumOptimizer(executor, "loss", 0.1)
    optimizer.step(inputs)
    kept, learned = executor.module.w_1, executor.network.state()
    network = executor.network
    network.add_parameter("scale", np.full(2, 2.0, np.float32))
    network.add_node("Mul", ["h", "scale"], ["scaled"], name="scale")
    network.add_edge("scaled", network.producer("y").name, 0)
    network.add_output("h")
    assert executor.module.w_1 is kept
    out = executor.inference(inputs)
    assert_close(out["y"], out["h"].numpy() * 2 + learned["b"])
    optimizer.step(inputs)
    # the new parameter has its momentum beside the old ones, and its count beside the step
    assert len(optimizer.state_dict()) == 5
    network.set_parameter("b", np.zeros(2, np.float32))
    assert_close(executor.inference(inputs)["y"], executor.inference(inputs)["h"].numpy() * network.state()["scale"])


def test_constants_in_the_code_follow_feed_tensor() -> None:
    network = Network("constants")
    network.add_input("x", (2, 6))
    network.add_parameter("shape", np.array([3, 4]), trainable=False)
    network.add_parameter("least", np.float32(1), trainable=False)
    network.add_node("Reshape", ["x", "shape"], ["h"])
    network.add_node("Clip", ["h", "least"], ["y"])
    network.add_output("y")
    executor, x = d5fw.from_model(network), np.zeros((2, 6), np.float32)
    assert_close(executor.inference({"x": x})["y"], np.ones((3, 4), np.float32))
    executor.network.feed_tensor("shape", np.array([4, 3]))
    executor.network.feed_tensor("least", np.float32(2))
    assert_close(executor.inference({"x": x})["y"], np.full((4, 3), 2, np.float32))
    module = executor.module
    executor.network.load_state(executor.network.state())
    assert executor.module is module, "what did not change is not compiled again"


def test_what_cannot_run_is_one_error_naming_every_node() -> None:
    network = Network("odd")
    network.add_input("x", ("N", 3))
    network.add_node("Mystery", ["x"], ["a"], name="first", domain="elsewhere")
    network.add_node("Riddle", ["a"], ["b"], name="second", domain="elsewhere")
    network.add_output("b")
    with pytest.raises(UnsupportedOperator, match=r"first.*second"):
        d5fw.from_model(network)


def test_events_see_forward_and_backward() -> None:
    seen: list[str] = []

    class Listener(Event):
        def before_forward(self, source: Any) -> None:
            seen.append("forward")

        def after_forward(self, source: Any) -> None:
            seen.append("forward done")

        def before_backward(self, source: Any) -> None:
            seen.append("backward")

        def after_backward(self, source: Any) -> None:
            seen.append("backward done")

    executor = d5fw.from_model(tiny())
    executor.events = Events([Listener()])
    executor.inference_and_backprop(feed())
    assert seen == ["forward", "forward done", "backward", "backward done"]


def test_missing_gpu_falls_back_or_fails() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.warns(DeviceWarning, match="CPU"):
        assert d5fw.from_model(tiny(), GPUDevice()).device == CPUDevice()
    with pytest.raises(MissingDevice):
        d5fw.from_model(tiny(), "gpu", strict=True)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["simple_cnn", "transformer", "lstm"])
def test_gpu_agrees_with_the_cpu(name: str) -> None:
    network = to_dtype(add_loss(create(name)), "float64")
    inputs = batch(network)
    cpu, gpu = d5fw.from_model(network), d5fw.from_model(network, GPUDevice(), strict=True)
    for executor in (cpu, gpu):
        executor.inference_and_backprop(inputs)
    gpu.synchronize()
    names = [gradient for _, gradient in network.gradient()]
    for on_cpu, on_gpu in zip(cpu.network.fetch_tensors(names), gpu.network.fetch_tensors(names), strict=True):
        assert on_gpu.is_cuda
        assert_close(on_gpu, on_cpu, "gradient")
    emitted = d5fw.from_model(network.with_gradient("loss"), GPUDevice(), strict=True).inference(inputs)
    assert all(value.is_cuda for value in emitted.values())


@pytest.mark.parametrize("name", ["lenet", "transformer", "lstm", "resnet"])
def test_shapes_are_computed_on_the_processor_for_a_device_elsewhere(name: str) -> None:
    """The meta device computes nothing and cannot be read: shapes that went through it would be an error."""
    meta = torch.device("meta")
    network = add_loss(create(name, **({"shortcut": "A"} if name == "resnet" else {}))).with_gradient("loss")
    tensors = {n: torch.from_numpy(p.value).to(meta) for n, p in network.parameters.items()}
    program = from_network(network, network.outputs, compiler.TARGET, compiler.attribute_names(tensors), True)
    program.constants.update({n: p.value for n, p in network.parameters.items() if not p.trainable})
    module = compiler.compile_program(program, tensors, meta, recognise=False).eval()
    assert "to_device" in module.code
    results = module(*[torch.from_numpy(v).to(meta) for v in batch(network).values()])
    wanted = network.descriptors()
    assert len(results) == len(network.outputs) > 5
    for output, result in zip(network.outputs, results, strict=True):
        assert result.device == meta
        assert wanted[output].accepts(result.shape), output
