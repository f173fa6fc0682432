"""JAX: a training step and an inference against the network written by hand, with one jitted, donating step."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import deep500.frameworks.jax as d5fw
from deep500.networks import add_loss, create
from tests.benchmarks.overhead import JAX
from tests.benchmarks.turns import Comparison, Work

LR, MOMENTUM = 0.01, 0.9
Tree = dict[str, Any]
BLOCKS = [(f"layer{g + 1}.{b}", 2 if g and not b else 1, bool(g and not b)) for g in range(3) for b in range(3)]


def conv(x: Any, w: Any, stride: int = 1) -> Any:
    """Padded by half the kernel."""
    pad = w.shape[-1] // 2
    return lax.conv_general_dilated(
        x, w, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NCHW", "OIHW", "NCHW")
    )


def norm(x: Any, name: str, p: Tree, s: Tree, new: Tree | None) -> Any:
    """Batch normalisation; in training (``new`` is given) also the next running statistics."""
    mean, var = s[f"{name}.running_mean"], s[f"{name}.running_var"]
    if new is not None:
        old_mean, old_var = mean, var
        mean = x.mean((0, 2, 3))
        var = ((x - mean[:, None, None]) ** 2).mean((0, 2, 3))
        n = x.size / x.shape[1]
        new[f"{name}.running_mean"] = 0.9 * old_mean + 0.1 * mean
        new[f"{name}.running_var"] = 0.9 * old_var + 0.1 * var * (n / (n - 1))
    factor = p[f"{name}.weight"] * lax.rsqrt(var + 1e-5)
    return (x - mean[:, None, None]) * factor[:, None, None] + p[f"{name}.bias"][:, None, None]


def logits(p: Tree, s: Tree, x: Any, new: Tree | None) -> Any:
    """ResNet-20 with projections where the size changes."""
    x = jax.nn.relu(norm(conv(x, p["conv1.weight"]), "bn1", p, s, new))
    for name, stride, project in BLOCKS:
        y = jax.nn.relu(norm(conv(x, p[f"{name}.conv1.weight"], stride), f"{name}.bn1", p, s, new))
        y = norm(conv(y, p[f"{name}.conv2.weight"]), f"{name}.bn2", p, s, new)
        if project:
            x = norm(conv(x, p[f"{name}.downsample.0.weight"], stride), f"{name}.downsample.1", p, s, new)
        x = jax.nn.relu(y + x)
    return x.mean((2, 3)) @ p["fc.weight"].T + p["fc.bias"]


def loss_of(p: Tree, s: Tree, x: Any, label: Any) -> Any:
    """Cross entropy, and the next state."""
    new: Tree = {}
    logs = jax.nn.log_softmax(logits(p, s, x, new))
    return -jnp.take_along_axis(logs, label[:, None], 1).mean(), new


def step(p: Tree, s: Tree, v: Tree, x: Any, label: Any) -> Any:
    """One training step."""
    (loss, s), g = jax.value_and_grad(loss_of, has_aux=True)(p, s, x, label)
    v = jax.tree.map(lambda a, b: MOMENTUM * a + b, v, g)
    return jax.tree.map(lambda a, b: a - LR * b, p, v), s, v, loss


def trees() -> tuple[Tree, Tree]:
    """Parameters and running statistics of Deep500's own network, by its names."""
    parameters = create("resnet", depth=20).parameters
    p = {n: jnp.array(v.value) for n, v in parameters.items() if v.trainable}
    return p, {n: jnp.array(v.value) for n, v in parameters.items() if "running" in n}


def native_step(x: np.ndarray, label: np.ndarray) -> Work:
    """The hand-written loop's body; waits for the loss."""
    jitted = jax.jit(step, donate_argnums=(0, 1, 2))
    p, s = trees()
    held = [p, s, jax.tree.map(jnp.zeros_like, p)]

    def work() -> Any:
        *held[:], loss = jitted(*held, x, label)
        return jax.block_until_ready((held, loss))[1]

    return work


def deep500_step(x: np.ndarray, label: np.ndarray) -> Work:
    """One step through executor and optimizer."""
    executor = d5fw.from_model(add_loss(create("resnet", depth=20)))
    optimizer, inputs = d5fw.MomentumOptimizer(executor, "loss", LR, MOMENTUM), {"input": x, "label": label}

    def work() -> Any:
        loss = optimizer.step(inputs)["loss"]
        executor.synchronize()
        return loss

    return work


def native_inference(x: np.ndarray, label: np.ndarray) -> Work:
    """The hand-written forward function."""
    (p, s), jitted = trees(), jax.jit(lambda p, s, x: logits(p, s, x, None))
    return lambda: jitted(p, s, x).block_until_ready()


def deep500_inference(x: np.ndarray, label: np.ndarray) -> Work:
    """``inference`` of an executor."""
    executor = d5fw.from_model(create("resnet", depth=20))
    inputs = {"input": x}

    def work() -> Any:
        return executor.inference(inputs)["output"].block_until_ready()

    return work


def agree(x: np.ndarray, label: np.ndarray) -> None:
    """Refuse to compare speeds of different computations."""
    first, second = (float(work()) for work in (native_step(x, label), deep500_step(x, label)))
    np.testing.assert_allclose(first, second, rtol=1e-5)


def version() -> str:
    """The framework."""
    return f"jax {jax.__version__}, {jax.default_backend()}"


def comparisons(sizes: Sequence[int]) -> Iterator[Comparison]:
    """A training step, then an inference of one image."""
    for size in sizes:
        yield Comparison(f"training step, batch {size}", lambda size=size: steps(size), max(1, 16 // size), JAX, 1.05)
    yield Comparison("inference, batch 1", inferences, 8, JAX, 1.05)


def batch_of(size: int) -> tuple[np.ndarray, np.ndarray]:
    """One batch of noise."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((size, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, size)


def steps(size: int) -> dict[str, Work]:
    """The ways to make a training step."""
    batch = batch_of(size)
    agree(*batch)
    return {"native": native_step(*batch), "native again": native_step(*batch), "deep500": deep500_step(*batch)}


def inferences() -> dict[str, Work]:
    """The ways to classify one image."""
    batch = batch_of(1)
    again = native_inference(*batch)
    return {"native": native_inference(*batch), "native again": again, "deep500": deep500_inference(*batch)}
