"""What exporters took apart is found again, gives the same in float64, and only where nothing else wants the parts."""

from __future__ import annotations

import copy
import io
import pickle
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import deep500.frameworks.pytorch as d5fw
from deep500.networks.emit import Emitter
from deep500.networks.network import Network
from deep500.networks.rewrite import replace_operator
from deep500.training import optimizers

Tensor = torch.Tensor


class Of(nn.Module):
    """A function of one or more tensors, with parameters by name."""

    def __init__(self, function: Callable[..., Tensor], **parameters: Any) -> None:
        super().__init__()
        self.function = function
        for name, value in parameters.items():
            if isinstance(value, nn.Module):
                self.add_module(name, value)
            else:
                self.register_parameter(name, nn.Parameter(value))

    def forward(self, *xs: Tensor) -> Tensor:
        return self.function(self, *xs)


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape)


def written_out(m: Of, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-6) * m.w + m.b


def masked(m: Of, x: Tensor, seen: Tensor) -> Tensor:
    scores = (x * 0.25) @ x.transpose(-1, -2) + (1.0 - seen[:, None, None, :]) * torch.finfo(x.dtype).min
    return scores.softmax(-1) @ x


def hidden(m: Of, x: Tensor) -> Tensor:
    scores = m.p(x) @ x.transpose(-1, -2) / 3.0
    ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return scores.masked_fill(ahead, -float("inf")).softmax(-1) @ x


def tanh_gelu(m: Of, x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def causal(m: Of, x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(m.p(x), x, x, is_causal=True)


RECURRENT = {"batch_first": True, "num_layers": 2}
CASES: dict[str, tuple[Of, tuple[tuple[int, ...], ...], dict[str, int]]] = {
    "silu": (Of(lambda m, x: F.silu(x * m.w), w=randn(5)), ((3, 5),), {"Swish": 1}),
    "gelu": (Of(lambda m, x: F.gelu(x * m.w), w=randn(5)), ((3, 5),), {"Gelu": 1}),
    "gelu by tanh": (Of(lambda m, x: F.gelu(x * m.w, approximate="tanh"), w=randn(5)), ((3, 5),), {"Gelu": 1}),
    "gelu by tanh, written out": (Of(lambda m, x: tanh_gelu(m, x * m.w), w=randn(5)), ((3, 5),), {"Gelu": 1}),
    "hard swish": (Of(lambda m, x: x * m.w * F.relu6(x * m.w + 3) / 6, w=randn(5)), ((3, 5),), {}),
    "mish": (Of(lambda m, x: F.mish(x * m.w), w=randn(5)), ((3, 5),), {"Mish": 1}),
    "group norm": (Of(lambda m, x: m.n(x), n=nn.GroupNorm(2, 6)), ((2, 6, 4, 3),), {"GroupNormalization": 1}),
    "group norm, groups with weights": (
        Of(
            lambda m, x: F.instance_norm(x.reshape(2, 2, -1), weight=m.a, bias=m.c).reshape(x.shape) * m.w + m.b,
            a=randn(2),
            c=randn(2),
            w=randn(6, 1, 1),
            b=randn(6, 1, 1),
        ),
        ((2, 6, 4, 3),),
        {"GroupNormalization": 1},
    ),
    "layer norm": (Of(written_out, w=randn(5), b=randn(5)), ((3, 4, 5),), {"LayerNormalization": 1}),
    "RMS norm": (
        Of(lambda m, x: m.w * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)), w=randn(5)),
        ((3, 4, 5),),
        {"RMSNormalization": 1},
    ),
    "dense": (Of(lambda m, x: m.p(x), p=nn.Linear(5, 3)), ((2, 4, 5),), {"Linear": 1}),
    "dense, turned": (Of(lambda m, x: x @ m.w + m.b, w=randn(5, 3), b=randn(3)), ((2, 4, 5),), {"Linear": 1}),
    "attention": (
        Of(lambda m, x: F.scaled_dot_product_attention(m.p(x), x, x, scale=0.3), p=nn.Linear(5, 5)),
        ((2, 3, 4, 5),),
        {"Attention": 1, "Linear": 1},
    ),
    "attention, causal": (Of(causal, p=nn.Linear(5, 5)), ((2, 3, 4, 5),), {"Attention": 1, "Linear": 1}),
    "attention, masked": (
        Of(lambda m, x, seen: masked(m, m.p(x), seen), p=nn.Linear(5, 5)),
        ((2, 3, 4, 5), (2, 4)),
        {"Attention": 1, "Linear": 1},
    ),
    "attention, hidden": (Of(hidden, p=nn.Linear(5, 5)), ((2, 3, 4, 5),), {"Attention": 1, "Linear": 1}),
    "encoder layer": (
        Of(lambda m, x: m.layer(x), layer=nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True)),
        ((2, 5, 8),),
        {"Attention": 1, "Gelu": 1, "Linear": 3},
    ),
    "LSTM": (
        Of(lambda m, x: m.rnn(x)[0], rnn=nn.LSTM(4, 3, bidirectional=True, **RECURRENT)),  # type: ignore[arg-type]
        ((2, 5, 4),),
        {"OrderedLSTM": 1},
    ),
    "LSTM with states": (
        Of(lambda m, x, h, c: m.rnn(x, (h, c))[0], rnn=nn.LSTM(4, 3, **RECURRENT)),  # type: ignore[arg-type]
        ((2, 5, 4), (2, 2, 3), (2, 2, 3)),
        {"OrderedLSTM": 1},
    ),
    "GRU": (
        Of(lambda m, x, h: m.rnn(x, h)[0], rnn=nn.GRU(4, 3, **RECURRENT)),  # type: ignore[arg-type]
        ((2, 5, 4), (2, 2, 3)),
        {"OrderedGRU": 1},
    ),
    "LSTM, once with the last states": (
        Of(
            lambda m, x: torch.cat([m.rnn(x)[0], m.rnn(x)[1][0].sum(0, keepdim=True).transpose(0, 1)], 1),
            rnn=nn.LSTM(4, 3, **RECURRENT),
        ),  # type: ignore[arg-type]
        ((2, 5, 4),),
        {"OrderedLSTM": 3},
    ),
    "sum of outer products": (
        Of(lambda m, x: ((x * m.w)[:, :, :, None] * m.v[:, None]).sum(-2), w=randn(3), v=randn(2, 3, 5)),
        ((2, 4, 3),),
        {"MatMul": 1},
    ),
}


