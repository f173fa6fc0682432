"""Native modules and native optimizers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import deep500.frameworks.pytorch as d5fw  # noqa: E402
import deep500.training.optimizers as reference  # noqa: E402
from deep500.errors import InputError, NetworkError  # noqa: E402
from deep500.networks import add_loss, create, to_dtype  # noqa: E402
from tests.tolerances import assert_close  # noqa: E402

pytestmark = pytest.mark.backend("pytorch")

OPTIMIZERS: list[tuple[str, Any, dict[str, Any]]] = [
    ("GradientDescent", torch.optim.SGD, {"lr": 0.1}),
    ("GradientDescent", torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.01}),
    ("MomentumOptimizer", torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}),
    ("MomentumOptimizer", torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    ("MomentumOptimizer", torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "dampening": 0.3}),
    ("AdamOptimizer", torch.optim.Adam, {"lr": 1e-2, "betas": (0.8, 0.99), "weight_decay": 0.01}),
    ("AdamWOptimizer", torch.optim.AdamW, {"lr": 1e-2, "eps": 1e-6}),
    ("AMSGradOptimizer", partial(torch.optim.Adam, amsgrad=True), {"lr": 1e-2, "betas": (0.8, 0.9)}),
    ("AdaGradOptimizer", torch.optim.Adagrad, {"lr": 1e-2, "lr_decay": 0.1, "initial_accumulator_value": 0.1}),
    ("RMSPropOptimizer", torch.optim.RMSprop, {"lr": 1e-3, "centered": True, "momentum": 0.5}),
]


def setup() -> tuple[Any, dict[str, np.ndarray]]:
    """A small network in float64 and a batch."""
    rng = np.random.default_rng(0)
    network = to_dtype(add_loss(create("mlp", shape=(6,), classes=3)), "float64")
    return network, {"input": rng.standard_normal((8, 6)), "label": rng.integers(0, 3, 8)}


def module_of() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.BatchNorm1d(5), torch.nn.ReLU(), torch.nn.Linear(5, 3))


@pytest.mark.parametrize(("name", "kind", "options"), OPTIMIZERS)
def test_native_optimizers_equal_torch_and_the_reference(name: str, kind: Any, options: dict[str, Any]) -> None:
    network, inputs = setup()
    ours, theirs, raw = (d5fw.from_model(network) for _ in range(3))
    native = getattr(d5fw, name)(ours, "loss", **options)
    written = getattr(reference, name)(theirs, "loss", **options)
    optimizer = kind(raw.module.parameters(), **options)
    for _ in range(20):
        native.step(inputs)
        written.step(inputs)
        raw.inference_and_backprop(inputs)
        optimizer.step()
    start = network.parameters
    for key, value in ours.network.state().items():
        assert_close(value, raw.network.state()[key], "training", key)
        assert_close(value, theirs.network.state()[key], "training", key)
        assert not np.allclose(value, start[key].value), key
    slots, want = native.state_dict(), written.state_dict()
    assert set(slots) == set(want)
    for key, value in want.items():
        assert_close(slots[key], np.broadcast_to(value, slots[key].shape), "training", key)


@pytest.mark.parametrize(("name", "kind", "options"), OPTIMIZERS)
def test_native_state_resumes_bit_for_bit(name: str, kind: Any, options: dict[str, Any]) -> None:
    network, inputs = setup()
    whole, first = (getattr(d5fw, name)(d5fw.from_model(network), **options) for _ in range(2))
    for _ in range(6):
        whole.step(inputs)
    for _ in range(3):
        first.step(inputs)
    second = getattr(d5fw, name)(d5fw.from_model(first.network.copy()), **options)
    second.load_state_dict(first.state_dict())
    for _ in range(3):
        second.step(inputs)
    for key, value in whole.network.state().items():
        assert_close(second.network.state()[key], value, "exact", key)


def test_native_hyperparameters_act_at_the_next_step() -> None:
    network, inputs = setup()
    optimizer = d5fw.MomentumOptimizer(d5fw.from_model(network), "loss", 0.1, 0.9)
    optimizer.set_parameter("lr", 0.0)
    optimizer.step(inputs)
    for key, value in optimizer.network.state().items():
        assert_close(value, network.parameters[key].value, "exact", key)
    optimizer.lr = 0.1
    optimizer.step(inputs)
    assert not np.allclose(optimizer.network.state()["fc1.weight"], network.parameters["fc1.weight"].value)
    with pytest.raises(InputError, match="nesterov"):
        d5fw.MomentumOptimizer(optimizer.executor, momentum=0.0, nesterov=True)


def test_native_gradient_modifier_is_honoured() -> None:
    network, inputs = setup()
    seen: list[str] = []

    def freeze(name: str, parameter: Any, gradient: Any) -> Any:
        seen.append(name)
        return gradient * 0 if name.endswith("weight") else gradient

    optimizer = d5fw.AdamOptimizer(d5fw.from_model(network), gradient_modifier=freeze)
    optimizer.step(inputs)
    assert seen == network.trainable()
    for key, value in optimizer.network.state().items():
        assert np.array_equal(value, network.parameters[key].value) == key.endswith("weight"), key


# -- from_native ------------------------------------------------------------------------------------------------------
def test_native_module_trains_like_its_plain_loop() -> None:
    inputs = {k: v.astype("f4") if v.dtype == np.float64 else v for k, v in setup()[1].items()}
    wrapped, plain = module_of(), module_of()
    executor = d5fw.from_native(wrapped, np.zeros((1, 6), np.float32))
    assert executor.module is wrapped and executor.network.get_params() == [n for n, _ in wrapped.named_parameters()]
    ours, theirs = d5fw.MomentumOptimizer(executor, "loss", 0.1, 0.9), torch.optim.SGD(plain.parameters(), 0.1, 0.9)
    three_step = reference.MomentumOptimizer(
        d5fw.from_native(module_of(), np.zeros((1, 6), np.float32)), "loss", 0.1, 0.9
    )
    for _ in range(3):
        got = ours.step(inputs)
        theirs.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            plain(torch.from_numpy(inputs["input"])), torch.from_numpy(inputs["label"])
        )
        loss.backward()
        theirs.step()
        assert_close(got["loss"], loss, "training")
        assert_close(three_step.step(inputs)["loss"], loss, "training")
    for key, value in plain.state_dict().items():
        assert_close(executor.network.state()[key], value, "training", key)
    assert set(executor.inference({"input": inputs["input"]}, ["output"])) == {"output"}
    assert wrapped.training


def test_native_module_keeps_the_modes_of_its_parts() -> None:
    module = module_of()
    module[1].eval()  # a frozen batch normalization
    executor = d5fw.from_native(module, torch.zeros(2, 6))
    assert [part.training for part in module] == [True, False, True, True]
    executor.inference({"input": np.zeros((2, 6), np.float32)}, ["output"])
    assert module.training and [part.training for part in module] == [True, False, True, True]


def test_native_module_refuses_edits_and_bad_inputs() -> None:
    executor = d5fw.from_native(module_of(), torch.zeros(1, 6))
    with pytest.raises(NetworkError, match="edit the module itself"):
        executor.network.add_node("Relu", ["output"], ["more"])
    with pytest.raises(InputError, match="shape"):
        executor.inference({"input": np.zeros((2, 5), np.float32)}, ["output"])
    with pytest.raises(NetworkError, match="'logits'"):
        executor.inference({"input": np.zeros((2, 6), np.float32)}, ["logits"])
    with pytest.raises(InputError, match="input_names"):
        d5fw.from_native(module_of(), (torch.zeros(1, 6), torch.zeros(1)))


def test_native_module_with_a_loss_of_its_own() -> None:
    module = torch.nn.Linear(3, 2)
    executor = d5fw.from_native(
        module, torch.zeros(1, 3), loss=torch.nn.functional.mse_loss, input_names=["x"], label_name="y"
    )
    inputs = {"x": np.ones((4, 3), np.float32), "y": np.ones((4, 2), np.float32)}
    first = float(d5fw.GradientDescent(executor, lr=0.1).step(inputs)["loss"])
    assert float(executor.inference(inputs)["loss"]) < first


def test_a_loss_may_be_a_module_or_a_function() -> None:
    x, label = np.random.default_rng(0).standard_normal((4, 6)).astype("float32"), np.array([0, 1, 2, 0])
    weights = torch.tensor([1.0, 2.0, 0.5])
    for loss in (
        torch.nn.CrossEntropyLoss(weight=weights),
        lambda y, t: torch.nn.functional.nll_loss(y.log_softmax(1), t),
    ):
        module = torch.nn.Linear(6, 3)
        executor = d5fw.from_native(module, torch.zeros(1, 6), loss=loss)
        got = executor.inference_and_backprop({"input": x, "label": label}, "loss")["loss"]
        want = loss(module(torch.from_numpy(x)), torch.from_numpy(label))
        assert_close(got, want, "forward")
        gradient = executor.network.fetch_tensors(["weight.grad"])[0]
        assert_close(gradient, torch.autograd.grad(want, module.weight)[0], "gradient")


def test_a_loss_in_the_place_of_example_inputs_is_named() -> None:
    with pytest.raises(
        InputError, match=r"got CrossEntropyLoss in the place of the example inputs; .*loss=CrossEntropyLoss"
    ):
        d5fw.from_native(torch.nn.Linear(6, 3), torch.nn.CrossEntropyLoss())
