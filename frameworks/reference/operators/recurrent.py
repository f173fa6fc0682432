"""The LSTM; GRU and RNN are the fallback's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deep500.frameworks.reference.operators.elementwise import sigmoid
from deep500.frameworks.reference.operators.table import op
from deep500.networks.node import Node

Array = np.ndarray
_USUAL = ("Sigmoid", "Tanh", "Tanh")


def _usual(node: Node) -> bool:
    """Default activations, no clipping, sequences of equal length."""
    activations = tuple(node.attribute("activations") or _USUAL)
    ragged = len(node.inputs) > 4 and bool(node.inputs[4])
    return (
        activations[:3] == _USUAL
        and len(set(activations[3:])) <= 2
        and not ragged
        and not any(node.attribute(name) for name in ("clip", "input_forget", "activation_alpha", "activation_beta"))
    )


def _one_direction(x: Array, w: Array, r: Array, b: Array, h: Array, c: Array, peep: Sequence[Array]) -> Any:
    """All hidden states [length, batch, hidden] and the last h and c. Gates in ONNX's order: i o f c."""
    states = np.empty((len(x), *h.shape), x.dtype)
    driven = np.matmul(x, w.T) + b  # of all steps at once
    for t in range(len(x)):
        i, o, f, g = np.split(driven[t] + h @ r.T, 4, axis=-1)
        i, f = sigmoid(i + peep[0] * c), sigmoid(f + peep[2] * c)
        c = f * c + i * np.tanh(g)
        h = sigmoid(o + peep[1] * c) * np.tanh(c)
        states[t] = h
    return states, h, c


@op("LSTM", when=_usual)
def lstm(
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    lengths: None = None,
    h0: Array | None = None,
    c0: Array | None = None,
    peepholes: Array | None = None,
    *,
    hidden_size: int | None = None,
    direction: str = "forward",
    layout: int = 0,
    outputs: int = 3,
    **usual: Any,
) -> Any:
    """Long short-term memory (Hochreiter & Schmidhuber 1997; peepholes: Gers & Schmidhuber 2000)."""
    x = x.swapaxes(0, 1) if layout else x
    directions, hidden = r.shape[0], r.shape[2]
    start = np.zeros((directions, x.shape[1], hidden), x.dtype)
    h0, c0 = (start if s is None else s.swapaxes(0, 1) if layout else s for s in (h0, c0))
    bias = np.zeros((directions, 8 * hidden), x.dtype) if b is None else b
    peep = np.zeros((directions, 3 * hidden), x.dtype) if peepholes is None else peepholes
    every, last_h, last_c = [], [], []
    for d in range(directions):
        backwards = direction == "reverse" or d == 1
        states, h, c = _one_direction(
            x[::-1] if backwards else x,
            w[d],
            r[d],
            bias[d, : 4 * hidden] + bias[d, 4 * hidden :],
            h0[d],
            c0[d],
            np.split(peep[d], 3),
        )
        every.append(states[::-1] if backwards else states)
        last_h.append(h)
        last_c.append(c)
    y, h, c = np.stack(every, 1), np.stack(last_h), np.stack(last_c)
    if layout:
        y, h, c = y.transpose(2, 0, 1, 3), h.swapaxes(0, 1), c.swapaxes(0, 1)
    return (y, h, c)[:outputs]