def exported(module: nn.Module, inputs: tuple[Tensor, ...], **options: Any) -> Network:
    """A module in training as PyTorch's exporter writes it, with the sum of its output's squares as loss."""
    data = io.BytesIO()
    names = [f"x{i}" for i in range(len(inputs))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.train(),
            inputs,
            data,
            dynamo=False,
            opset_version=18,
            input_names=names,
            output_names=["y"],
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
            **options,
        )
    network = Network.from_onnx(data.getvalue())
    emit = Emitter(network)
    emit("ReduceSum", emit("Mul", "y", "y"), output="loss", keepdims=0)
    network.add_output("loss")
    return network


def case(name: str, **options: Any) -> tuple[nn.Module, dict[str, Tensor], Network]:
    """A case's module in float64, its inputs, its network."""
    torch.manual_seed(0)
    module, shapes, _ = CASES[name]
    module = copy.deepcopy(module).double()
    inputs = tuple(torch.randn(shape, dtype=torch.float64) for shape in shapes)
    if len(inputs) == 2 and len(shapes[1]) == 2:  # which words are there
        inputs = (inputs[0], (inputs[1] > 0).double().index_fill(1, torch.tensor([0]), 1.0))
    return module, {f"x{i}": x for i, x in enumerate(inputs)}, exported(module, inputs, **options)


