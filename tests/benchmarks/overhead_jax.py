"""What Deep500 costs on top of JAX: ``python -m tests.benchmarks.overhead_jax [--rounds N] [--batches 8,64]``.

ResNet-20 (CIFAR shape): one training step (forward, backward, momentum update) against the same network written by hand
in JAX with one jitted, donating step; and inference at batch 1. Variants take turns in random order within one process,
each round gives one pair; native against native again shows what the method cannot resolve.
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import deep500.frameworks.jax as d5fw
from deep500.measure.statistics import median_interval, paired_ratio
from deep500.networks import add_loss, create

LR, MOMENTUM, BAR = 0.01, 0.9, 1.05
Work = Callable[[], object]
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
    found = create("resnet", depth=20).parameters
    p = {n: jnp.array(v.value) for n, v in found.items() if v.trainable}
    return p, {n: jnp.array(found[n].value) for n in found if "running" in n}


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


def measure(variants: Mapping[str, Work], rounds: int, calls: int) -> dict[str, list[tuple[float, float]]]:
    """CPU and wall seconds per call of each variant, in turns in random order."""
    order, shuffle = list(variants), random.Random(0).shuffle
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for work in variants.values():
        work(), work()
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            work, cpu, wall = variants[name], time.process_time(), time.perf_counter()
            for _ in range(calls):
                work()
            times[name].append(((time.process_time() - cpu) / calls, (time.perf_counter() - wall) / calls))
    return times


def report(what: str, size: int, times: dict[str, list[tuple[float, float]]]) -> None:
    """One line per ratio, with the verdict on the bar."""
    native = median_interval([cpu for cpu, _ in times["native"]])
    print(f"{what}, batch {size}: native {native.median * 1e3:.3g} ms of CPU ({native.n} rounds)")
    for name in [n for n in times if n != "native"]:
        for clock, column in (("CPU", 0), ("wall", 1)):
            ratio = paired_ratio([t[column] for t in times[name]], [t[column] for t in times["native"]])
            judged = name == "deep500" and clock == "CPU"
            verdict = f"  bar {BAR}: {'met' if ratio.median <= BAR else 'MISSED'}" if judged else ""
            print(f"  {name:>14} / native, {clock:>4}: {ratio}{verdict}")


def agree(x: np.ndarray, label: np.ndarray) -> None:
    """Refuse to compare speeds of different computations."""
    first, second = (float(work()) for work in (native_step(x, label), deep500_step(x, label)))
    np.testing.assert_allclose(first, second, rtol=1e-5)


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--batches", default="8,64")
    options = parser.parse_args()
    print(f"ResNet-20, 272,474 parameters, jax {jax.__version__}, {jax.default_backend()}, 1 thread")
    rng = np.random.default_rng(0)
    for size in [int(n) for n in options.batches.split(",")]:
        batch = rng.standard_normal((size, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, size)
        agree(*batch)
        variants = {"native": native_step(*batch), "native again": native_step(*batch), "deep500": deep500_step(*batch)}
        report("training step", size, measure(variants, options.rounds, max(1, 16 // size)))
    batch = rng.standard_normal((1, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, 1)
    variants = {"native": native_inference(*batch), "native again": native_inference(*batch)}
    report("inference", 1, measure({**variants, "deep500": deep500_inference(*batch)}, options.rounds, 8))


if __name__ == "__main__":
    main()
