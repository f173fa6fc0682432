"""Gradients by JAX in float64, compiled once per size: another implementation of the same functions, and its time."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")

Array = Any
Loss = Callable[..., Array]
"""Of x, c and the whole numbers that are no sizes, if there are any."""


def _lstm(layers: int, units: int, steps: int) -> Loss:
    def loss(x: Array, c: Array) -> Array:
        sequence = c.reshape(steps + 1, units)
        main, extra = x[: layers * 8 * units].reshape(layers, 2, 4, units), x[layers * 8 * units :].reshape(3, units)

        def step(state: Array, here: Array) -> tuple[Array, Array]:
            new = []
            for layer, (hidden, memory) in enumerate(state):
                (of_forget, of_admit, of_emit, of_new), bias = main[layer]
                forget, emit = jax.nn.sigmoid(here * of_forget + bias[0]), jax.nn.sigmoid(here * of_emit + bias[2])
                admit = jax.nn.sigmoid(hidden * of_admit + bias[1])
                cell = memory * forget + admit * jnp.tanh(hidden * of_new + bias[3])
                here = emit * jnp.tanh(cell)
                new.append((here, cell))
            return new, here

        _, tops = lax.scan(step, [(jnp.zeros(units), jnp.zeros(units))] * layers, sequence[:-1] * extra[0])
        return -(sequence[1:] * jax.nn.log_softmax(tops * extra[1] + extra[2])).sum() / steps

    return loss


def _ba(cameras: int, points: int, observations: int) -> Loss:
    def loss(x: Array, c: Array, pairs: Array) -> Array:
        which = pairs.reshape(observations, 2)
        camera = x[: 11 * cameras].reshape(cameras, 11)[which[:, 0]]
        point = x[11 * cameras : 11 * cameras + 3 * points].reshape(points, 3)[which[:, 1]]
        weight = x[11 * cameras + 3 * points :]
        vector, shifted = camera[:, :3], point - camera[:, 3:6]
        angle = jnp.linalg.norm(vector, axis=1, keepdims=True)
        axis = vector / angle
        along = (axis * shifted).sum(1, keepdims=True) * (1 - jnp.cos(angle))
        seen = shifted * jnp.cos(angle) + jnp.cross(axis, shifted) * jnp.sin(angle) + axis * along
        image = seen[:, :2] / seen[:, 2:]
        square = (image**2).sum(1)
        stretch = camera[:, 6] * (1 + camera[:, 9] * square + camera[:, 10] * square**2)
        errors = weight[:, None] * (stretch[:, None] * image + camera[:, 7:9] - c.reshape(observations, 2))
        return (errors**2).sum() + ((1 - weight**2) ** 2).sum()

    return loss


def _gmm(d: int, parts: int, points: int) -> Loss:
    row, column = np.tril_indices(d, -1)

    def loss(x: Array, c: Array) -> Array:
        weights, means = x[:parts], x[parts : parts * (d + 1)].reshape(parts, d)
        factors = x[parts * (d + 1) :].reshape(parts, -1)
        logs, below = factors[:, :d], factors[:, d:]
        lower = (jnp.exp(logs)[:, :, None] * jnp.eye(d)).at[:, row, column].set(below)
        centred = c[2:].reshape(1, points, d) - means[:, None]
        squares = ((centred @ lower.transpose(0, 2, 1)) ** 2).sum(2)
        terms = weights[:, None] + logs.sum(1)[:, None] - squares / 2
        prior = c[0] ** 2 / 2 * ((jnp.exp(logs) ** 2).sum() + (below**2).sum()) - c[1] * logs.sum()
        normal = points * jax.scipy.special.logsumexp(weights)
        return normal - jax.scipy.special.logsumexp(terms, axis=0).sum() + prior

    return loss


def _decay(steps: int, advance: Callable[[Callable[[Array], Array], Array, Array], Array]) -> Loss:
    def loss(x: Array, c: Array) -> Array:
        h = x[2] / steps
        return lax.scan(lambda y, _: (advance(lambda at: -x[1] * at, y, h), None), x[0], None, length=steps)[0]

    return loss


def _euler(steps: int) -> Loss:
    return _decay(steps, lambda f, y, h: y + h * f(y))


def _rk4(steps: int) -> Loss:
    def advance(f: Callable[[Array], Array], y: Array, h: Array) -> Array:
        first = f(y)
        second = f(y + h / 2 * first)
        third = f(y + h / 2 * second)
        return y + h / 6 * (first + 2 * second + 2 * third + f(y + h * third))

    return _decay(steps, advance)


def _fft(count: int) -> Loss:
    def loss(x: Array, c: Array) -> Array:
        pairs = x.reshape(count, 2)
        back = jnp.fft.ifft(jnp.fft.fft(lax.complex(pairs[:, 0], pairs[:, 1])))
        return (c * (back.real**2 + back.imag**2)).sum()

    return loss


def _brusselator(side: int) -> Loss:
    def loss(x: Array, c: Array) -> Array:
        state = x[3:].reshape(2, side, side)
        padded = jnp.pad(state, ((0, 0), (1, 1), (1, 1)), mode="edge")
        around = padded[:, :-2, 1:-1] + padded[:, 2:, 1:-1] + padded[:, 1:-1, :-2] + padded[:, 1:-1, 2:]
        spread = x[2] * (side - 1) ** 2 * (around - 4 * state)
        u, v = state
        reaction = u * u * v
        return (c * (spread + jnp.stack([x[1] + reaction - (x[0] + 1) * u, x[0] * u - reaction])).reshape(-1)).sum()

    return loss


LOSSES: dict[str, Callable[..., Loss]] = {
    "lstm": _lstm,
    "ba": _ba,
    "gmm": _gmm,
    "euler": _euler,
    "rk4": _rk4,
    "fft": _fft,
    "brusselator": _brusselator,
}


SIZES = 3
"""At most so many of the whole numbers are sizes, which the program is compiled for."""


@cache
def _compiled(name: str, sizes: tuple[int, ...]) -> Callable[..., Array]:
    return jax.jit(jax.grad(LOSSES[name](*sizes)))


def __getattr__(name: str) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """The gradient of a benchmark by its name."""
    if name not in LOSSES:
        raise AttributeError(name)

    def gradient(x: np.ndarray, c: np.ndarray, n: np.ndarray) -> np.ndarray:
        rest = (n[SIZES:],) if n.size > SIZES else ()
        return np.asarray(_compiled(name, tuple(map(int, n[:SIZES])))(x, c, *rest))

    return gradient
