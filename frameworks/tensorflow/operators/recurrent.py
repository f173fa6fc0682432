"""LSTM, GRU and RNN as a loop over time, written after ONNX; its length must be known when the network is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deep500.frameworks.tensorflow.operators.table import number, op, sizes, static_sizes
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.activations import gate_activations

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


def _state(given: Tensor | None, x: Tensor, dirs: int, hidden: int, layout: int) -> Tensor:
    if given is None:
        return tf.zeros([dirs, sizes(x)[1], hidden], x.dtype)
    return tf.transpose(given, [1, 0, 2]) if layout else given


def _results(y: Tensor, states: tuple[Tensor, ...], layout: int, outputs: tuple[bool, ...]) -> Any:
    """``y`` is ``[time, directions, batch, hidden]``, states are ``[directions, batch, hidden]``."""
    if layout:
        y, states = tf.transpose(y, [2, 0, 1, 3]), tuple(tf.transpose(s, [1, 0, 2]) for s in states)
    return (y, *states)[: len(outputs)] if len(outputs) > 1 else y


def _loop(
    step: Callable[[int, Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]],
    x: Tensor,
    project: Callable[[int, Tensor], Tensor],
    states: tuple[Tensor, ...],
    lengths: Tensor | None,
    direction: str,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run ``step(direction, projected x_t, states)`` over time; past a sample's length its output is 0.

    Its state then stays as it is.

    ``project`` is what the inputs contribute; it is computed for all times at once.
    """
    ys, ends = [], []
    (time,) = static_sizes(x, 0)
    for d in range(states[0].shape[0]):
        backward = direction == "reverse" or d == 1
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
    step: Callable[[int, Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]],
    project: Callable[[int, Tensor], Tensor],
    x: Tensor,
    r: Tensor,
    given: tuple[Tensor | None, ...],
    lengths: Tensor | None,
    direction: str,
    layout: int,
    outputs: tuple[bool, ...],
) -> Any:
    """What all three operators do with ``step`` and ``project`` of :func:`_loop`; ``given`` are the first states."""
    x = tf.transpose(x, [1, 0, 2]) if layout else x
    dirs, _, hidden = static_sizes(r)
    states = tuple(_state(s, x, dirs, hidden, layout) for s in given)
    y, ends = _loop(step, x, project, states, lengths, direction)
    return _results(y, ends, layout, outputs)


def _linear(x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    y = tf.linalg.matmul(x, w, transpose_b=True) if x.shape.rank == 2 else tf.tensordot(x, w, [[-1], [1]])
    return y if b is None else y + b


def _whole(w: Tensor, b: Tensor | None) -> Callable[[int, Tensor], Tensor]:
    """What inputs contribute where both biases are added to it."""
    return lambda d, xs: _linear(xs, w[d], None if b is None else tf.add(*tf.split(b[d], 2)))


def _bound(clip: float | None) -> Callable[[Tensor], Tensor]:
    return (lambda x: x) if clip is None else (lambda x: tf.clip_by_value(x, number(-clip, x), number(clip, x)))


@op("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    outputs: tuple[bool, ...],
) -> Any:
    names, bound = ("Sigmoid", "Tanh", "Tanh"), _bound(clip)
    functions = gate_activations(TYPED, activations, activation_alpha, activation_beta, names * static_sizes(r)[0])

    def step(d: int, xt: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        f, g, k = functions[3 * d : 3 * d + 3]
        ht, ct = state
        i, o, forget, cell = tf.split(xt + _linear(ht, r[d]), 4, 1)
        pi, po, pf = (0, 0, 0) if p is None else tf.split(p[d], 3)
        gate = f(bound(i if p is None else i + pi * ct))
        keep = 1 - gate if input_forget else f(bound(forget if p is None else forget + pf * ct))
        ct = keep * ct + gate * g(bound(cell))
        return f(bound(o if p is None else o + po * ct)) * k(ct), ct

    return _run(step, _whole(w, b), x, r, (h, c), lengths, direction, layout, outputs)


@op("GRU")
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    outputs: tuple[bool, ...],
) -> Any:
    names, bound = ("Sigmoid", "Tanh"), _bound(clip)
    functions = gate_activations(TYPED, activations, activation_alpha, activation_beta, names * static_sizes(r)[0])

    def project(d: int, xs: Tensor) -> Tensor:
        return _linear(xs, w[d], None if b is None else tf.split(b[d], 2)[0])

    def step(d: int, xt: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        f, g = functions[2 * d : 2 * d + 2]
        ht = states[0]
        (xz, xr, xh), (rz, rr, rh) = tf.split(xt, 3, 1), tf.split(r[d], 3)
        bz, bq, bh = (None, None, None) if b is None else tf.split(tf.split(b[d], 2)[1], 3)
        z = f(bound(xz + _linear(ht, rz, bz)))
        q = f(bound(xr + _linear(ht, rr, bq)))
        inner = q * _linear(ht, rh, bh) if linear_before_reset else _linear(q * ht, rh, bh)
        return ((1 - z) * g(bound(xh + inner)) + z * ht,)

    return _run(step, project, x, r, (h,), lengths, direction, layout, outputs)


@op("RNN")
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    outputs: tuple[bool, ...],
) -> Any:
    dirs = static_sizes(r)[0]
    names = tuple(activations or ("Tanh",))[:dirs]
    names *= dirs if len(names) == 1 else 1
    functions = gate_activations(TYPED, names, activation_alpha, activation_beta, ())
    bound = _bound(clip)

    def step(d: int, xt: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (functions[d](bound(xt + _linear(states[0], r[d]))),)

    return _run(step, _whole(w, b), x, r, (h,), lengths, direction, layout, outputs)
