"""LSTM, GRU and RNN after ONNX's equations: one step (:mod:`deep500.networks.execution.recurrent`), in a loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deep500.frameworks.reference.operators.elementwise import sigmoid
from deep500.frameworks.reference.operators.table import op
from deep500.networks.attributes import Recurrent
from deep500.networks.execution.operator_table import optional
from deep500.networks.execution.recurrent import CellArithmetic, States, Step, gru_step, lstm_step, rnn_step

Array = np.ndarray

ACTIVATIONS: dict[str, Callable[[Array, float, float], Array]] = {
    "Relu": lambda x, a, b: np.maximum(x, 0),
    "Tanh": lambda x, a, b: np.tanh(x),
    "Sigmoid": lambda x, a, b: sigmoid(x),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "ThresholdedRelu": lambda x, a, b: np.where(x > a, x, 0),
    "ScaledTanh": lambda x, a, b: a * np.tanh(b * x),
    "HardSigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "Elu": lambda x, a, b: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
    "Softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "Softplus": lambda x, a, b: np.logaddexp(x, np.zeros((), x.dtype)),
}


def _linear(x: Array, w: Array, b: Array | None) -> Array:
    return x @ w.T if b is None else x @ w.T + b


def _added(y: Array, x: Array, w: Array, b: Array | None) -> Array:
    return y + _linear(x, w, b)


ARITHMETIC = CellArithmetic(np.split, _linear, _added, lambda x, limit: np.clip(x, -limit, limit), ACTIVATIONS)


def _walk(
    step: Step, x: Array, r: Array, states: tuple[Array | None, ...], lengths: Array | None, settings: Recurrent
) -> tuple[Array, ...]:
    """Run ``step(direction, frame, states)``; past a sample's length its output is 0 and its state stays.

    States of None are zeros. Returns all hidden states [length, directions, batch, hidden], and the last states
    [directions, batch, hidden]; with ``layout`` the batch comes first.
    """
    x = x.swapaxes(0, 1) if settings.layout else x
    zeros = np.zeros((r.shape[0], x.shape[1], r.shape[2]), x.dtype)
    begin = [zeros if s is None else s.swapaxes(0, 1) if settings.layout else s for s in states]
    every, ends = [], []
    for d in range(len(zeros)):
        now: States = tuple(s[d] for s in begin)
        shown = np.zeros((len(x), *zeros.shape[1:]), x.dtype)
        for t in range(len(x))[:: -1 if settings.backward(d) else 1]:
            new = step(d, x[t], now)
            if lengths is None:
                now, shown[t] = new, new[0]
            else:
                alive = (t < lengths)[:, None]
                shown[t] = np.where(alive, new[0], 0)
                now = tuple(np.where(alive, n, s) for n, s in zip(new, now, strict=True))
        every.append(shown)
        ends.append(now)
    y, last = np.stack(every, 1), [np.stack(parts) for parts in zip(*ends, strict=True)]
    if settings.layout:
        return y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in last)
    return y, *last


def _both(w: Array, r: Array, b: Array | None) -> Callable[[int, Array, Array], Array]:
    """Products with the input and the state, and the sum of both biases."""
    biases = np.zeros((len(w), 1), w.dtype) if b is None else np.add(*np.split(b, 2, 1))
    return lambda d, x, h: x @ w[d].T + h @ r[d].T + biases[d]


@op("LSTM")
def lstm(x: Array, w: Array, r: Array, *operands: Array, settings: Recurrent, outputs: int = 3) -> Any:
    """Long short-term memory (Hochreiter & Schmidhuber 1997; peepholes: Gers & Schmidhuber 2000)."""
    b, lengths, h0, c0, peepholes = optional(operands, 5)
    step = lstm_step(ARITHMETIC, settings, _both(w, r, b), len(w), peepholes)
    return _walk(step, x, r, (h0, c0), lengths, settings)[:outputs]


@op("GRU")
def gru(x: Array, w: Array, r: Array, *operands: Array, settings: Recurrent, outputs: int = 2) -> Any:
    """Gated recurrent unit (Cho et al. 2014)."""
    b, lengths, h0 = optional(operands, 3)
    of_input, of_state = (None, None) if b is None else np.split(b, 2, 1)

    def inputs(d: int, frame: Array) -> Array:
        return _linear(frame, w[d], None if of_input is None else of_input[d])

    return _walk(gru_step(ARITHMETIC, settings, inputs, r, of_state), x, r, (h0,), lengths, settings)[:outputs]


@op("RNN")
def rnn(x: Array, w: Array, r: Array, *operands: Array, settings: Recurrent, outputs: int = 2) -> Any:
    """h = f(W x + R h + b), f usually tanh (Elman 1990)."""
    b, lengths, h0 = optional(operands, 3)
    return _walk(rnn_step(ARITHMETIC, settings, _both(w, r, b), len(w)), x, r, (h0,), lengths, settings)[:outputs]
