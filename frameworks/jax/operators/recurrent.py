"""LSTM, GRU and RNN after ONNX's equations: one step, repeated by ``jax.lax.scan``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.operators.table import Array, op
from deep500.networks.execution.activations import gate_activations

States: TypeAlias = tuple[Array, ...]
Step: TypeAlias = Callable[[int, Array, States], States]

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


def _state(given: Array | None, x: Array, dirs: int, hidden: int, layout: int) -> Array:
    if given is None:
        return jnp.zeros((dirs, x.shape[1], hidden), x.dtype)
    return jnp.asarray(given.swapaxes(0, 1) if layout else given)


def _repeat(
    step: Step, x: Array, states: States, lengths: Array | None, direction: str, layout: int, outputs: tuple[bool, ...]
) -> Any:
    """Run ``step(direction, x_t, states)`` over time; past a sample's length its output is 0 and its state stays."""
    ys, ends = [], []
    for d in range(states[0].shape[0]):

        def advance(state: States, now: Any, d: int = d) -> tuple[States, Array]:
            xt, t = now
            new = step(d, xt, state)
            if lengths is None:
                return new, new[0]
            alive = (t < lengths)[:, None]
            kept = tuple(jnp.where(alive, n, s) for n, s in zip(new, state, strict=True))
            return kept, jnp.where(alive, new[0], 0)

        backward = direction == "reverse" or d == 1
        times = np.arange(x.shape[0])
        end, y = jax.lax.scan(advance, tuple(s[d] for s in states), (x, times), reverse=backward)
        ys.append(y)
        ends.append(end)
    y = jnp.stack(ys, 1)  # [time, directions, batch, hidden]
    finals = tuple(jnp.stack([end[i] for end in ends]) for i in range(len(states)))
    if layout:
        y, finals = y.transpose(2, 0, 1, 3), tuple(s.swapaxes(0, 1) for s in finals)
    return (y, *finals)[: len(outputs)] if len(outputs) > 1 else y


def _bound(clip: float | None) -> Callable[[Array], Array]:
    return (lambda x: x) if clip is None else (lambda x: jnp.clip(x, -clip, clip))


def _halves(b: Array | None, d: int) -> tuple[Any, Any]:
    """The biases of the input and of the recurrence."""
    return (0, 0) if b is None else tuple(jnp.split(b[d], 2))  # type: ignore[return-value]


@op("LSTM")
def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    h: Array | None = None,
    c: Array | None = None,
    p: Array | None = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    outputs: tuple[bool, ...] = (True, False, False),
) -> Any:
    x = x.swapaxes(0, 1) if layout else x
    dirs, hidden = w.shape[0], r.shape[2]
    states = (_state(h, x, dirs, hidden, layout), _state(c, x, dirs, hidden, layout))
    functions = gate_activations(
        ACTIVATIONS, activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh", "Tanh") * dirs
    )
    bound = _bound(clip)

    def step(d: int, xt: Array, state: States) -> States:
        f, g, k = functions[3 * d : 3 * d + 3]
        ht, ct = state
        i, o, forget, cell = jnp.split(xt @ w[d].T + ht @ r[d].T + sum(_halves(b, d)), 4, 1)
        pi, po, pf = (0, 0, 0) if p is None else jnp.split(p[d], 3)
        gate = f(bound(i + pi * ct))
        keep = 1 - gate if input_forget else f(bound(forget + pf * ct))
        ct = keep * ct + gate * g(bound(cell))
        return f(bound(o + po * ct)) * k(ct), ct

    return _repeat(step, x, states, lengths, direction, layout, outputs)


@op("GRU")
def gru(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    h: Array | None = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    outputs: tuple[bool, ...] = (True, False),
) -> Any:
    x = x.swapaxes(0, 1) if layout else x
    dirs, hidden = w.shape[0], r.shape[2]
    functions = gate_activations(
        ACTIVATIONS, activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh") * dirs
    )
    bound = _bound(clip)

    def step(d: int, xt: Array, states: States) -> States:
        f, g = functions[2 * d : 2 * d + 2]
        ht, (bw, br) = states[0], _halves(b, d)
        xz, xr, xh = jnp.split(xt @ w[d].T + bw, 3, 1)
        rz, rr, rh = jnp.split(r[d], 3)
        bz, bq, bh = (0, 0, 0) if b is None else jnp.split(br, 3)
        z = f(bound(xz + ht @ rz.T + bz))
        q = f(bound(xr + ht @ rr.T + bq))
        inner = q * (ht @ rh.T + bh) if linear_before_reset else (q * ht) @ rh.T + bh
        return ((1 - z) * g(bound(xh + inner)) + z * ht,)

    return _repeat(step, x, (_state(h, x, dirs, hidden, layout),), lengths, direction, layout, outputs)


@op("RNN")
def rnn(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: Array | None = None,
    h: Array | None = None,
    *,
    activation_alpha: Any = None,
    activation_beta: Any = None,
    activations: Any = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    outputs: tuple[bool, ...] = (True, False),
) -> Any:
    x = x.swapaxes(0, 1) if layout else x
    dirs, hidden = w.shape[0], r.shape[2]
    names = tuple(activations or ("Tanh",))[:dirs]
    names = names * (dirs if len(names) == 1 else 1)
    functions = gate_activations(ACTIVATIONS, names, activation_alpha, activation_beta, ("Tanh",) * dirs)
    bound = _bound(clip)

    def step(d: int, xt: Array, states: States) -> States:
        return (functions[d](bound(xt @ w[d].T + states[0] @ r[d].T + sum(_halves(b, d)))),)

    return _repeat(step, x, (_state(h, x, dirs, hidden, layout),), lengths, direction, layout, outputs)
