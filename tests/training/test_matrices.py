"""Which weights are matrices of hidden layers, and which axis is the output's: by the graph, never by the shape."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.networks import Network, add_loss, create
from deep500.training.matrices import Matrix, hidden_matrices
from deep500.training.optimizers import MuonOptimizer
from deep500.training.optimizers.muon import SCALES, orthogonalized
from tests.conftest import load_backend
from tests.tolerances import assert_close


def network(kind: str) -> Network:
    """A weight ``w`` that is read in some way, and a layer behind it."""
    net, rng = Network(kind), np.random.default_rng(0)
    net.add_input("input", ("N", 4) if kind != "Gather" else ("N",), "float32" if kind != "Gather" else "int64")
    stored = {"Gemm transB": (3, 4), "transposed": (3, 4), "left": (3, 4), "Gather": (5, 3), "tied": (4, 4)}
    shape = stored.get(kind, (4, 3))
    net.add_parameter("w", rng.normal(size=shape).astype("float32"))
    net.add_parameter("last", rng.normal(size=(4 if kind in ("left", "tied") else 3, 2)).astype("float32"))
    if kind.startswith("Gemm"):
        net.add_node("Gemm", ["input", "w"], ["a"], transB=int("transB" in kind))
    elif kind == "transposed":
        net.add_node("Cast", ["w"], ["cast"], to=1)
        net.add_node("Transpose", ["cast"], ["turned"], perm=(1, 0))
        net.add_node("MatMul", ["input", "turned"], ["a"])
    elif kind == "left":
        net.add_node("Transpose", ["input"], ["columns"], perm=(1, 0))
        net.add_node("MatMul", ["w", "columns"], ["rows"])
        net.add_node("Transpose", ["rows"], ["b"], perm=(1, 0))
        net.add_parameter("widen", rng.normal(size=(3, 4)).astype("float32"))
        net.add_node("MatMul", ["b", "widen"], ["a"])
    elif kind == "Gather":
        net.add_node("Gather", ["w", "input"], ["a"])
    elif kind == "tied":
        net.add_node("MatMul", ["input", "w"], ["once"])
        net.add_node("Gemm", ["once", "w"], ["a"], transB=1)
    else:
        net.add_node("MatMul", ["input", "w"], ["a"])
    net.add_node("MatMul", ["a", "last"], ["output"])
    net.add_output("output")
    return add_loss(net)


@pytest.mark.parametrize(
    ("kind", "matrix"),
    [
        ("MatMul", Matrix(3, 4, False)),
        ("Gemm", Matrix(3, 4, False)),
        ("Gemm transB", Matrix(3, 4, True)),
        ("transposed", Matrix(3, 4, True)),
        ("left", Matrix(3, 4, True)),
        ("Gather", None),
        ("tied", None),  # read in both orientations
    ],
)
def test_orientation_is_read_from_the_graph(kind: str, matrix: Matrix | None) -> None:
    got = hidden_matrices(network(kind))
    assert got.get("w") == matrix and "last" not in got


def test_networks_of_the_zoo() -> None:
    lenet = hidden_matrices(create("lenet", shape=(1, 28, 28)))
    assert lenet["conv2.weight"].inputs == lenet["conv1.weight"].outputs * 25 and "fc3.weight" not in lenet
    text = create("causal_transformer", shape=(8,), classes=11)
    matrices = hidden_matrices(text)
    assert matrices and not any("embed" in name or "norm" in name or "position" in name for name in matrices)
    assert all(len(text.parameters[name].value.shape) == 2 for name in matrices)
    separable = hidden_matrices(create("nasnet_a", shape=(3, 32, 32), classes=3))
    depthwise = [
        node.inputs[1] for node in create("nasnet_a", shape=(3, 32, 32), classes=3).nodes
        if node.op_type == "Conv" and node.attributes.get("group", 1) > 1
    ]  # fmt: skip
    assert separable and depthwise and not set(depthwise) & set(separable)


@pytest.mark.parametrize("scaling", SCALES)
def test_muon_moves_a_matrix_alike_however_it_is_stored(scaling: str) -> None:
    """Three networks that compute the same, with the weight as [out, in] and as [in, out]."""
    batch = {"input": np.random.default_rng(1).normal(size=(6, 4)).astype("float32"), "label": np.arange(6) % 2}
    moved = {}
    for kind in ("MatMul", "Gemm transB", "transposed"):
        net = network(kind)
        weight = np.arange(12, dtype="float32").reshape(4, 3) / 6 - 1
        net.parameters["w"].value[...] = weight if kind == "MatMul" else weight.T
        executor = load_backend("reference").from_model(net)
        optimizer = MuonOptimizer(executor, lr=0.1, scaling=scaling)
        for _ in range(4):
            optimizer.step(batch)
        got = executor.network.state()["w"]
        moved[kind] = got if kind == "MatMul" else got.T
        assert np.abs(moved[kind] - weight).max() > 0.05
    assert_close(moved["Gemm transB"], moved["MatMul"], "training")
    assert_close(moved["transposed"], moved["MatMul"], "training")


def test_muon_flattens_the_windows_of_convolutions() -> None:
    executor = load_backend("reference").from_model(add_loss(create("lenet", shape=(1, 28, 28))))
    before = executor.network.state()["conv2.weight"]
    rng = np.random.default_rng(0)
    optimizer = MuonOptimizer(executor, lr=0.1, weight_decay=0.0, nesterov=False, scaling="original")
    optimizer.step({"input": rng.normal(size=(4, 1, 28, 28)).astype("float32"), "label": np.arange(4)})
    step = (before - executor.network.state()["conv2.weight"]).reshape(len(before), -1) / 0.1
    values = np.linalg.svd(step)[1]
    values = values[values > 1e-6]  # a channel whose ReLU is shut has no gradient
    assert len(values) > 10 and 0.5 < values.min() and values.max() < 1.5  # its scale is 1: fewer outputs than inputs


def test_it_is_torchs_iteration_up_to_its_bfloat16() -> None:
    torch = pytest.importorskip("torch")
    start = np.random.default_rng(0).normal(size=(5, 3))
    tensor = torch.nn.Parameter(torch.tensor(start))
    optimizer = torch.optim.Muon([tensor], lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0)
    gradient = np.random.default_rng(1).normal(size=(5, 3))
    tensor.grad = torch.tensor(gradient)
    optimizer.step()
    got = start - 0.1 * (5 / 3) ** 0.5 * orthogonalized(gradient.T).T
    np.testing.assert_allclose(got, tensor.detach().numpy(), rtol=0, atol=1e-2)
    assert np.abs(got - start).max() > 0.05
