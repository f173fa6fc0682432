"""What a call of a custom operator costs in JAX and TensorFlow: ``--backend jax_tensorflow [--rounds N]``.

Softsign of 16 float32 numbers in JAX and TensorFlow: compiled, in Python, and the framework's own, called as it is, in
a compiled function, and with its gradient. Variants take turns in random order within one process; ratios are to the
framework's own operator called the same way.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")

import jax
import jax.numpy as jnp

import deep500 as d5
import deep500.frameworks.jax as d5jax
import deep500.frameworks.tensorflow as d5tf
from deep500.frameworks.tensorflow.runtime import tf
from deep500.measure.statistics import Interval, median_interval
from tests.benchmarks.filling import say_ratio
from tests.benchmarks.operator_overhead import CALL
from tests.benchmarks.turns import Work, measure, ratio_of
from tests.frameworks.compiled import softsign

CALLS = 200


class PythonSoftsign(d5.CustomPythonOp):
    """Softsign with NumPy."""

    def forward(self, inputs):
        return inputs[0] / (1 + abs(inputs[0]))

    def backward(self, grads, fwd_inputs, fwd_outputs):
        return grads[0] / (1 + abs(fwd_inputs[0])) ** 2


def in_jax(function: Callable[..., object]) -> dict[str, Work]:
    """The ways to call a function of arrays."""
    x = jnp.linspace(-1, 1, 16, dtype="float32")
    plain, jitted = function, jax.jit(function)
    slope = jax.jit(jax.value_and_grad(lambda x: jnp.sum(function(x))))  # type: ignore[arg-type]
    return {
        "called": lambda: jax.block_until_ready(plain(x)),
        "jit": lambda: jax.block_until_ready(jitted(x)),
        "jit, gradient": lambda: jax.block_until_ready(slope(x)),
    }


def in_tensorflow(function: Callable[..., object]) -> dict[str, Work]:
    """The ways to call a function of tensors."""
    x = tf.linspace(tf.constant(-1.0), 1, 16)

    def slope(x: object) -> object:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.reduce_sum(function(x))
        return tape.gradient(y, x)

    jitted, slopes = tf.function(function, autograph=False), tf.function(slope, autograph=False)
    return {
        "called": lambda: function(x),
        "called, gradient": lambda: slope(x),
        "tf.function": lambda: jitted(x),
        "tf.function, gradient": lambda: slopes(x),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one line per way and variant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    rounds = parser.parse_args(arguments).rounds
    operators, ratios = {"compiled": softsign(), "Python": PythonSoftsign()}, {}
    for name, build, d5fw, own in (
        ("JAX", in_jax, d5jax, jax.nn.soft_sign),
        ("TensorFlow", in_tensorflow, d5tf, tf.nn.softsign),
    ):
        variants = {"own": build(own), "own again": build(own)}
        variants |= {key: build(d5fw.custom_op(op)) for key, op in operators.items()}
        for way in variants["own"]:
            found = report(f"{name}, {way}", {key: works[way] for key, works in variants.items()}, rounds)
            ratios |= {f"{key}, {name}, {way}": found[key] for key in operators}
    say_ratio(CALL, ratios)


def report(title: str, works: dict[str, Work], rounds: int) -> dict[str, Interval]:
    """Time the variants in turns and print microseconds per call with ratios to the first, which are returned."""
    times, ratios = measure(works, rounds, CALLS, CALLS), {}
    for name, pairs in times.items():
        ratios[name] = ratio_of(times, name, "own", "wall")
        microseconds = 1e6 * median_interval([wall for _, wall in pairs]).median
        print(f"{title}: {name:10s} {microseconds:8.1f} us; over own {ratios[name]}")
    return ratios
