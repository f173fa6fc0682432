"""Branching and searched networks of the zoo against PyTorch's functions, NumPy and published sizes."""

from __future__ import annotations

import numpy as np
import pytest

import deep500.networks as d5nt
from deep500.errors import NetworkError
from deep500.frameworks.reference import Executor
from deep500.networks import Network
from deep500.networks.zoo.builder import Builder
from deep500.networks.zoo.separable import _halve
from tests.tolerances import assert_close


def answer(network: Network, x: np.ndarray) -> np.ndarray:
    return Executor(network).inference({"input": x})["output"]


def randomised(network: Network) -> Network:
    """In float64, with statistics, biases and scales that are not 0 and 1, so that a mistake in them shows."""
    network, rng = d5nt.to_dtype(network, "float64"), np.random.default_rng(1)
    for parameter in network.parameters.values():
        if parameter.value.dtype == np.float64 and parameter.value.ndim == 1:
            parameter.value = rng.uniform(0.5, 1.5, parameter.value.shape)
    return network


def test_bert_is_pytorchs_encoder_with_norms_after_the_sums() -> None:
    torch = pytest.importorskip("torch")
    f, width, layers = torch.nn.functional, 12, 2
    network = randomised(
        d5nt.create("bert", shape=(7,), vocabulary=50, positions=9, width=width, heads=3, hidden=20, layers=layers)
    )
    value = {name: torch.from_numpy(p.value) for name, p in network.parameters.items()}
    tokens = np.random.default_rng(0).integers(0, 50, (4, 7))
    h = value["embeddings.word.weight"][tokens] + value["embeddings.position.weight"][:7]
    h = h + value["embeddings.segment.weight"][0]
    h = f.layer_norm(h, (width,), value["embeddings.norm.weight"], value["embeddings.norm.bias"], 1e-12)
    for i in range(layers):
        layer = torch.nn.TransformerEncoderLayer(
            width, 3, 20, 0.0, "gelu", 1e-12, batch_first=True, dtype=torch.float64
        )
        name, state = f"layer{i}", layer.state_dict()
        parts = [f"{name}.attention.{part}" for part in ("query", "key", "value")]
        state["self_attn.in_proj_weight"] = torch.cat([value[f"{part}.weight"].T for part in parts])
        state["self_attn.in_proj_bias"] = torch.cat([value[f"{part}.bias"] for part in parts])
        dense = {"self_attn.out_proj": "attention.output", "linear1": "intermediate", "linear2": "output"}
        norms = {"norm1": "attention.norm", "norm2": "norm"}
        for theirs, ours in (dense | norms).items():
            weight = value[f"{name}.{ours}.weight"]
            state[f"{theirs}.weight"] = weight.mT if weight.ndim == 2 else weight
            state[f"{theirs}.bias"] = value[f"{name}.{ours}.bias"]
        layer.load_state_dict(state)
        h = layer.eval()(h)
    pooled = torch.tanh(h[:, 0] @ value["pooler.weight"] + value["pooler.bias"])
    want = f.linear(pooled, value["classifier.weight"], value["classifier.bias"])
    assert_close(answer(network, tokens), want.detach())


def test_the_attention_block_is_pytorchs_attention_sum_and_norm() -> None:
    torch = pytest.importorskip("torch")
    network = randomised(d5nt.create("attention_block", shape=(5, 12), heads=4))
    value = {
        name.removeprefix("layer0.attention."): torch.from_numpy(p.value) for name, p in network.parameters.items()
    }
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 5, 12)))
    module = torch.nn.MultiheadAttention(12, 4, batch_first=True, dtype=torch.float64)
    parts = ("query", "key", "value")
    # fmt: off
    module.load_state_dict({
        "in_proj_weight": torch.cat([value[f"{part}.weight"].T for part in parts]),
        "in_proj_bias": torch.cat([value[f"{part}.bias"] for part in parts]),
        "out_proj.weight": value["output.weight"].T, "out_proj.bias": value["output.bias"],
    })
    # fmt: on
    h = torch.nn.functional.layer_norm(x + module(x, x, x)[0], (12,), value["norm.weight"], value["norm.bias"], 1e-12)
    want = torch.nn.functional.linear(h[:, 0], value["classifier.weight"], value["classifier.bias"])
    assert_close(answer(network, x.numpy()), want.detach())


@pytest.mark.parametrize("tied", [True, False])
def test_nasrnn_is_its_equations(tied: bool) -> None:
    network = d5nt.to_dtype(d5nt.create("nasrnn", shape=(4, 6), hidden=5, tied=tied), "float64")
    value = {name: p.value for name, p in network.parameters.items()}
    x = np.random.default_rng(0).normal(size=(3, 4, 6))

    def sigmoid(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))

    h = value["state.weight"]
    for step in range(4):
        cell = "cell" if tied else f"cell{step}"
        t = [x[:, step] @ value[f"{cell}.w{i}.weight"] + h @ value[f"{cell}.u{i}.weight"] for i in range(8)]
        left = np.tanh(sigmoid(sigmoid(t[1]) + np.tanh(t[2])) + np.tanh(sigmoid(t[4]) * np.tanh(t[5])))
        first = np.tanh(np.maximum(t[0], 0) + sigmoid(t[3]))
        h = np.tanh(left * np.tanh(first * np.tanh(sigmoid(t[6]) * np.maximum(t[7], 0))))
    assert_close(answer(network, x), h @ value["fc.weight"].T + value["fc.bias"])


