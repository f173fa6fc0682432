"""A user's own Adam, a class in a file of theirs, against the framework's, each in a whole training step.

    python -m tests.benchmarks.user_rule [--backend pytorch|jax|tensorflow] [--rounds N] [--batch N]

Two networks on one thread: ResNet-20 (CIFAR shape, 65 parameters), and a chain of 100 dense layers of 16 units (200
parameters, of which the update is most of the work). The yardsticks are written by hand: PyTorch with
``torch.optim.Adam(fused=True)``; JAX with ``optax.adam`` in one jitted, donating function; TensorFlow with its kernel
``ResourceApplyAdam`` in one ``tf.function``. Variants take turns in random order within one process; native against
native again shows what the method cannot resolve; each backend has a process. Exit code 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from deep500.loading import load_file
from deep500.networks import Network, add_loss, create
from tests.benchmarks.filling import in_turn
from tests.benchmarks.turns import Comparison, Work, say_all

FIGURES = {
    "pytorch: a step of ResNet-20 with a user's Adam": "at most 1.10 of the framework's own",
    "pytorch: a step of 200 small parameters with a user's Adam": "at most 1.10",
    "jax: a step of ResNet-20 with a user's Adam": "at most 1.10",
    "jax: a step of 200 small parameters with a user's Adam": "at most 1.10",
    "tensorflow: a step of ResNet-20 with a user's Adam": "at most 1.10",
    "tensorflow: a step of 200 small parameters with a user's Adam": "at most 1.10",
}

RULE = '''
import deep500 as d5


class MyAdam(d5.UpdateRuleOptimizer):
    """Adam, as its paper has it."""

    lr: float = 0.001
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8

    def update_rule(self, grad, old_param, name):
        t, means, squares = self.steps + 1, self.slot("mean"), self.slot("square")
        means[name] = self.b1 * means.get(name, 0.0) + (1 - self.b1) * grad
        squares[name] = self.b2 * squares.get(name, 0.0) + (1 - self.b2) * grad**2
        mean, square = means[name] / (1 - self.b1**t), squares[name] / (1 - self.b2**t)
        return old_param - self.lr * mean / (square**0.5 + self.eps)
'''
LAYERS, WIDTH, RATE = 100, 16, 1e-3
Batch = tuple[np.ndarray, np.ndarray]


def small() -> Network:
    """The chain of dense layers, with its loss."""
    return add_loss(create("mlp", shape=(WIDTH,), hidden=(WIDTH,) * (LAYERS - 1), classes=WIDTH))


def batch_of(shape: tuple[int, ...], size: int, classes: int) -> Batch:
    """One batch of noise."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((size, *shape)).astype(np.float32), rng.integers(0, classes, size)


