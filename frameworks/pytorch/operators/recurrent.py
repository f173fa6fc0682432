"""LSTM, GRU and RNN: torch's fused kernels where they can say the same, else a loop over time written after ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from deep500.frameworks.pytorch.operators.table import op
from deep500.networks.attributes import Recurrent
from deep500.networks.execution.operator_table import optional
from deep500.networks.execution.patterns import DOMAIN
from deep500.networks.execution.recurrent import GRU, LSTM, CellArithmetic, Step, gru_step, lstm_step, rnn_step

Tensor = torch.Tensor
_IOFC_TO_IFCO = (0, 2, 3, 1)  # ONNX's order of the LSTM's gates to torch's (torch calls the cell gate g)
_ZRH_TO_RZN = (1, 0, 2)
ACTIVATIONS: dict[str, Callable[[Tensor, float, float], Tensor]] = {
    "Relu": lambda x, a, b: torch.relu(x),
    "Tanh": lambda x, a, b: torch.tanh(x),
    "Sigmoid": lambda x, a, b: torch.sigmoid(x),
    "Affine": lambda x, a, b: a * x + b,
    "LeakyRelu": lambda x, a, b: F.leaky_relu(x, a),
    "ThresholdedRelu": lambda x, a, b: torch.where(x > a, x, torch.zeros_like(x)),
    "ScaledTanh": lambda x, a, b: a * torch.tanh(b * x),
    "HardSigmoid": lambda x, a, b: torch.clamp(a * x + b, 0, 1),
    "Elu": lambda x, a, b: F.elu(x, a),
    "Softsign": lambda x, a, b: F.softsign(x),
    "Softplus": lambda x, a, b: F.softplus(x, threshold=40),
}

ARITHMETIC = CellArithmetic(
    lambda x, parts, axis: x.chunk(parts, axis),
    F.linear,
    lambda y, x, w, b: y + F.linear(x, w, b),
    lambda x, limit: torch.clamp(x, -limit, limit),
    ACTIVATIONS,
)


def _flat_weights(w: Tensor, r: Tensor, b: Tensor | None, order: tuple[int, ...]) -> list[Tensor]:
    """Per direction: input weights, recurrent weights and, if any, the two biases, as torch's kernels want them.

    Where no gradient is wanted they are put into order once, until somebody writes to them.
    """
    state = [(t._version, t.data_ptr()) for t in (w, r, b) if t is not None]
    fixed = not torch.is_grad_enabled() and not torch.compiler.is_compiling()
    if fixed and (known := _ordered.get(w)) is not None and known[0] == state:
        return known[1]
    count = len(order)
    gates = [_reordered(w, order, count), _reordered(r, order, count)]
    if b is not None:
        gates += [_reordered(half, order, count) for half in b.chunk(2, 1)]
    flat = [part for direction in zip(*gates, strict=True) for part in direction]
    if fixed:
        _ordered[w] = (state, flat)
    return flat


def _reordered(t: Tensor, order: tuple[int, ...], count: int) -> tuple[Tensor, ...]:
    """Of every direction the blocks of gates along the second axis, in another order."""
    blocks = t.chunk(count, 1)
    return torch.cat([blocks[i] for i in order], 1).unbind()


_ordered = WeakTensorKeyDictionary()  # weights of the input: what they and the others were, in torch's order


def _state(state: Tensor | None, x: Tensor, dirs: int, hidden: int, layout: int) -> Tensor:
    if state is None:
        return x.new_zeros(dirs, x.shape[1], hidden)
    return state.transpose(0, 1) if layout else state


def _results(y: Tensor, states: tuple[Tensor, ...], layout: int, outputs: tuple[bool, ...]) -> Any:
    """``y`` is ``[time, directions, batch, hidden]``, states are ``[directions, batch, hidden]``."""
    if layout:
        y, states = y.permute(2, 0, 1, 3), tuple(s.transpose(0, 1) for s in states)
    return (y, *states)[: len(outputs)] if len(outputs) > 1 else y


def _split(y: Tensor, dirs: int) -> Tensor:
    """torch's ``[time, batch, directions * hidden]`` as ONNX's ``[time, directions, batch, hidden]``."""
    return y.unflatten(2, (dirs, -1)).transpose(1, 2)


def _loop(
    step: Step, x: Tensor, states: tuple[Tensor, ...], lengths: Tensor | None, settings: Recurrent
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run a step over time; past a sample's length its output is 0 and its state stays."""
    ys, ends = [], []
    steps = torch.arange(x.shape[0], device=x.device)
    for d in range(states[0].shape[0]):
        backward = settings.backward(d)
        state, y = tuple(s[d] for s in states), [x.new_zeros(())] * x.shape[0]
        for t in reversed(range(x.shape[0])) if backward else range(x.shape[0]):
            new = step(d, x[t], state)
            if lengths is not None:
                alive = (steps[t] < lengths).unsqueeze(1)
                y[t] = torch.where(alive, new[0], torch.zeros_like(new[0]))
                new = tuple(torch.where(alive, n, s) for n, s in zip(new, state, strict=True))
            else:
                y[t] = new[0]
            state = new
        ys.append(torch.stack(y))
        ends.append(state)
    finals = tuple(torch.stack([end[i] for end in ends]) for i in range(len(states)))
    return torch.stack(ys, 1), finals


