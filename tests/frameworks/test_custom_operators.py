"""Custom operators on every backend: as functions, and as nodes that infer and train like ONNX's own operators."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

from deep500.errors import NetworkError, OperatorError, UnsupportedOperator
from deep500.networks import Network, add_loss, replace_operator
from tests.frameworks.compiled import values
from tests.networks.custom_operators import LeakyRelu, SinCos
from tests.tolerances import as_numpy, assert_close

RNG = np.random.default_rng(6)


def classifier(dtype: str = "float64", activation: str = "LeakyRelu") -> Network:
    """Two layers with LeakyRelu between and behind them, a branch around the second, cross entropy."""
    rng = np.random.default_rng(1)
    net = Network("classifier")
    net.add_input("x", ("N", 5), dtype)
    for name, shape in {"w1": (5, 6), "w2": (6, 6), "w3": (6, 3)}.items():
        net.add_parameter(name, rng.normal(size=shape).astype(dtype))
    net.add_node("MatMul", ["x", "w1"], "a", name="fc1")
    net.add_node(activation, "a", "b", name="act1")
    net.add_node("MatMul", ["b", "w2"], "c", name="fc2")
    net.add_node(activation, "c", "d", name="act2")
    net.add_node("Add", ["b", "d"], "e")
    net.add_node("MatMul", ["e", "w3"], "output", name="fc3")
    net.add_output("output")
    return add_loss(net)


def custom(net: Network, plain: str, operator: str) -> Network:
    return replace_operator(net, plain, operator, domain="deep500")


def batch(size: int = 4, dtype: str = "float64") -> dict[str, np.ndarray]:
    return {"x": RNG.normal(size=(size, 5)).astype(dtype), "label": RNG.integers(0, 3, size)}


def train(d5fw: ModuleType, net: Network, batches: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    executor = d5fw.from_model(net)
    optimizer = d5fw.MomentumOptimizer(executor, "loss", lr=0.1, momentum=0.9)
    losses = [as_numpy(optimizer.step(batch)["loss"]) for batch in batches]
    output = executor.inference(batches[0], ["output"])["output"]
    return {**executor.network.state(), "losses": np.array(losses), "output": as_numpy(output)}


def test_as_a_function(backend: ModuleType) -> None:
    x = RNG.normal(size=(2, 3))
    single = backend.custom_op(LeakyRelu(0.5))(_tensor(backend, x))
    assert_close(as_numpy(single), np.where(x < 0, 0.5 * x, x))
    both = backend.custom_op(SinCos())(_tensor(backend, x))
    assert isinstance(both, (list, tuple))
    for got, want in zip(both, (np.sin(x), np.cos(x)), strict=True):
        assert_close(as_numpy(got), want)


def _tensor(d5fw: ModuleType, array: np.ndarray) -> object:
    return d5fw.from_model(classifier()).network.to_tensor(array)


@pytest.mark.parametrize("kind", ["LeakyRelu", "CompiledSoftsign"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_trains_as_the_same_network_with_an_onnx_operator(backend: ModuleType, dtype: str, kind: str) -> None:
    batches = [batch(size, dtype) for size in (4, 4, 2)]
    operator = kind.removeprefix("Compiled")
    plain = classifier(dtype, operator)
    want, got = (train(backend, net, batches) for net in (plain, custom(plain, operator, f"Test{kind}")))
    assert not np.allclose(want["w1"], plain.parameters["w1"].value)
    for name, value in want.items():
        assert_close(got[name], value, "training", name)


def test_several_outputs_whole_numbers_and_parameters_as_inputs(backend: ModuleType) -> None:
    net = Network()
    net.add_parameter("table", RNG.normal(size=(5, 3)))
    net.add_input("index", (4,), "int64")
    net.add_node("TestPick", ["table", "index"], ["rows", "counts"], name="pick", domain="deep500")
    net.add_node("TestSinCos", "rows", ["", "cosine"], name="both", domain="deep500")
    net.add_node("ReduceSum", "cosine", "loss", keepdims=0)
    for name in ("counts", "cosine", "loss"):
        net.add_output(name)
    index, table = np.array([1, 1, 4, 0]), net.parameters["table"].value
    executor = backend.from_model(net)
    for outputs in (executor.inference({"index": index}), executor.inference_and_backprop({"index": index}, "loss")):
        np.testing.assert_array_equal(as_numpy(outputs["counts"]), [1, 2, 0, 0, 1])
        assert_close(as_numpy(outputs["cosine"]), np.cos(table[index]))
    gradient = as_numpy(executor.network.fetch_tensors(["table.grad"])[0])
    assert_close(gradient, -np.sin(table) * np.array([1, 2, 0, 0, 1])[:, None], "gradient")
    executor.network.feed_tensor("table", 2 * table)
    assert_close(as_numpy(executor.inference({"index": index})["cosine"]), np.cos(2 * table[index]))


def test_a_missing_plugin_is_named_when_the_executor_is_built(backend: ModuleType) -> None:
    net = classifier()
    for name in ("act1", "act2"):
        net.replace(name, "TestLeakyRelo", domain="deep500")
    with pytest.raises(UnsupportedOperator, match=r"'TestLeakyRelo' in node 'act1'.* in node 'act2'.*load_plugin"):
        backend.from_model(net)


def test_no_backward_is_an_error_that_names_the_operator(backend: ModuleType) -> None:
    net = replace_operator(classifier(), "LeakyRelu", "TestOpaque", domain="deep500")
    executor = backend.from_model(net)
    assert as_numpy(executor.inference(batch())["output"]).shape == (4, 3)
    with pytest.raises(UnsupportedOperator, match=r"Opaque.*backward"):
        executor.inference_and_backprop(batch(), "loss")


def test_a_failure_of_compiled_code_in_a_network_is_ours(backend: ModuleType) -> None:
    net = Network("mixed")
    for name, shape, dtype in (("x", ("N", 3), "float64"), ("w", ("N", 3), "float64"), ("k", ("N",), "int64")):
        net.add_input(name, shape, dtype)
    net.add_node("TestCompiledMix", ["x", "w", "k"], ["y", "z"], name="mixed", domain="deep500")
    net.add_output("z")
    executor = backend.from_model(net)
    x, w, k = values()
    got = as_numpy(executor.inference({"x": x, "w": w, "k": k})["z"])
    np.testing.assert_allclose(got, (x * w).sum(1), rtol=1e-14)
    x[1, 1] = 777
    with pytest.raises(OperatorError, match="status 3"):
        executor.inference({"x": x, "w": w, "k": k})


def test_shapes_that_do_not_fit_are_refused_before_the_first_run(backend: ModuleType) -> None:
    net = classifier()
    net.replace("fc2", "TestMatMul", ["b", "w2"], domain="deep500")
    backend.from_model(net)
    net = classifier()
    net.replace("fc2", "TestMatMul", ["b", "w1"], domain="deep500")
    with pytest.raises(NetworkError, match=r"'fc2'.*input 1"):
        backend.from_model(net)
