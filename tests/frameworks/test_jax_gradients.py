"""Functions and modules of JAX with gradients of their own: the imported network has them, or an error names them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("jax2onnx", reason="needs deep500[import-jax]")

import jax.numpy as jnp  # noqa: E402
from flax import nnx  # noqa: E402
from jax.lax import stop_gradient  # noqa: E402
from jax.nn import relu  # noqa: E402

from deep500.errors import NetworkError  # noqa: E402
from deep500.frameworks.jax import importing  # noqa: E402
from deep500.networks import as_network  # noqa: E402
from deep500.registry import load_backend  # noqa: E402
from tests.frameworks.gradients import SAMPLES, cotangents, hold_to, varied  # noqa: E402
from tests.tolerances import assert_close  # noqa: E402

pytestmark = [pytest.mark.backend("jax"), pytest.mark.filterwarnings("default")]
BACKENDS = [load_backend(name) for name in ("reference", "jax")]


def real(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape)


TREE = {"w": real(4, 3), "v": real(3, 6).T[:3], "s": np.array(1.7), "codes": real(7, 3)}


@jax.custom_vjp
def scaled(x: Any, s: Any) -> Any:
    """A backward pass of another function."""
    return x * s


scaled.defvjp(lambda x, s: (x * s, (s, x)), lambda kept, g: (-3 * g * kept[0], (g * kept[1] ** 2).sum()))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def reversed_gradient(strength: float, x: Any) -> Any:
    return x


reversed_gradient.defvjp(lambda strength, x: (x, None), lambda strength, _, g: (-strength * g,))


@jax.custom_vjp
def clipped(x: Any) -> Any:
    return x


clipped.defvjp(lambda x: (x, None), lambda _, g: (jnp.clip(g, -0.1, 0.1),))


@jax.custom_jvp
def rounded(x: Any) -> Any:
    return jnp.round(x)


rounded.defjvp(lambda primals, tangents: (rounded(*primals), tangents[0]))


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def power(x: Any, n: int) -> Any:
    return x**n


@power.defjvp
def _power(n: int, primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return power(x, n), jnp.where(x > 0, 5 * t, 0.25 * t * x)


@jax.custom_gradient
def surrogate(x: Any) -> Any:
    """A spiking neuron: a step forward, a fast sigmoid backward."""
    return (x > 0).astype(x.dtype), lambda g: g / (10 * jnp.abs(x) + 1) ** 2


@jax.custom_vjp
def pair(tree: Any, number: Any) -> Any:
    """Trees, an integer among the arguments and one among the results."""
    return {"sum": tree["a"] + tree["b"] * number}, jnp.argmax(tree["a"], 1)


pair.defvjp(
    lambda tree, number: (pair(tree, number), (tree["a"], number)),
    lambda kept, g: ({"a": g[0]["sum"] * kept[0] * kept[1], "b": 2 * g[0]["sum"]}, None),
)


def hidden(p: Any, x: Any) -> Any:
    return jnp.tanh(x @ p["w"])


def quantized(p: Any, h: Any) -> Any:
    """The nearest code of each row, as VQ-VAE takes it."""
    return p["codes"][jnp.argmin(((h[:, None] - p["codes"]) ** 2).sum(-1), 1)]


def vq(p: Any, x: Any) -> Any:
    h = hidden(p, x)
    q = quantized(p, h)
    commitment = ((h - stop_gradient(q)) ** 2).mean(1, keepdims=True) * 0.25
    return h + stop_gradient(q - h) + commitment + ((stop_gradient(h) - q) ** 2).mean(1, keepdims=True)


def gumbel(p: Any, x: Any) -> Any:
    soft = jax.nn.softmax(hidden(p, x) * 4, 1)
    return (jax.nn.one_hot(jnp.argmax(soft, 1), 3, dtype=soft.dtype) + soft - stop_gradient(soft)) @ p["v"]


def byol(p: Any, x: Any) -> Any:
    online, target = hidden(p, x) @ p["v"], stop_gradient(hidden(p, x + 0.1))
    online = online / jnp.linalg.norm(online, axis=1, keepdims=True)
    return 2 - 2 * (online * target / jnp.linalg.norm(target, axis=1, keepdims=True)).sum(1, keepdims=True)


def several(p: Any, x: Any) -> Any:
    results, places = pair({"a": hidden(p, x), "b": x @ p["w"]}, 3)
    return results["sum"] * (1 + places)[:, None]


def in_scan(p: Any, x: Any) -> Any:
    def step(h: Any, w: Any) -> Any:
        h = reversed_gradient(0.5, jnp.tanh(h @ w)) + stop_gradient(h)
        return h, h.sum(1)

    h, sums = jax.lax.scan(step, hidden(p, x), jnp.stack([p["v"], 2 * p["v"]]))
    return h + sums.T @ jnp.ones((2, 3))


def penalty(p: Any, x: Any) -> Any:
    """The norm of a gradient, as WGAN-GP has it."""
    inner = jax.grad(lambda x: hidden(p, x).sum())(x)
    return (jnp.sqrt((inner**2).sum(1)) - 1) ** 2


def coupling(p: Any, x: Any) -> Any:
    """A layer of RealNVP."""
    left, right = x[:, :2], x[:, 2:]
    scale = jnp.tanh(left @ p["w"][:2, :2])
    return jnp.concatenate([left, right * jnp.exp(scale) + left @ p["v"][:2, :2]], 1)


CASES: dict[str, Any] = {
    "stop_gradient": lambda p, x: hidden(p, x) * stop_gradient(x @ p["w"]),
    "custom_vjp": lambda p, x: scaled(hidden(p, x), p["s"]),
    "straight-through": lambda p, x: hidden(p, x) + stop_gradient(jnp.round(hidden(p, x)) - hidden(p, x)),
    "custom_jvp": lambda p, x: rounded(x @ p["w"]) @ p["v"],
    "custom_jvp, static argument": lambda p, x: power(x @ p["w"], 3),
    "custom_gradient": lambda p, x: surrogate(x @ p["w"]) @ p["v"],
    "gradient reversal": lambda p, x: reversed_gradient(0.3, hidden(p, x)) @ p["v"] + hidden(p, x),
    "clipped gradient": lambda p, x: clipped(x @ p["w"]) ** 2,
    "trees and integers": several,
    "a residual alone": lambda p, x: scaled(x[:, :3], p["s"]),
    "checkpoint": lambda p, x: jax.checkpoint(lambda y: rounded(jnp.sin(hidden(p, y))) * hidden(p, y))(x),
    "in jit": jax.jit(lambda p, x: jax.jit(scaled)(hidden(p, x), p["s"])),
    "in vmap": lambda p, x: jax.vmap(lambda row: scaled(jnp.tanh(row @ p["w"]), p["s"]))(x),
    "in scan": in_scan,
    "VQ codebook": vq,
    "Gumbel-softmax, hard": gumbel,
    "BYOL": byol,
    "gradient penalty": penalty,
    "RealNVP": coupling,
    "LoRA": lambda p, x: x @ stop_gradient(p["w"]) + (x @ p["w"][:, :2]) @ p["v"][:2],
    "tied weights": lambda p, x: hidden(p, x) @ p["w"].T,
    "fake quantization": lambda p, x: (
        x @ (p["w"] + stop_gradient(jnp.round(p["w"] / p["s"] * 8) * p["s"] / 8 - p["w"]))
    ),
    "relu at 0": lambda p, x: relu(jnp.concatenate([x @ p["w"] * (x[:, :1] > 0), hidden(p, x)], 1)),
    "softmax, logsumexp": lambda p, x: (
        jax.nn.log_softmax(x @ p["w"]) * jax.nn.logsumexp(hidden(p, x), 1, keepdims=True)
    ),
    "silu, gelu, softplus": lambda p, x: (
        jax.nn.silu(x @ p["w"]) + jax.nn.gelu(hidden(p, x)) * jax.nn.softplus(x @ p["w"])
    ),
    "logaddexp, xlogy": lambda p, x: jnp.logaddexp(x @ p["w"], hidden(p, x)) + jax.scipy.special.xlogy(x @ p["w"], 3.0),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_gradients_are_the_user_s(name: str) -> None:
    function, (x,) = CASES[name], varied([real(2, 4)])
    network = as_network((function, TREE), real(2, 4))
    output, pull = jax.vjp(lambda tree: function(tree, x), TREE)
    factors = cotangents([output])
    (wanted,) = pull(jnp.asarray(factors[0]))
    hold_to(network, BACKENDS, [x], factors, wanted)
    got = importing.convert((function, TREE), real(2, 4), {}).differentiate({"input": x}, factors)
    for key, value in got.items():
        assert_close(value, np.asarray(wanted[key]), "gradient", key)


class Teacher(nnx.Module):
    """Normalization and dropout beside a stopped teacher of the same weights, and one that is not trained."""

    def __init__(self, rate: float) -> None:
        rngs = nnx.Rngs(0)
        self.student, self.norm = (
            nnx.Linear(4, 3, param_dtype=jnp.float64, rngs=rngs),
            nnx.BatchNorm(3, param_dtype=jnp.float64, rngs=rngs),
        )
        self.teacher = nnx.Variable(jnp.asarray(real(4, 3)))
        self.drop = nnx.Dropout(rate, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        h = self.norm(self.student(x))
        return self.drop(scaled(h, 2.0)) - stop_gradient(jnp.tanh(h)) - x @ self.teacher[...]


@pytest.mark.slow
def test_gradients_of_a_module_in_training_mode_are_flax_s() -> None:
    module, (x,) = Teacher(0.0), varied([real(2, 4)])
    factors = cotangents([np.zeros((SAMPLES, 3))])
    flat = nnx.to_flat_state(nnx.grad(lambda m: (m(x) * factors[0]).sum())(nnx.clone(module)))
    wanted = {"/".join(map(str, path)): np.asarray(leaf[...]) for path, leaf in flat}
    network = as_network(module, real(2, 4))
    assert set(network.trainable()) == set(wanted) and "teacher" in network.parameters
    hold_to(network, BACKENDS, [x], factors, wanted)
    converted = importing.convert(Teacher(0.5), real(2, 4), {})
    kinds = {node.op_type for node in converted.model.graph.node}
    assert kinds > {"StopGradient", "CustomGradient", "BatchNormalization", "Dropout"}
    got = converted.differentiate({"input": x}, factors)
    assert set(got) == set(wanted)
    for name, want in wanted.items():
        assert_close(got[name], want, "gradient", name)


class Module(nnx.Module):
    """One that does something beside a layer."""

    def __init__(self) -> None:
        rngs = nnx.Rngs(0)
        self.linear, self.rngs, self.steps = nnx.Linear(4, 4, rngs=rngs), rngs, nnx.BatchStat(jnp.zeros(4))


class Counts(Module):
    def __call__(self, x: Any) -> Any:
        self.steps[...] = 0.9 * self.steps[...] + 0.1 * x.mean(0)
        return self.linear(x) - self.steps[...]


class Noisy(Module):
    deterministic = False

    def __call__(self, x: Any) -> Any:
        return self.linear(x if self.deterministic else x + jax.random.normal(self.rngs.params(), x.shape))


class Spectral(Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nnx.SpectralNorm(self.linear, rngs=nnx.Rngs(0))

    def __call__(self, x: Any) -> Any:
        return self.norm(x, update_stats=True)


class Rows(Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nnx.Dropout(0.5, broadcast_dims=(1,), rngs=nnx.Rngs(0))

    def __call__(self, x: Any) -> Any:
        return self.drop(self.linear(x))


@jax.custom_vjp
def peeking(x: Any) -> Any:
    return x


peeking.defvjp(lambda x: (x, x), lambda x, g: (g if float(x.sum()) > 0 else -g,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (Counts, r"Counts: got itself \(Counts\), which writes 'steps' in training as no operator does"),
        (Noisy, r"Noisy: got itself \(Noisy\), which draws random numbers in training as no operator does"),
        (Spectral, r"got linear \(Linear\), which writes 'linear/kernel' in training"),
        (Rows, r"got drop \(Dropout\) with broadcast_dims=\(1,\), which the converter leaves out"),
        (
            lambda: (lambda p, x: peeking(x @ p["w"]), TREE),
            r"got peeking at .*test_jax_gradients.py:\d+ with a derivative of its own that cannot be traced",
        ),
        (
            lambda: (lambda p, x: jax.lax.while_loop(lambda h: h.sum() < 0, jnp.tanh, x @ p["w"]), TREE),
            r"got ValueError from its own gradient \(Reverse-mode .* such as lax\.scan, for lax\.while_loop",
        ),
    ],
)
def test_what_would_train_otherwise_is_one_error(make: Any, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        as_network(make(), real(2, 4).astype("float32"))


def test_only_parameters_among_the_variables_of_linen_train() -> None:
    def function(variables: Any, x: Any) -> Any:
        return (x @ variables["params"]["w"] - variables["batch_stats"]["mean"]) ** 2

    tree = {"params": {"w": real(4, 3)}, "batch_stats": {"mean": real(3)}}
    assert as_network((function, tree), real(2, 4)).trainable() == ["params/w"]