def _fused(
    function: Any, x: Tensor, states: Any, flat: list[Tensor], biased: bool, direction: str, layers: int = 1
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """torch's own function on ``[time, batch, size]``: all outputs, and the last states."""
    reverse = direction == "reverse"
    both = direction == "bidirectional"
    trains = torch.is_grad_enabled()  # cuDNN keeps what a gradient needs only if it is told so; dropout is 0
    y, *ends = function(x.flip(0) if reverse else x, states, flat, biased, layers, 0.0, trains, both, False)
    return y.flip(0) if reverse else y, tuple(ends)


@op("OrderedLSTM", domain=DOMAIN)
def ordered_lstm(
    x: Tensor,
    h: Tensor | None,
    c: Tensor | None,
    *flat: Tensor,
    settings: Recurrent,
    outputs: tuple[bool, ...] = (True, False, False),
) -> Any:
    """LSTM on weights in torch's order of gates, four of each direction of each layer."""
    layout, layers, count = settings.layout, settings.layers, len(flat) // 4
    x = x.transpose(0, 1) if layout else x
    states = [_state(s, x, count, flat[1].shape[1], layout).contiguous() for s in (h, c)]
    y, ends = _fused(torch._VF.lstm, x, states, list(flat), True, settings.direction, layers)
    return _results(_split(y, count // layers), ends, layout, outputs)


@op("OrderedGRU", domain=DOMAIN)
def ordered_gru(
    x: Tensor, h: Tensor | None, *flat: Tensor, settings: Recurrent, outputs: tuple[bool, ...] = (True, False)
) -> Any:
    """GRU likewise."""
    layout, layers, count = settings.layout, settings.layers, len(flat) // 4
    x = x.transpose(0, 1) if layout else x
    state = _state(h, x, count, flat[1].shape[1], layout).contiguous()
    y, ends = _fused(torch._VF.gru, x, state, list(flat), True, settings.direction, layers)
    return _results(_split(y, count // layers), ends, layout, outputs)


def _is_usual(settings: Recurrent, names: tuple[str, ...], dirs: int) -> bool:
    """Whether activations are those of torch's kernels, and nothing is clipped or coupled."""
    usual = settings.activations is None or tuple(settings.activations) == names * dirs
    return usual and settings.clip is None and not settings.input_forget


@op("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    *operands: Tensor,
    settings: Recurrent,
    outputs: tuple[bool, ...] = (True, False, False),
) -> Any:
    b, lengths, h, c, p = optional(operands, 5)
    layout, dirs, hidden = settings.layout, w.shape[0], r.shape[2]
    x = x.transpose(0, 1) if layout else x
    states = (_state(h, x, dirs, hidden, layout), _state(c, x, dirs, hidden, layout))
    if _is_usual(settings, LSTM, dirs) and lengths is None and p is None:
        flat = _flat_weights(w, r, b, _IOFC_TO_IFCO)
        y, ends = _fused(torch._VF.lstm, x, [s.contiguous() for s in states], flat, b is not None, settings.direction)
        return _results(_split(y, dirs), ends, layout, outputs)

    def gates(d: int, xt: Tensor, ht: Tensor) -> Tensor:
        bias = None if b is None else b[d].unflatten(0, (2, -1)).sum(0)
        return F.linear(xt, w[d], bias) + F.linear(ht, r[d])

    y, ends = _loop(lstm_step(ARITHMETIC, settings, gates, dirs, p), x, states, lengths, settings)
    return _results(y, ends, layout, outputs)


@op("GRU")
def gru(
    x: Tensor, w: Tensor, r: Tensor, *operands: Tensor, settings: Recurrent, outputs: tuple[bool, ...] = (True, False)
) -> Any:
    b, lengths, h = optional(operands, 3)
    layout, dirs, hidden = settings.layout, w.shape[0], r.shape[2]
    x = x.transpose(0, 1) if layout else x
    state = _state(h, x, dirs, hidden, layout)
    if _is_usual(settings, GRU, dirs) and lengths is None and settings.linear_before_reset:
        flat = _flat_weights(w, r, b, _ZRH_TO_RZN)
        y, ends = _fused(torch._VF.gru, x, state.contiguous(), flat, b is not None, settings.direction)
        return _results(_split(y, dirs), ends, layout, outputs)
    of_input, of_state = (None, None) if b is None else b.chunk(2, 1)

    def inputs(d: int, xt: Tensor) -> Tensor:
        return F.linear(xt, w[d], None if of_input is None else of_input[d])

    y, ends = _loop(gru_step(ARITHMETIC, settings, inputs, r, of_state), x, (state,), lengths, settings)
    return _results(y, ends, layout, outputs)


@op("RNN")
def rnn(
    x: Tensor, w: Tensor, r: Tensor, *operands: Tensor, settings: Recurrent, outputs: tuple[bool, ...] = (True, False)
) -> Any:
    b, lengths, h = optional(operands, 3)
    layout, dirs, hidden = settings.layout, w.shape[0], r.shape[2]
    x = x.transpose(0, 1) if layout else x

    def gates(d: int, xt: Tensor, ht: Tensor) -> Tensor:
        bw, br = (None, None) if b is None else b[d].chunk(2)
        return F.linear(xt, w[d], bw) + F.linear(ht, r[d], br)

    states = (_state(h, x, dirs, hidden, layout),)
    y, ends = _loop(rnn_step(ARITHMETIC, settings, gates, dirs), x, states, lengths, settings)
    return _results(y, ends, layout, outputs)
