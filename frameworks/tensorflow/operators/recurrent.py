"""LSTM, GRU and RNN as a loop over time, written after ONNX; its length must be known when the network is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deep500.frameworks.tensorflow.operators.table import number, op, sizes, static_sizes
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.attributes import Recurrent
from deep500.networks.execution.operator_table import optional
from deep500.networks.execution.recurrent import CellArithmetic, Step, gru_step, lstm_step, rnn_step

Tensor = Any
ACTIVATIONS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "Relu": lambda x, a, b: tf.nn.relu(x),
    "Tanh": lambda x, a, b: tf.tanh(x),
    "Sigmoid": lambda x, a, b: tf.sigmoid(x),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: tf.where(x < 0, a * x, x),
    "ThresholdedRelu": lambda x, a, b: tf.where(x > a, x, tf.zeros_like(x)),
    "ScaledTanh": lambda x, a, b: a * tf.tanh(b * x),
    "HardSigmoid": lambda x, a, b: tf.clip_by_value(a * x + b, number(0, x), number(1, x)),
    "Elu": lambda x, a, b: tf.where(x > 0, x, a * tf.nn.elu(x)),
    "Softsign": lambda x, a, b: tf.nn.softsign(x),
    "Softplus": lambda x, a, b: tf.nn.softplus(x),
}


def _typed(function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable[[Tensor, float, float], Tensor]:
    return lambda x, a, b: function(x, number(a, x), number(b, x))


TYPED = {name: _typed(function) for name, function in ACTIVATIONS.items()}
"""The activations of Python's numbers, in the dtype of the tensor."""


def _linear(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    y = tf.linalg.matmul(x, w, transpose_b=True) if x.shape.rank == 2 else tf.tensordot(x, w, [[-1], [1]])
    return y if b is None else y + b


ARITHMETIC = CellArithmetic(
    tf.split,
    _linear,
    lambda y, x, w, b: y + _linear(x, w, b),
    lambda x, limit: tf.clip_by_value(x, number(-limit, x), number(limit, x)),
    TYPED,
)


def _state(state: Tensor | None, x: Tensor, dirs: int, hidden: int, layout: int) -> Tensor:
    if state is None:
        return tf.zeros([dirs, sizes(x)[1], hidden], x.dtype)
    return tf.transpose(state, [1, 0, 2]) if layout else state


def _results(y: Tensor, states: tuple[Tensor, ...], layout: int, outputs: tuple[bool, ...]) -> Any:
    """``y`` is ``[time, directions, batch, hidden]``, states are ``[directions, batch, hidden]``."""
    if layout:
        y, states = tf.transpose(y, [2, 0, 1, 3]), tuple(tf.transpose(s, [1, 0, 2]) for s in states)
    return (y, *states)[: len(outputs)] if len(outputs) > 1 else y


def _loop(
    step: Step,
    x: Tensor,
    project: Callable[[int, Tensor], Tensor],
    states: tuple[Tensor, ...],
    lengths: Tensor | None,
    settings: Recurrent,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run ``step(direction, projected x_t, states)`` over time; past a sample's length its output is 0.

    Its state then stays as it is.

    ``project`` is what the inputs contribute; it is computed for all times at once.
    """
    ys, ends = [], []
    (time,) = static_sizes(x, 0)
    for d in range(states[0].shape[0]):
        backward = settings.backward(d)
        state, y, xs = tuple(s[d] for s in states), [None] * time, tf.unstack(project(d, x), time)
        for t in reversed(range(time)) if backward else range(time):
            new = step(d, xs[t], state)
            y[t] = new[0]
            if lengths is not None:
                alive = tf.expand_dims(t < lengths, 1)
                y[t] = tf.where(alive, new[0], tf.zeros_like(new[0]))
                new = tuple(tf.where(alive, n, s) for n, s in zip(new, state, strict=True))
            state = new
        ys.append(tf.stack(y))
        ends.append(state)
    finals = tuple(tf.stack([end[i] for end in ends]) for i in range(len(states)))
    return tf.stack(ys, 1), finals


def _run(
    step: Step,
    project: Callable[[int, Tensor], Tensor],
    operands: tuple[Tensor, Tensor],
    states: tuple[Tensor | None, ...],
    lengths: Tensor | None,
    settings: Recurrent,
    outputs: tuple[bool, ...],
) -> Any:
    """Run all three operators with ``step`` and ``project`` of :func:`_loop`, on the input and recurrent weights."""
    (x, r), layout = operands, settings.layout
    x = tf.transpose(x, [1, 0, 2]) if layout else x
    dirs, _, hidden = static_sizes(r)
    begin = tuple(_state(s, x, dirs, hidden, layout) for s in states)
    y, ends = _loop(step, x, project, begin, lengths, settings)
    return _results(y, ends, layout, outputs)


def _whole(w: Tensor, b: Tensor | None) -> Callable[[int, Tensor], Tensor]:
    """The product with the inputs where both biases are added to it."""
    return lambda d, xs: _linear(xs, w[d], None if b is None else tf.add(*tf.split(b[d], 2)))


def _gates(r: Tensor) -> Callable[[int, Tensor, Tensor], Tensor]:
    """The product with the state, added to what the input has contributed."""
    return lambda d, xt, ht: xt + _linear(ht, r[d])


@op("LSTM")
def lstm(x: Tensor, w: Tensor, r: Tensor, *operands: Tensor, settings: Recurrent, outputs: tuple[bool, ...]) -> Any:
    b, lengths, h, c, p = optional(operands, 5)
    step = lstm_step(ARITHMETIC, settings, _gates(r), static_sizes(r)[0], p)
    return _run(step, _whole(w, b), (x, r), (h, c), lengths, settings, outputs)


@op("GRU")
def gru(x: Tensor, w: Tensor, r: Tensor, *operands: Tensor, settings: Recurrent, outputs: tuple[bool, ...]) -> Any:
    b, lengths, h = optional(operands, 3)
    of_input, of_state = (None, None) if b is None else tf.split(b, 2, 1)

    def project(d: int, xs: Tensor) -> Tensor:
        return _linear(xs, w[d], None if of_input is None else of_input[d])

    static_sizes(r)
    step = gru_step(ARITHMETIC, settings, lambda d, xt: xt, r, of_state)
    return _run(step, project, (x, r), (h,), lengths, settings, outputs)


@op("RNN")
def rnn(x: Tensor, w: Tensor, r: Tensor, *operands: Tensor, settings: Recurrent, outputs: tuple[bool, ...]) -> Any:
    b, lengths, h = optional(operands, 3)
    step = rnn_step(ARITHMETIC, settings, _gates(r), static_sizes(r)[0])
    return _run(step, _whole(w, b), (x, r), (h,), lengths, settings, outputs)
