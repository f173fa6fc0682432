"""LSTM, GRU and RNN after ONNX's equations: one step, repeated by ``jax.lax.scan``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.operators.table import Array, op
from deep500.networks.attributes import Recurrent
from deep500.networks.execution.operator_table import optional
from deep500.networks.execution.recurrent import CellArithmetic, States, Step, gru_step, lstm_step, rnn_step

ACTIVATIONS: dict[str, Callable[[Array, float, float], Array]] = {
    "Relu": lambda x, a, b: jax.nn.relu(x),
    "Tanh": lambda x, a, b: jnp.tanh(x),
    "Sigmoid": lambda x, a, b: jax.nn.sigmoid(x),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: jnp.where(x < 0, a * x, x),
    "ThresholdedRelu": lambda x, a, b: jnp.where(x > a, x, 0),
    "ScaledTanh": lambda x, a, b: a * jnp.tanh(b * x),
    "HardSigmoid": lambda x, a, b: jnp.clip(a * x + b, 0, 1),
    "Elu": lambda x, a, b: jax.nn.elu(x, a),
    "Softsign": lambda x, a, b: jax.nn.soft_sign(x),
    "Softplus": lambda x, a, b: jax.nn.softplus(x),
}


def _linear(x: Array, w: Array, b: Array | None) -> Array:
    return x @ w.T if b is None else x @ w.T + b


ARITHMETIC = CellArithmetic(
    jnp.split,
    _linear,
    lambda y, x, w, b: y + x @ w.T if b is None else y + x @ w.T + b,
    lambda x, limit: jnp.clip(x, -limit, limit),
    ACTIVATIONS,
)


def _repeat(
    step: Step,
    x: Array,
    states: tuple[Array | None, ...],
    lengths: Array | None,
    hidden: int,
    settings: Recurrent,
    outputs: tuple[bool, ...],
) -> Any:
    """Run a step over time; past a sample's length its output is 0 and its state stays. States of None are zeros."""
    layout, dirs = settings.layout, 2 if settings.direction == "bidirectional" else 1
    x = x.swapaxes(0, 1) if layout else x
    states = tuple(
        jnp.zeros((dirs, x.shape[1], hidden), x.dtype) if s is None else jnp.asarray(s.swapaxes(0, 1) if layout else s)
        for s in states
    )
    ys, ends = [], []
    for d in range(dirs):

        def advance(state: States, now: Any, d: int = d) -> tuple[States, Array]:
            xt, t = now
            new = step(d, xt, state)
            if lengths is None:
                return new, new[0]
            alive = (t < lengths)[:, None]
            return tuple(jnp.where(alive, n, s) for n, s in zip(new, state, strict=True)), jnp.where(alive, new[0], 0)

        begin, times = tuple(s[d] for s in states), np.arange(x.shape[0])  # type: ignore[index]
        end, y = jax.lax.scan(advance, begin, (x, times), reverse=settings.backward(d))
        ys.append(y)
        ends.append(end)
    y = jnp.stack(ys, 1)  # [time, directions, batch, hidden]
    finals = tuple(jnp.stack([end[i] for end in ends]) for i in range(len(states)))
    if layout:
        y, finals = y.transpose(2, 0, 1, 3), tuple(s.swapaxes(0, 1) for s in finals)
    return (y, *finals)[: len(outputs)] if len(outputs) > 1 else y


def _both(w: Array, r: Array, b: Array | None) -> Callable[[int, Array, Array], Array]:
    """Products with the input and the state, and the sum of both biases."""
    biases = [0] * w.shape[0] if b is None else [sum(jnp.split(row, 2)) for row in b]
    return lambda d, xt, ht: xt @ w[d].T + ht @ r[d].T + biases[d]


@op("LSTM")
def lstm(
    x: Array,
    w: Array,
    r: Array,
    *operands: Array,
    settings: Recurrent,
    outputs: tuple[bool, ...] = (True, False, False),
) -> Any:
    b, lengths, h, c, p = optional(operands, 5)
    step = lstm_step(ARITHMETIC, settings, _both(w, r, b), w.shape[0], p)
    return _repeat(step, x, (h, c), lengths, r.shape[2], settings, outputs)


@op("GRU")
def gru(
    x: Array, w: Array, r: Array, *operands: Array, settings: Recurrent, outputs: tuple[bool, ...] = (True, False)
) -> Any:
    b, lengths, h = optional(operands, 3)
    of_input, of_state = (None, None) if b is None else jnp.split(b, 2, 1)

    def inputs(d: int, xt: Array) -> Array:
        return _linear(xt, w[d], None if of_input is None else of_input[d])

    step = gru_step(ARITHMETIC, settings, inputs, r, of_state)
    return _repeat(step, x, (h,), lengths, r.shape[2], settings, outputs)


@op("RNN")
def rnn(
    x: Array, w: Array, r: Array, *operands: Array, settings: Recurrent, outputs: tuple[bool, ...] = (True, False)
) -> Any:
    b, lengths, h = optional(operands, 3)
    step = rnn_step(ARITHMETIC, settings, _both(w, r, b), w.shape[0])
    return _repeat(step, x, (h,), lengths, r.shape[2], settings, outputs)
