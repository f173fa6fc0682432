"""PyTorch's GPU paths on the stand-in for a card: everything on the card, and the processor's values."""

from __future__ import annotations

import ctypes
from typing import Any
from unittest import mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("yaml")

import deep500 as d5  # noqa: E402
from deep500.devices import LOCAL_RANKS, GPUDevice, to_device  # noqa: E402
from deep500.errors import InputError, UnsupportedOperator  # noqa: E402
from deep500.frameworks import pytorch  # noqa: E402
from deep500.frameworks.pytorch import gpu  # noqa: E402
from deep500.frameworks.pytorch.operators import OPS  # noqa: E402
from deep500.networks import Network, add_loss, create  # noqa: E402
from tests.frameworks.test_zoo_gradients import ZOO, case  # noqa: E402
from tests.gpu.cases import CONTROL, check_inference, check_training, host, on_card  # noqa: E402
from tests.gpu.standin import CARD, NoSuchKernel, Stream, a_card  # noqa: E402


def test_the_stand_in_refuses_what_a_card_refuses() -> None:
    with a_card():
        x, whole = torch.ones(2, 2, device=CARD), torch.ones(2, 2, device=CARD, dtype=torch.int64)
        assert x.device == CARD and float((x + torch.tensor(1.0)).sum()) == 8
        with pytest.raises(RuntimeError, match="same device"):
            x + torch.ones(2, 2)
        with pytest.raises(NoSuchKernel, match="not implemented"):
            whole @ whole
        with pytest.raises(TypeError, match="numpy"):
            x.numpy()
        with pytest.raises(NoSuchKernel, match="CUDA"):
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(x[None, None], x[None, None], x[None, None])


HEAVY = {
    "resnet50",
    "vgg16",
    "inception_v3",
    "nasnet_a",
    "resnext50",
    "squeezenet",
    "resnet20",
    "repvgg",
    "wide_resnet",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name in HEAVY else []) for name in ZOO]
)
def test_networks_of_the_zoo(name: str) -> None:
    network, feeds, _ = case(name)
    check_training(network, feeds)


@pytest.mark.parametrize("name", list(CONTROL))
def test_bodies_run_where_their_network_runs(name: str) -> None:
    check_inference(*CONTROL[name]())


def test_recurrent_kernels_are_told_that_they_train() -> None:
    """cuDNN's gradients need it; on processors it makes no difference."""
    network, feeds, _ = case("lstm")
    asked: list[bool] = []
    kernel = torch._VF.lstm

    def spy(*args: Any) -> Any:
        asked.append(args[6])
        return kernel(*args)

    with mock.patch.object(torch._VF, "lstm", spy):
        executor = pytorch.from_model(network)
        executor.inference_and_backprop(feeds)
        executor.inference(feeds)
    assert asked[0] is True and asked[-1] is False


@pytest.mark.parametrize(
    "name",
    ["GradientDescent", "MomentumOptimizer", "AdamOptimizer", "AdamWOptimizer", "AdaGradOptimizer", "RMSPropOptimizer"],
)
def test_optimizers(name: str) -> None:
    network = add_loss(create("mlp", shape=(4,), classes=3))
    feeds = {"input": np.ones((2, 4), "float32"), "label": np.array([0, 2])}
    with a_card():
        executor = pytorch.from_model(network, "gpu", strict=True)
        optimizer = getattr(pytorch, name)(executor)
        for _ in range(2):
            optimizer.step(feeds)
        state = optimizer.state_dict()
        optimizer.load_state_dict(state)
        optimizer.step(feeds)
        got = [host(x) for x in executor.network.fetch_tensors(network.trainable())]
        assert on_card(list(executor.tensors.values()))
    plain = pytorch.from_model(network)
    other = getattr(pytorch, name)(plain)
    for _ in range(3):
        other.step(feeds)
    for a, b in zip(got, plain.network.fetch_tensors(network.trainable()), strict=True):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-5)


