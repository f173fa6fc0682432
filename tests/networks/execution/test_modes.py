"""Training mode as a transformation: batch statistics, unbiased running variance, Dropout that drops."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.networks import Network
from deep500.networks.execution.modes import training_network
from tests.differences import slope
from tests.networks.evaluate import evaluate
from tests.tolerances import as_numpy, assert_close

RNG = np.random.default_rng(9)
STATISTICS = {"mean": RNG.normal(size=3), "var": RNG.uniform(0.5, 2, 3)}


def normalised(shape: tuple, nodes: int = 1, momentum: float = 0.8) -> Network:
    """x through BatchNormalization nodes that share their parameters."""
    net = Network()
    net.add_input("x", shape, "float64")
    for name, value in {"scale": RNG.normal(size=3), "bias": RNG.normal(size=3), **STATISTICS}.items():
        net.add_parameter(name, value, trainable=name in ("scale", "bias"))
    value = "x"
    for i in range(nodes):
        net.add_node("BatchNormalization", [value, "scale", "bias", "mean", "var"], f"y{i}", momentum=momentum)
        value = f"y{i}"
    net.add_output(value)
    return net


@pytest.mark.parametrize("shape", [("N", 3, 4, 5), (6, 3, 4, 5), ("N", 3), ("N", 3, "L")], ids=str)
def test_batch_normalisation_is_pytorchs(shape: tuple) -> None:
    torch = pytest.importorskip("torch")
    net = normalised(shape)
    x = RNG.normal(size=[{"N": 6, "L": 7}.get(d, d) for d in shape], loc=2)
    train, updates = training_network(net)
    assert set(updates) == {"mean", "var"}
    assert set(updates.values()) <= set(train.outputs)
    module = (torch.nn.BatchNorm1d if len(shape) < 4 else torch.nn.BatchNorm2d)(3, momentum=0.2, dtype=torch.float64)
    state = {"weight": "scale", "bias": "bias", "running_mean": "mean", "running_var": "var"}
    with torch.no_grad():
        for theirs, ours in state.items():
            getattr(module, theirs).copy_(torch.tensor(net.parameters[ours].value))
        want = module(torch.tensor(x))
    y, mean, var = evaluate(train, {"x": x}, ["y0", updates["mean"], updates["var"]])
    assert_close(y, as_numpy(want))
    assert_close(mean, as_numpy(module.running_mean))
    assert_close(var, as_numpy(module.running_var))
    assert not np.allclose(var, STATISTICS["var"])


def test_original_stays_and_outputs_keep_their_names() -> None:
    net = normalised(("N", 3, 4, 4))
    before = net.content_hash()
    train, _ = training_network(net)
    assert net.content_hash() == before
    assert train.outputs[0] == "y0"


def test_shared_statistics_are_updated_one_after_the_other() -> None:
    net = normalised(("N", 3), nodes=2)
    x = RNG.normal(size=(5, 3))
    train, updates = training_network(net)
    mean, y0, y1 = evaluate(train, {"x": x}, [updates["mean"], "y0", "y1"])
    first = 0.8 * STATISTICS["mean"] + 0.2 * x.mean(0)
    assert_close(mean, 0.8 * first + 0.2 * y0.mean(0))
    assert not np.allclose(y0, y1)


def test_one_sample_keeps_the_variance_finite() -> None:
    train, updates = training_network(normalised(("N", 3)))
    (var,) = evaluate(train, {"x": np.ones((1, 3))}, [updates["var"]])
    assert_close(var, 0.8 * STATISTICS["var"])


def test_explicit_training_mode_stays() -> None:
    net = Network()
    net.add_input("x", ("N", 3), "float64")
    for name, value in (("s", np.ones(3)), ("b", np.zeros(3)), ("m", np.zeros(3)), ("v", np.ones(3))):
        net.add_parameter(name, value, trainable=False)
    net.add_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "m2", "v2"], training_mode=1)
    train, updates = training_network(net)
    assert train == net
    assert updates == {}


@pytest.mark.parametrize("inputs", [["x"], ["x", "ratio"], ["x", "ratio", "off"], ["x", "", "off"]], ids=str)
def test_dropout_follows_the_mode(inputs: list[str]) -> None:
    net = Network()
    net.add_input("x", ("N", 100), "float64")
    net.add_parameter("ratio", np.array(0.5, "float32"), trainable=False)
    net.add_parameter("off", np.array(False), trainable=False)
    net.add_node("Dropout", inputs, ["y", "mask"])
    net.add_output("y")
    train, updates = training_network(net)
    assert updates == {}
    x = {"x": np.ones((30, 100))}
    np.testing.assert_array_equal(evaluate(net, x, ["y"])[0], 1)
    y, mask = evaluate(train, x, ["y", "mask"])
    assert 0.4 < mask.mean() < 0.6
    np.testing.assert_array_equal(y, np.where(mask, 2.0, 0.0))


def test_dropout_with_its_own_mode_stays() -> None:
    net = Network()
    net.add_input("x", ("N", 3))
    net.add_input("training", (), "bool")
    net.add_node("Dropout", ["x", "", "training"], "y")
    assert training_network(net)[0] == net


def test_gradient_flows_through_the_training_network() -> None:
    net = normalised(("N", 3))
    net.add_node("Mul", ["y0", "y0"], "square")
    net.add_node("Mul", ["square", "x"], "cube")
    net.add_node("ReduceMean", "cube", "loss", keepdims=0)
    train, _ = training_network(net)
    x, direction = RNG.normal(size=(2, 5, 3))
    got = evaluate(train.with_gradient("loss", ["x"]), {"x": x}, ["x.grad"])[0]
    want = slope(lambda x: evaluate(train, {"x": x}, ["loss"])[0], x, direction)
    assert_close(np.sum(got * direction), want, "finite_difference")
