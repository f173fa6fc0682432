"""Modules of flax and functions of JAX as networks: JAX's own outputs and gradients."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx", reason="needs deep500[import-jax]")

import jax.numpy as jnp  # noqa: E402
from flax import nnx  # noqa: E402

from deep500.errors import InputError, NetworkError  # noqa: E402
from deep500.frameworks import reference  # noqa: E402
from deep500.networks import add_loss, as_network  # noqa: E402
from deep500.networks.objects import fingerprint  # noqa: E402
from tests.conftest import HANG  # noqa: E402
from tests.tolerances import assert_close  # noqa: E402

pytestmark = [pytest.mark.backend("jax"), pytest.mark.filterwarnings("default")]


class Convolutional(nnx.Module):
    """Convolution, normalization, dropout."""

    def __init__(self, drop: float = 0.0, seed: int = 0) -> None:
        rngs = nnx.Rngs(seed)
        self.conv, self.norm = nnx.Conv(3, 4, (3, 3), rngs=rngs), nnx.BatchNorm(4, momentum=0.8, rngs=rngs)
        self.drop, self.head = nnx.Dropout(drop, rngs=rngs), nnx.Linear(4, 5, rngs=rngs)

    def __call__(self, x):
        return self.head(self.drop(nnx.relu(self.norm(self.conv(x))).mean((1, 2))))


class Attentive(nnx.Module):
    """Tokens, attention, normalization."""

    def __init__(self, rate: float = 0.0) -> None:
        rngs = nnx.Rngs(1)
        self.embed, self.norm = nnx.Embed(20, 8, rngs=rngs), nnx.LayerNorm(8, rngs=rngs)
        self.attend = nnx.MultiHeadAttention(2, 8, 8, 8, dropout_rate=rate, decode=False, rngs=rngs)
        self.head = nnx.Linear(8, 3, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        return self.head(nnx.gelu(self.norm(x + self.attend(x))).mean(1))


def real(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


TREE = {"first": {"w": real(4, 6), "b": np.zeros(6, "float32")}, "last": [real(6, 3)]}


def dense(p, x):
    """Two layers."""
    return jnp.maximum(x @ p["first"]["w"] + p["first"]["b"], 0) @ p["last"][0]


def two(p, left, right, training=True):
    """Two inputs, and a mode."""
    assert training is False
    return jnp.tanh(left @ p["first"]["w"] + p["first"]["b"]) * right.sum(-1, keepdims=True) @ p["last"][0]


@pytest.mark.parametrize(
    ("function", "arrays"), [(dense, (real(4, 4),)), (two, (real(4, 4), real(4, 5)))], ids=["one input", "two inputs"]
)
def test_outputs_and_gradients_of_a_function_are_jax_s(function: Any, arrays: tuple[np.ndarray, ...]) -> None:
    network = as_network((function, TREE), tuple(array[:1] for array in arrays))
    assert set(network.trainable()) == {"first/w", "first/b", "last/0"}
    options = {"training": False} if function is two else {}

    def loss(tree: Any) -> Any:
        return ((function(tree, *arrays, **options) - label) ** 2).mean()

    want = function(TREE, *arrays, **options)
    label = real(*want.shape)
    gradient = jax.grad(loss)(TREE)
    wanted = {"first/w": gradient["first"]["w"], "first/b": gradient["first"]["b"], "last/0": gradient["last"][0]}
    hold_to(network, arrays, want, label, wanted)


def hold_to(network: Any, arrays: Any, want: Any, label: Any, wanted: dict[str, Any]) -> None:
    inputs, (output,) = dict(zip(network.inputs, arrays, strict=True)), network.outputs
    executor = reference.from_model(add_loss(network, "mean_squared_error"))
    assert_close(executor.inference(inputs, [output])[output], np.asarray(want), "forward")
    executor.inference_and_backprop({**inputs, "label": label}, "loss")
    assert {name for name, _ in executor.network.gradient("loss")} == set(wanted)
    for parameter, gradient in executor.network.gradient("loss"):
        got = executor.network.fetch_tensors([gradient])[0]
        assert_close(got, np.asarray(wanted[parameter]), "gradient", parameter)


@pytest.mark.parametrize(
    ("make", "array"),
    [(Convolutional, real(4, 6, 6, 3)), (Attentive, np.arange(24).reshape(4, 6) % 20)],
    ids=["convolutional", "attentive"],
)
@pytest.mark.slow
def test_outputs_and_gradients_of_a_module_are_flax_s(make: Any, array: np.ndarray) -> None:
    module = make()
    before = fingerprint(module)
    network = as_network(module, array[:1])
    assert fingerprint(module) == before
    parameters = nnx.to_flat_state(nnx.state(module, nnx.Param))
    assert set(network.trainable()) == {"/".join(map(str, path)) for path, _ in parameters}
    assert next(iter(network.inputs.values())).dtype == str(array.dtype)
    still = nnx.clone(module)
    still.eval()
    want = still(array)
    label = real(*want.shape)
    gradient = nnx.grad(lambda private: ((private(array) - label) ** 2).mean())(nnx.clone(module))
    flat = nnx.to_flat_state(gradient)
    hold_to(network, (array,), want, label, {"/".join(map(str, path)): leaf[...] for path, leaf in flat})


def test_dropout_and_normalization_follow_the_mode() -> None:
    network = as_network(Convolutional(0.25), real(1, 6, 6, 3))
    kinds = {node.op_type: node for node in network.nodes}
    assert len(kinds["Dropout"].inputs) == 2
    assert network.parameters[kinds["Dropout"].inputs[1]].value == np.float32(0.25)
    assert kinds["BatchNormalization"].attributes["momentum"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("model", "example", "kind", "message"),
    [
        ((dense, TREE), None, InputError, "got dense without example inputs; expected arrays"),
        ((dense, TREE), real(2, 5), NetworkError, "expected a function that runs for the example inputs"),
        (jnp.ones(3), real(2, 3), InputError, r"expected a flax.nnx module, or a pair of a function and its tree"),
    ],
)
def test_what_cannot_be_converted_is_one_error(model: Any, example: Any, kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        as_network(model, example)


@pytest.mark.parametrize("window", [(1, 3, 2, 1), (2, 2, 2, 1)])
@pytest.mark.parametrize("reduce", [jax.lax.max, jax.lax.add])
def test_windows_over_all_axes_slide_over_those_that_they_span(reduce: Any, window: tuple[int, ...]) -> None:
    start = 0.0 if reduce is jax.lax.add else -jnp.inf

    def function(tree: Any, x: Any) -> Any:
        strides = (1, 2, *window[2:]) if window[0] == 1 else (1, 1, 1, 1)
        return jax.lax.reduce_window(x * tree["scale"], start, reduce, window, strides, "SAME")

    tree, x = {"scale": np.arange(1.0, 5.0, dtype="float32")}, real(3, 5, 6, 4)
    network = as_network((function, tree), x)
    spatial = [len(dict(n.attributes)["strides"]) for n in network.nodes if n.op_type in ("Conv", "MaxPool")]
    assert spatial and max(spatial) <= 3
    got = reference.from_model(network).inference({next(iter(network.inputs)): x})["output"]
    assert_close(got, np.asarray(function(tree, x)))


def test_a_window_over_four_axes_is_refused() -> None:
    def function(tree: Any, x: Any) -> Any:
        return jax.lax.reduce_window(x * tree["scale"], -jnp.inf, jax.lax.max, (2, 2, 2, 2), (1, 1, 1, 1), "VALID")

    with pytest.raises(NetworkError, match="over 4 of 4 axes"):
        as_network((function, {"scale": np.float32(2)}), real(3, 5, 6, 4))


def test_dropout_that_would_be_lost_is_refused() -> None:
    with pytest.raises(
        NetworkError, match=r"attend \(MultiHeadAttention\), which draws random numbers in training as no operator does"
    ):
        as_network(Attentive(0.1), np.zeros((1, 6), "int64"))


@pytest.mark.slow
def test_jax_s_own_functions_are_the_same_afterwards() -> None:
    """A converter that leaves its own in their place changes what the user's other functions compute."""
    code = """\
import sys, jax, flax.nnx, numpy as np
from deep500.networks import as_network
public = [m for name, m in list(sys.modules.items()) if name.split(".")[0] in ("jax", "flax") and "._" not in name]
before = [(m, dict(vars(m))) for m in public]

for function in (lambda w, x: jax.numpy.cumsum(x * w[0], 1), lambda w, x: jax.nn.softmax(x * w[0])):
    as_network((function, [np.ones((1, 3), "float32")]), np.ones((2, 3), "float32"))
changed = [f"{m.__name__}.{k}" for m, was in before for k, v in was.items() if callable(v) and vars(m).get(k) is not v]
assert len(public) > 50 and not changed, changed
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=HANG)