@pytest.mark.parametrize("name", CASES)
def test_recognised_forms_are_equal_in_float64(name: str) -> None:
    """Values and gradients by name are those of the module, whether operators are recognised or not."""
    module, inputs, network = case(name)
    executor = d5fw.from_model(network)
    plain = d5fw.from_model(network, recognise=False)
    counts = {k: v for k, v in Counter(executor.module.recognised.values()).items() if k in CASES[name][2]}
    assert counts == CASES[name][2]
    assert not plain.module.recognised
    output = module(*inputs.values())
    output.square().sum().backward()
    found = executor.inference_and_backprop(inputs)
    wanted = plain.inference_and_backprop(inputs)
    assert executor.network.trainable() == plain.network.trainable()
    assert torch.allclose(found["y"], output, rtol=1e-12, atol=1e-12)
    assert torch.allclose(found["y"], wanted["y"], rtol=1e-12, atol=1e-12)
    gradients = {f"{n}.grad": p.grad for n, p in module.named_parameters()}
    for gradient, ours in zip(*(e.network.gradient() for e in (executor, plain)), strict=True):
        assert gradient == ours
        mine, theirs = (e.network.fetch_tensors([gradient[1]])[0] for e in (executor, plain))
        assert torch.allclose(mine, theirs, rtol=1e-9, atol=1e-10), gradient
        if gradient[1] in gradients:
            assert torch.allclose(mine, gradients[gradient[1]], rtol=1e-9, atol=1e-10), gradient


@pytest.mark.parametrize("name", ["LSTM", "GRU"])
def test_biases_that_an_exporter_put_together(name: str) -> None:
    """The other exporter leaves the weights' slices and folds those of the biases, into one array that trains."""
    _, inputs, network = case(name)
    layers = [node for node in network.nodes if node.op_type == name]
    values = d5fw.from_model(network).inference(inputs, [node.inputs[3] for node in layers])
    for i, node in enumerate(layers):
        network.add_parameter(f"biases{i}", values[node.inputs[3]].numpy())
        network.add_edge(f"biases{i}", node.name, 3)
    executor, plain = d5fw.from_model(network), d5fw.from_model(network, recognise=False)
    assert Counter(executor.module.recognised.values())[f"Ordered{name}"] == 1  # of two layers
    for each in (executor, plain):
        each.inference_and_backprop(inputs)
    for _, gradient in network.gradient():
        mine, theirs = (e.network.fetch_tensors([gradient])[0] for e in (executor, plain))
        assert torch.allclose(mine, theirs, rtol=1e-9, atol=1e-10), gradient


def one_lstm() -> Network:
    """An LSTM whose weights are one array."""
    network = Network()
    network.add_input("x", (3, 2, 4))
    rng = np.random.default_rng(0)
    for name, shape in (("w", (1, 12, 4)), ("r", (1, 12, 3)), ("b", (1, 24))):
        network.add_parameter(name, rng.standard_normal(shape).astype(np.float32))
    network.add_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=3)
    network.add_output("y")
    return network


OPTIMIZERS = ["GradientDescent", "MomentumOptimizer", "AdamOptimizer", "AdamWOptimizer", "AdaGradOptimizer"]
OPTIMIZERS += ["RMSPropOptimizer"]