def test_nasrnn_has_sixteen_matrix_products_per_step() -> None:
    network = d5nt.create("nasrnn")
    assert sum(node.op_type == "MatMul" for node in network.nodes) == 5 * 16
    assert network.descriptors()["step4.state"].shape == ("N", 512)


@pytest.mark.parametrize("branches", [1, 3])
def test_the_branches_of_repvgg_add_up_to_one_convolution(branches: int) -> None:
    torch = pytest.importorskip("torch")
    form = dict(shape=(3, 20, 24), blocks=(2,), widths=(8,), branches=branches)
    network = randomised(d5nt.create("repvgg", **form))
    value = {name: torch.from_numpy(p.value) for name, p in network.parameters.items()}
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 20, 24)))
    h = x
    for name, stride in (("stage0", 2), ("stage1.0", 2), ("stage1.1", 1)):
        kernel, bias = torch.zeros(8, h.shape[1], 3, 3, dtype=torch.float64), torch.zeros(8, dtype=torch.float64)
        for norm in [key.removesuffix(".weight") for key in value if key.startswith(f"{name}.") and "bn.weight" in key]:
            factor = value[f"{norm}.weight"] / torch.sqrt(value[f"{norm}.running_var"] + 1e-5)
            weight = value.get(norm.replace(".bn", ".conv.weight"), torch.eye(8, dtype=torch.float64)[..., None, None])
            room = (3 - weight.shape[-1]) // 2
            kernel += torch.nn.functional.pad(weight, [room] * 4) * factor[:, None, None, None]
            bias += value[f"{norm}.bias"] - value[f"{norm}.running_mean"] * factor
        h = torch.relu(torch.nn.functional.conv2d(h, kernel, bias, stride, 1))
    want = torch.nn.functional.linear(h.mean((2, 3)), value["fc.weight"], value["fc.bias"])
    assert_close(answer(network, x.numpy()), want)


def test_repvgg_a0_is_as_large_as_published_once_its_branches_are_added_up() -> None:
    network = d5nt.create("repvgg", classes=1000)
    kernels = [network.parameters[node.inputs[1]].value for node in network.nodes if node.op_type == "Conv"]
    deployed = sum(k.size + len(k) for k in kernels if k.shape[-1] == 3) + 1280 * 1000 + 1000
    assert round(deployed / 1e6, 2) == 8.31  # Ding et al. 2021: A0 8.30 million, of convolutions and classifier


@pytest.mark.parametrize("shape", [(6, 7, 8), (6, 8, 7)])
def test_nasnets_halving_takes_even_pixels_and_odd_ones(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    build = Builder("halve", "N", shape, 0)
    build.network.add_output(_halve(build, "input", "half", 5))
    network = d5nt.to_dtype(build.network, "float64")
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(2, *shape)))
    h = torch.relu(x)
    value = {name: torch.from_numpy(p.value) for name, p in network.parameters.items()}
    moved = torch.nn.functional.pad(h, [-1, 1, -1, 1])
    parts = [
        torch.nn.functional.conv2d(y[:, :, ::2, ::2], value[f"half.path{i}.weight"]) for i, y in ((1, h), (2, moved))
    ]
    want = torch.cat(parts, 1) / np.sqrt(1 + 1e-3)
    assert_close(Executor(network).inference({"input": x.numpy()})["half.bn"], want)


def test_nasnet_has_the_requested_cells() -> None:
    network = d5nt.create("nasnet_a", batch=1)
    shapes = {name: d.shape for name, d in network.descriptors().items()}
    assert [shapes[f"group{g}.{c}"] for g in (1, 2, 3) for c in (0, 4)] == [
        (1, 264, 28, 28),
        (1, 264, 28, 28),
        (1, 528, 14, 14),
        (1, 528, 14, 14),
        (1, 1056, 7, 7),
        (1, 1056, 7, 7),
    ]
    assert shapes["reduction3"] == (1, 4 * 352, 4, 4)
    normal = [node.op_type for node in network.nodes if node.name.startswith("group2.3.")]
    counts = {kind: normal.count(kind) for kind in ("Add", "AveragePool", "MaxPool", "Concat", "Conv")}
    assert counts == {"Add": 5, "AveragePool": 3, "MaxPool": 0, "Concat": 0, "Conv": 2 + 5 * 4}  # Concat is the cell


def test_convolutions_in_groups_that_do_not_fit_are_refused() -> None:
    build = Builder("odd", 1, (4, 8, 8), 0)
    with pytest.raises(NetworkError, match=r"layer 'c': got 4 channels to 6 in 3 groups; expected multiples"):
        build.conv("input", "c", 6, 3, groups=3)