def deep500_step(backend: str, network: Network, batch: Batch, wrap: Callable[[Any], Any]) -> Work:
    """One step through executor and the user's optimizer, which waits for its end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mine.py")
        path.write_text(RULE, encoding="utf-8")
        rule = load_file(path, "mine").MyAdam
    executor = import_module(f"deep500.frameworks.{backend}").from_model(network)
    optimizer, inputs = rule(executor, "loss", lr=RATE), {"input": wrap(batch[0]), "label": wrap(batch[1])}

    def work() -> Any:
        optimizer.step(inputs)
        if optimizer.updates.refusal:
            sys.exit(f"got {optimizer.updates.refusal!r}; expected a rule that is compiled: this compares nothing")
        return executor.synchronize()

    return work


def pytorch(network: Network, batch: Batch) -> dict[str, Work]:
    """The ways in PyTorch."""
    import torch
    from torch import nn

    from tests.benchmarks.overhead.pytorch import ResNet20

    torch.set_num_threads(1)
    images, labels = map(torch.from_numpy, batch)

    def native() -> Work:
        layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())][:-1]
        model = ResNet20() if images.ndim == 4 else nn.Sequential(*layers)
        optimizer = torch.optim.Adam(model.parameters(), RATE, fused=True)

        def step() -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()

        return step

    return {
        "native": native(),
        "native again": native(),
        "deep500": deep500_step("pytorch", network, batch, torch.from_numpy),
    }


def jax(network: Network, batch: Batch) -> dict[str, Work]:
    """The ways in JAX."""
    import jax
    import jax.numpy as jnp
    import optax

    from tests.benchmarks.overhead.jax import loss_of, trees

    def small_loss(p: Any, s: Any, x: Any, label: Any) -> Any:
        for number in range(1, LAYERS + 1):
            x = x @ p[f"fc{number}.weight"].T + p[f"fc{number}.bias"]
            x = jax.nn.relu(x) if number < LAYERS else x
        return -jnp.take_along_axis(jax.nn.log_softmax(x), label[:, None], 1).mean(), s

    def native() -> Work:
        rule, loss = optax.adam(RATE), loss_of if batch[0].ndim == 4 else small_loss
        start = trees() if batch[0].ndim == 4 else ({n: jnp.array(v.value) for n, v in network.parameters.items()}, {})

        def step(p: Any, s: Any, state: Any, x: Any, label: Any) -> Any:
            (value, s), gradients = jax.value_and_grad(loss, has_aux=True)(p, s, x, label)
            changes, state = rule.update(gradients, state, p)
            return optax.apply_updates(p, changes), s, state, value

        jitted, carried = jax.jit(step, donate_argnums=(0, 1, 2)), [*start, rule.init(start[0])]

        def work() -> Any:
            *carried[:], value = jitted(*carried, *batch)
            return jax.block_until_ready((carried, value))

        return work

    return {
        "native": native(),
        "native again": native(),
        "deep500": deep500_step("jax", network, batch, lambda array: array),
    }


def tensorflow(network: Network, batch: Batch) -> dict[str, Work]:
    """The ways in TensorFlow."""
    from deep500.frameworks.tensorflow.runtime import tf
    from tests.benchmarks.overhead.tensorflow import ResNet20, version

    version()

    def dense() -> tuple[list[Any], Callable[[Any, bool], Any]]:
        variables = [tf.Variable(parameter.value) for parameter in network.parameters.values()]

        def model(x: Any, training: bool) -> Any:
            for number in range(LAYERS):
                x = tf.matmul(x, variables[2 * number], transpose_b=True) + variables[2 * number + 1]
                x = tf.nn.relu(x) if number < LAYERS - 1 else x
            return x

        return variables, model

    def native() -> Work:
        images, labels = tf.constant(batch[0]), tf.constant(batch[1])
        if images.shape.rank == 4:
            model: Any = ResNet20()
            images, variables = tf.transpose(images, (0, 2, 3, 1)), model.trainable
        else:
            variables, model = dense()
        means, squares = ([tf.Variable(tf.zeros_like(v), trainable=False) for v in variables] for _ in range(2))

        @tf.function(autograph=False)
        def step(images: Any, labels: Any, powers: Any) -> Any:
            with tf.GradientTape() as tape:
                output = model(images, True)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, output))
            gradients = tape.gradient(loss, variables)
            for variable, mean, square, gradient in zip(variables, means, squares, gradients, strict=True):
                tf.raw_ops.ResourceApplyAdam(
                    var=variable.handle, m=mean.handle, v=square.handle, grad=gradient, lr=RATE, beta1=0.9, beta2=0.999,
                    epsilon=1e-8, beta1_power=powers[0], beta2_power=powers[1],
                )  # fmt: skip
            return loss

        count = [0]

        def work() -> float:
            count[0] += 1
            return float(step(images, labels, tf.constant([0.9 ** count[0], 0.999 ** count[0]])))

        return work

    return {
        "native": native(),
        "native again": native(),
        "deep500": deep500_step("tensorflow", network, batch, tf.constant),
    }


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = {"pytorch": pytorch, "jax": jax, "tensorflow": tensorflow}
    parser.add_argument("--backend", choices=ways, help="only this one")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--network", choices=["resnet20", "small"], help="only this one")
    args = parser.parse_args()
    networks = {
        "resnet20": (lambda: add_loss(create("resnet", depth=20)), (3, 32, 32), 10, 1),
        "small": (small, (WIDTH,), WIDTH, 4),
    }
    if args.backend is None:
        words = ["--rounds", f"{args.rounds}", "--batch", f"{args.batch}"]
        words += ["--network", args.network] if args.network else []
        return in_turn("tests.benchmarks.user_rule", "--backend", list(ways), *words)
    asked = []
    for figure, (backend, name) in zip(FIGURES, itertools.product(ways, networks), strict=True):
        if backend == args.backend and args.network in (None, name):
            make, shape, classes, calls = networks[name]
            variants = lambda make=make, shape=shape, classes=classes: ways[args.backend](  # noqa: E731
                make(), batch_of(shape, args.batch, classes)
            )
            asked.append(Comparison(f"batch {args.batch}", variants, calls, figure, 1.10))
    return 0 if say_all(asked, args.rounds) else 1


if __name__ == "__main__":
    raise SystemExit(main())