@pytest.mark.parametrize("module", [d5fw, optimizers], ids=["native", "written once"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_inference_sees_what_every_optimizer_does(module: Any, name: str) -> None:
    """torch's fused optimizers write without counting it; the reference ones hand over memory that is used again."""
    network, x = one_lstm(), torch.randn(3, 2, 4)
    network.add_node("Mul", ["y", "y"], ["square"])
    network.add_node("ReduceMean", ["square"], ["loss"], keepdims=0)
    network.add_output("loss")
    executor = d5fw.from_model(network)
    optimizer = getattr(module, name)(executor, "loss", lr=0.05)
    for _ in range(6):
        before = executor.inference({"x": x})["y"].clone()
        optimizer.step({"x": x})
        now = executor.inference({"x": x})["y"]
        again = d5fw.from_model(executor.network.copy()).inference({"x": x})["y"]
        assert torch.equal(now, again) and not torch.equal(now, before)


def test_inference_sees_weights_that_were_handed_over() -> None:
    """Memory that one tensor leaves is often the next one's: an address does not tell values apart."""
    network, x = one_lstm(), torch.randn(3, 2, 4)
    executor = d5fw.from_model(network)
    here, there = (torch.full((1, 12, 4), value) for value in (0.1, 0.2))
    executor.network.assign_tensor("w", here)
    first = executor.inference({"x": x})["y"]
    executor.network.assign_tensor("w", there)
    here.fill_(0.3)
    executor.network.assign_tensor("w", here)
    assert not torch.equal(executor.inference({"x": x})["y"], first)


def test_weights_in_order_are_kept_until_they_change() -> None:
    """Inference puts the gates of weights that are one array into torch's order once, and again after a change."""
    network = one_lstm()
    executor, x = d5fw.from_model(network), torch.randn(3, 2, 4)
    first = executor.inference({"x": x})["y"]
    assert torch.equal(executor.inference({"x": x})["y"], first)
    for name in ("w", "r", "b"):
        executor.network.feed_tensor(name, network.parameters[name].value + 0.5)
        now = executor.inference({"x": x})["y"]
        assert not torch.equal(now, first), name
        first = now
    again = d5fw.from_model(executor.network.copy()).inference({"x": x})["y"]
    assert torch.equal(first, again)


@pytest.mark.parametrize("name", ["group norm", "attention", "encoder layer", "dense"])
def test_batches_of_any_size(name: str) -> None:
    """Sizes that only the run knows keep no operator from being recognised, and every size works."""
    module, inputs, network = case(name, dynamic_axes={"x0": {0: "N"}})
    executor = d5fw.from_model(network)
    assert set(executor.module.recognised.values()) >= CASES[name][2].keys()
    for size in (1, 3):
        x = torch.randn(size, *inputs["x0"].shape[1:], dtype=torch.float64)
        assert torch.allclose(executor.inference({"x0": x})["y"], module(x), rtol=1e-12, atol=1e-12)


def swish() -> tuple[Network, Emitter]:
    network = Network()
    network.add_input("x", ("N", 3))
    emit = Emitter(network)
    emit("Sigmoid", "x", output="s")
    emit("Mul", "x", "s", output="y")
    network.add_output("y")
    return network, emit


def test_a_part_that_is_read_elsewhere_is_kept() -> None:
    network, emit = swish()
    assert d5fw.from_model(network).module.recognised == {"y": "Swish"}
    emit("Relu", "s", output="z")
    assert d5fw.from_model(network).module.recognised == {"y": "Swish"}, "an unread value counts for nothing"
    network.add_output("z")
    assert d5fw.from_model(network).module.recognised == {}


def test_a_part_that_is_asked_for_is_kept() -> None:
    network, _ = swish()
    executor = d5fw.from_model(network)
    x = torch.randn(2, 3)
    assert torch.equal(executor.inference({"x": x}, ["s"])["s"], torch.sigmoid(x))
    both = executor.inference({"x": x}, ["s", "y"])
    assert torch.equal(both["y"], x * both["s"])


def test_other_constants_are_other_functions() -> None:
    """A factor of 0.51 makes no GELU."""
    _, inputs, network = case("gelu")
    halves = [n for n, p in network.parameters.items() if p.value.size == 1 and float(p.value) == 0.5]
    network.set_parameter(halves[0], np.array(0.51))
    executor = d5fw.from_model(network)
    assert "Gelu" not in executor.module.recognised.values()
    wanted = d5fw.from_model(network, recognise=False).inference(inputs)["y"]
    assert torch.allclose(executor.inference(inputs)["y"], wanted, rtol=1e-12)


def test_a_trained_mask_stays_outside() -> None:
    """Fused attention has no gradient for its mask."""
    function: Any = lambda m, x: ((x @ x.transpose(-1, -2)) * 0.5 + m.bias).softmax(-1) @ x  # noqa: E731
    network = exported(Of(function, bias=randn(1, 1, 4, 4)), (randn(2, 3, 4, 5),))
    executor = d5fw.from_model(network)
    assert "Attention" not in executor.module.recognised.values()
    executor.inference_and_backprop({"x0": randn(2, 3, 4, 5)})
    assert executor.network.fetch_tensors(["bias.grad"])[0].abs().sum() > 0


def test_arithmetic_on_shapes_is_done_once() -> None:
    """No shape is computed when the code runs."""
    _, _, network = case("encoder layer")
    kinds = Counter(node.op_type for node in network.nodes)
    assert kinds["Shape"] and kinds["Concat"] and kinds["Slice"]
    code = d5fw.from_model(network).module.code
    assert "movement_shape" not in code
    assert "torch.cat" not in code
    assert "movement_shape" in d5fw.from_model(network, recognise=False).module.code


def test_what_stands_in_the_code_may_still_be_written() -> None:
    """A constant that was folded is computed again when it is fed."""
    network = Network()
    network.add_input("x", (2, 3))
    network.add_parameter("a", np.array(2.0, np.float32), trainable=False)
    emit = Emitter(network)
    emit("Mul", "x", emit("Neg", "a"), output="y")
    network.add_output("y")
    executor = d5fw.from_model(network)
    x = torch.ones(2, 3)
    assert executor.inference({"x": x})["y"].unique().tolist() == [-2.0]
    executor.network.feed_tensor("a", np.array(3.0, np.float32))
    assert executor.inference({"x": x})["y"].unique().tolist() == [-3.0]


def test_statistics_that_move_are_not_folded() -> None:
    """A running mean changes while a network trains, also for those who read it beside the normalisation."""
    network = Network()
    network.add_input("x", (4, 1))
    for name, value in (("scale", 1), ("bias", 0), ("mean", 0), ("variance", 1)):
        network.add_parameter(name, np.array([value], np.float32), trainable=name in ("scale", "bias"))
    emit = Emitter(network)
    emit("BatchNormalization", "x", "scale", "bias", "mean", "variance", output="n")
    emit("Add", "n", emit("Neg", "mean"), output="y")
    emit("ReduceSum", "y", output="loss", keepdims=0)
    network.add_output("y")
    network.add_output("loss")
    executor, x = d5fw.from_model(network), torch.full((4, 1), 2.0)
    first = executor.inference({"x": x})["y"]
    executor.inference_and_backprop({"x": x})
    assert executor.network.fetch_tensors(["mean"])[0].item() == pytest.approx(0.2)
    assert not torch.equal(executor.inference({"x": x})["y"], first)


@pytest.mark.parametrize("way", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_of_a_module_know_what_stood_in_the_code(way: Callable[[Any], Any]) -> None:
    _, inputs, network = case("encoder layer")
    module = d5fw.from_model(network).module.eval()
    twin = way(module).eval()
    assert twin.recognised == module.recognised
    for mine, theirs in zip(module(*inputs.values()), twin(*inputs.values()), strict=True):
        assert torch.equal(mine, theirs)


def test_the_table_says_what_was_recognised() -> None:
    network, _ = swish()
    executor = d5fw.from_model(network)
    assert str(executor.network).endswith("recognised by pytorch: 1 Swish")
    assert "recognised" not in str(d5fw.from_model(network, recognise=False).network)


def test_a_replaced_activation_is_seen() -> None:
    """An edit is compiled anew."""
    network, _ = swish()
    edited = replace_operator(network, "Sigmoid", "Tanh")
    assert d5fw.from_model(edited).module.recognised == {}


def test_rows_that_are_counted_from_the_back() -> None:
    """Embeddings refuse negative indices, ONNX does not; one beyond the table is an error still."""
    network = Network()
    network.add_input("i", (3,), "int64")
    network.add_parameter("table", np.arange(8, dtype=np.float32).reshape(4, 2))
    network.add_node("Gather", ["table", "i"], ["y"])
    network.add_output("y")
    executor = d5fw.from_model(network)
    found = executor.inference({"i": torch.tensor([0, -1, 2])})["y"]
    assert found.tolist() == [[0, 1], [6, 7], [4, 5]]
    with pytest.raises(Exception, match="index"):
        executor.inference({"i": torch.tensor([0, 4, 2])})