def test_labels_that_do_not_exist_are_refused_before_the_card_sees_them() -> None:
    network = add_loss(create("mlp", shape=(4,), classes=3))
    with a_card():
        executor = pytorch.from_model(network, "gpu", strict=True)
        with pytest.raises(InputError, match="label or index 3; expected 0 to 2"):
            executor.inference_and_backprop({"input": np.ones((2, 4), "float32"), "label": np.array([0, 3])})


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize(
    "shapes", [((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((5, 2, 3), (3, 1))]
)
def test_products_of_whole_numbers(dtype: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    rng, function = np.random.default_rng(0), OPS["", "MatMul"].function
    large = np.iinfo(dtype).max // 2
    a, b = (rng.integers(-large, large, shape).astype(dtype) for shape in shapes)
    with a_card():
        got = function(torch.from_numpy(a).to(CARD), torch.from_numpy(b).to(CARD))
    np.testing.assert_array_equal(host(got), np.matmul(a, b))
    assert got.on_host.dtype == torch.from_numpy(a).dtype


def test_wide_whole_numbers_in_einsum_are_refused_when_built() -> None:
    network = Network("sum")
    network.add_input("x", (2, 3), "int64")
    network.add_node("Einsum", ["x", "x"], ["y"], equation="ij,kj->ik")
    network.add_output("y")
    with a_card(), pytest.raises(UnsupportedOperator, match=r"Einsum.*int64 on cuda:0.*cast"):
        pytorch.from_model(network, "gpu")
    narrow = Network("sum")
    narrow.add_input("x", (2, 3), "int32")
    narrow.add_node("Cast", ["x"], ["z"], to=3)
    narrow.add_node("Einsum", ["z", "z"], ["y"], equation="ij,kj->ik")
    narrow.add_output("y")
    check_inference(narrow, {"x": np.arange(6, dtype="int32").reshape(2, 3)})


class Cube(d5.CustomPythonOp):
    """An operator of the processor."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] ** 3

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return 3 * grads[0] * fwd_inputs[0] ** 2


def test_custom_operators_of_the_processor_go_by_way_of_it() -> None:
    function = pytorch.custom_op(Cube())
    from deep500.frameworks.pytorch import custom

    node, described = mock.Mock(inputs=["x"], op_type="Cube"), {"x": d5.tensordesc([3], "float32")}
    with a_card(), mock.patch.object(custom, "operator_of", lambda *_: function.op):
        call = custom.node_function(node, described, CARD)
        x = torch.tensor([1.0, 2.0, 3.0], device=CARD).requires_grad_()
        (y,) = call(x)
        y.sum().backward()
        assert on_card([y, x.grad])
    assert host(y).tolist() == [1, 8, 27] and host(x.grad).tolist() == [3, 12, 27]


def test_every_gradient_has_memory_of_its_own_whoever_wants_it() -> None:
    """A CUDA operator writes all its gradients: one that nobody wants may not be a pointer to nothing."""
    given: list[list[int | None]] = []

    def function(op: Any, name: str, arguments: int, result: Any) -> Any:
        if name == "instance":
            return lambda *_: 1

        def call(instance: Any, *arrays: Any) -> int:
            given.append([ctypes.cast(arrays[-2], ctypes.POINTER(ctypes.c_void_p))[i] for i in range(2)])
            return 0

        return call

    op = mock.Mock(sizes=lambda shapes: np.zeros(1), name="op")
    x = [torch.ones(3), torch.ones(4)]
    described = [d5.tensordesc([3], "float32"), d5.tensordesc([4], "float32")]
    with (
        mock.patch.object(gpu, "_function", function),
        mock.patch.object(gpu, "_stream", lambda device: mock.MagicMock(__enter__=lambda s: 0)),
    ):
        made = gpu.launch(op, "backward", x, [x, x, x], described, [True, False])
    assert len(made) == 1 and made[0].shape == (3,)
    assert None not in given[0] and len(set(given[0])) == 2


def test_precision_and_determinism_are_set_before_a_run_and_recorded() -> None:
    network = create("mlp", shape=(4,), classes=3)
    feeds = {"input": np.ones((2, 4), "float32")}
    with a_card(), mock.patch.object(torch, "use_deterministic_algorithms") as deterministic:
        usual = pytorch.from_model(network, "gpu")
        fast = pytorch.from_model(network, "gpu", precision="tf32", deterministic=True)
        for executor, want in ((fast, "tf32"), (usual, "ieee"), (fast, "tf32"), (usual, "ieee")):
            executor.inference(feeds)
            assert torch.backends.cuda.matmul.fp32_precision == torch.backends.cudnn.conv.fp32_precision == want
            older = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32  # raises if they differ
            assert older == (want == "tf32",) * 2
            deterministic.assert_called_with(executor.deterministic)
            assert executor.precision == want
    assert pytorch.from_model(network, precision="tf32", deterministic=True).precision == "ieee"
    with pytest.raises(InputError, match="precision='fp32'; expected one of"):
        pytorch.from_model(network, precision="fp32")


@pytest.mark.parametrize("launcher", LOCAL_RANKS)
def test_a_rank_takes_the_card_of_its_number(launcher: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LOCAL_RANKS:
        monkeypatch.delenv(name, raising=False)
    assert to_device("gpu") == d5.GPUDevice() == GPUDevice(0)
    monkeypatch.setenv(launcher, "3")
    assert to_device("gpu") == d5.GPUDevice() == GPUDevice(3)
    assert to_device("gpu:1") == GPUDevice(1) and to_device("cpu").index == 0


def _trainer(executor: pytorch.Executor, samples: int) -> d5.Trainer:
    rng = np.random.default_rng(0)
    images = rng.normal(size=(samples, 1, 64, 64)).astype("float32")
    data = d5.NumpyDataset(images, "input", rng.integers(0, 3, samples), "label")
    return d5.Trainer(d5.ShuffleSampler(data, 4, seed=0), None, executor, pytorch.MomentumOptimizer(executor))


def test_the_loop_waits_for_the_card_at_the_end_of_epochs_only() -> None:
    """It may run ahead: neither steps nor what listens to them by default asks the card for a number."""
    network = add_loss(create("mlp", shape=(1, 64, 64), hidden=(4,), classes=3))
    waits = []
    with a_card() as card:
        for samples in (16, 48):
            executor = pytorch.from_model(network, "gpu", strict=True)
            trainer = _trainer(executor, samples)
            trainer.run(1)
            card.waits = 0
            trainer.run(1)
            waits.append(card.waits)
        executor.synchronize()
        assert card.waits == waits[-1] + 1
    assert waits[0] == waits[1] <= 3


def test_large_inputs_travel_beside_the_step_before() -> None:
    """On a stream of copies, which the step waits for; the stand-in refuses to read what was not waited for."""
    network = add_loss(create("mlp", shape=(1, 64, 64), hidden=(4,), classes=3))
    feeds = {"input": np.ones((8, 1, 64, 64), "float32"), "label": np.zeros(8, "int64")}
    with a_card() as card:
        executor = pytorch.from_model(network, "gpu", strict=True)
        executor.inference_and_backprop(feeds)
        assert card.recorded == 1
        with mock.patch.object(Stream, "wait_stream"), pytest.raises(RuntimeError, match="still sending"):
            executor.inference_and_backprop(feeds)
