"""LSTM, GRU and RNN with their usual activations; others are the fallback's, which reads no lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.errors import UnsupportedOperator
from deep500.frameworks.reference.operators.elementwise import sigmoid
from deep500.frameworks.reference.operators.table import op
from deep500.networks.attributes import Recurrent
from deep500.networks.execution.operator_table import optional
from deep500.networks.execution.recurrent import GRU, LSTM, RNN, States, Step
from deep500.networks.node import Node

Array = np.ndarray
_STEPS = {"LSTM": LSTM, "GRU": GRU, "RNN": RNN}
_OTHERS = ("clip", "input_forget", "activation_alpha", "activation_beta")


def _usual(node: Node) -> bool:
    """Default activations and no clipping. Lengths with anything else are taken too, to be refused."""
    return _ragged(node) or _plain(node)


def _ragged(node: Node) -> bool:
    return len(node.inputs) > 4 and bool(node.inputs[4])


def _plain(node: Node) -> bool:
    usual = _STEPS[node.op_type]
    names = tuple(node.attribute("activations") or usual)
    return names in (usual, usual * 2) and not any(node.attribute(name, None) for name in _OTHERS)


def _walk(step: Step, x: Array, states: States, lengths: Array | None, settings: Recurrent) -> tuple[Array, States]:
    """Run ``step(direction, frame, states)``; past a sample's length its output is 0 and its state stays.

    Returns:
        all hidden states [length, directions, batch, hidden], and the last states [directions, batch, hidden].
    """
    every, ends = [], []
    for d in range(len(states[0])):
        now, shown = tuple(s[d] for s in states), np.zeros((len(x), *states[0].shape[1:]), x.dtype)
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
    return np.stack(every, 1), tuple(np.stack(parts) for parts in zip(*ends, strict=True))


def _begin(x: Array, r: Array, state: Array | None, layout: int) -> Array:
    if state is None:
        return np.zeros((r.shape[0], x.shape[1], r.shape[2]), x.dtype)
    return state.swapaxes(0, 1) if layout else state


def _results(y: Array, states: States, layout: int, outputs: int) -> Any:
    if layout:
        y, states = y.transpose(2, 0, 1, 3), tuple(s.swapaxes(0, 1) for s in states)
    return (y, *states)[:outputs]


def _refuse(kind: str, lengths: Array | None, settings: Recurrent) -> None:
    """Raise UnsupportedOperator for lengths with settings that only the fallback knows, which reads no lengths."""
    usual, names = _STEPS[kind], settings.activations
    names = usual if names is None else tuple(n.decode() if isinstance(n, bytes) else n for n in names)
    odd = [name for name in _OTHERS if getattr(settings, name)]
    odd += [] if names in (usual, usual * 2) else ["activations"]
    if lengths is not None and odd:
        raise UnsupportedOperator(
            f"{kind}: got sequence_lens with {', '.join(odd)}; expected the usual activations without clipping on the "
            "reference backend: use another one"
        )


@op("LSTM", when=_usual)
def lstm(x: Array, w: Array, r: Array, *operands: Array, settings: Recurrent, outputs: int = 3) -> Any:
    """Long short-term memory (Hochreiter & Schmidhuber 1997; peepholes: Gers & Schmidhuber 2000)."""
    (b, lengths, h0, c0, peepholes), layout = optional(operands, 5), settings.layout
    _refuse("LSTM", lengths, settings)
    x = x.swapaxes(0, 1) if layout else x
    directions, hidden = r.shape[0], r.shape[2]
    bias = np.zeros((directions, 8 * hidden), x.dtype) if b is None else b
    peep = np.zeros((directions, 3 * hidden), x.dtype) if peepholes is None else peepholes

    def step(d: int, frame: Array, states: States) -> States:
        (h, c), (pi, po, pf) = states, np.split(peep[d], 3)
        gates = frame @ w[d].T + h @ r[d].T + bias[d, : 4 * hidden] + bias[d, 4 * hidden :]
        i, o, f, g = np.split(gates, 4, axis=-1)
        i, f = sigmoid(i + pi * c), sigmoid(f + pf * c)
        c = f * c + i * np.tanh(g)
        return sigmoid(o + po * c) * np.tanh(c), c

    states = (_begin(x, r, h0, layout), _begin(x, r, c0, layout))
    return _results(*_walk(step, x, states, lengths, settings), layout, outputs)


@op("GRU", when=_usual)
def gru(x: Array, w: Array, r: Array, *operands: Array, settings: Recurrent, outputs: int = 2) -> Any:
    """Gated recurrent unit (Cho et al. 2014)."""
    (b, lengths, h0), layout = optional(operands, 3), settings.layout
    _refuse("GRU", lengths, settings)
    x = x.swapaxes(0, 1) if layout else x
    bias = np.zeros((r.shape[0], 6 * r.shape[2]), x.dtype) if b is None else b

    def step(d: int, frame: Array, states: States) -> States:
        (h,), (of_input, of_state) = states, np.split(bias[d], 2)
        xz, xr, xh = np.split(frame @ w[d].T + of_input, 3, axis=-1)
        (rz, rr, rh), (bz, br, bh) = np.split(r[d], 3), np.split(of_state, 3)
        z, reset = sigmoid(xz + h @ rz.T + bz), sigmoid(xr + h @ rr.T + br)
        inner = reset * (h @ rh.T + bh) if settings.linear_before_reset else (reset * h) @ rh.T + bh
        return ((1 - z) * np.tanh(xh + inner) + z * h,)

    return _results(*_walk(step, x, (_begin(x, r, h0, layout),), lengths, settings), layout, outputs)


@op("RNN", when=_usual)
def rnn(x: Array, w: Array, r: Array, *operands: Array, settings: Recurrent, outputs: int = 2) -> Any:
    """h = tanh(W x + R h + b) (Elman 1990)."""
    (b, lengths, h0), layout = optional(operands, 3), settings.layout
    _refuse("RNN", lengths, settings)
    x = x.swapaxes(0, 1) if layout else x
    hidden = r.shape[2]
    bias = np.zeros((r.shape[0], 2 * hidden), x.dtype) if b is None else b

    def step(d: int, frame: Array, states: States) -> States:
        return (np.tanh(frame @ w[d].T + states[0] @ r[d].T + bias[d, :hidden] + bias[d, hidden:]),)

    return _results(*_walk(step, x, (_begin(x, r, h0, layout),), lengths, settings), layout, outputs)
