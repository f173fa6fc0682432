"""LSTM, GRU and RNN: torch's fused kernels where they can say the same, else a loop over time written after ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from deep500.frameworks.pytorch.operators.table import op
from deep500.networks.execution.activations import gate_activations
from deep500.networks.execution.patterns import DOMAIN

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


def _flat_weights(w: Tensor, r: Tensor, b: Tensor | None, order: tuple[int, ...]) -> list[Tensor]:
    """Per direction: input weights, recurrent weights and, if any, the two biases, as torch's kernels want them.

    Where no gradient is wanted they are put into order once, until somebody writes to them.
    """
    state = [(t._version, t.data_ptr()) for t in (w, r, b) if t is not None]
    kept = not torch.is_grad_enabled() and not torch.compiler.is_compiling()
    if kept and (found := _ordered.get(w)) is not None and found[0] == state:
        return found[1]
    count = len(order)
    gates = [_reordered(w, order, count), _reordered(r, order, count)]
    if b is not None:
        gates += [_reordered(half, order, count) for half in b.chunk(2, 1)]
    flat = [part for direction in zip(*gates, strict=True) for part in direction]
    if kept:
        _ordered[w] = (state, flat)
    return flat


def _reordered(t: Tensor, order: tuple[int, ...], count: int) -> tuple[Tensor, ...]:
    """Of every direction the blocks of gates along the second axis, in another order."""
    blocks = t.chunk(count, 1)
    return torch.cat([blocks[i] for i in order], 1).unbind()


_ordered = WeakTensorKeyDictionary()  # weights of the input: what they and the others were, in torch's order


def _state(given: Tensor | None, x: Tensor, dirs: int, hidden: int, layout: int) -> Tensor:
    if given is None:
        return x.new_zeros(dirs, x.shape[1], hidden)
    return given.transpose(0, 1) if layout else given


def _results(y: Tensor, states: tuple[Tensor, ...], layout: int, outputs: tuple[bool, ...]) -> Any:
    """``y`` is ``[time, directions, batch, hidden]``, states are ``[directions, batch, hidden]``."""
    if layout:
        y, states = y.permute(2, 0, 1, 3), tuple(s.transpose(0, 1) for s in states)
    return (y, *states)[: len(outputs)] if len(outputs) > 1 else y


def _split(y: Tensor, dirs: int) -> Tensor:
    """torch's ``[time, batch, directions * hidden]`` as ONNX's ``[time, directions, batch, hidden]``."""
    return y.unflatten(2, (dirs, -1)).transpose(1, 2)


def _loop(
    step: Callable[[int, Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]],
    x: Tensor,
    states: tuple[Tensor, ...],
    lengths: Tensor | None,
    direction: str,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Run ``step(direction, x_t, states)`` over time; past a sample's length its output is 0 and its state stays."""
    ys, ends = [], []
    steps = torch.arange(x.shape[0], device=x.device)
    for d in range(states[0].shape[0]):
        backward = direction == "reverse" or d == 1
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


def _bound(clip: float | None) -> Callable[[Tensor], Tensor]:
    return (lambda x: x) if clip is None else (lambda x: torch.clamp(x, -clip, clip))


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
    direction: str = "forward",
    hidden_size: int | None = None,
    layers: int = 1,
    layout: int = 0,
    outputs: tuple[bool, ...] = (True, False, False),
) -> Any:
    """LSTM on weights in torch's order of gates, four of each direction of each layer."""
    x, count = x.transpose(0, 1) if layout else x, len(flat) // 4
    states = [_state(s, x, count, flat[1].shape[1], layout).contiguous() for s in (h, c)]
    y, ends = _fused(torch._VF.lstm, x, states, list(flat), True, direction, layers)
    return _results(_split(y, count // layers), ends, layout, outputs)


@op("OrderedGRU", domain=DOMAIN)
def ordered_gru(
    x: Tensor,
    h: Tensor | None,
    *flat: Tensor,
    direction: str = "forward",
    hidden_size: int | None = None,
    layers: int = 1,
    layout: int = 0,
    linear_before_reset: int = 1,
    outputs: tuple[bool, ...] = (True, False),
) -> Any:
    """GRU likewise."""
    x, count = x.transpose(0, 1) if layout else x, len(flat) // 4
    state = _state(h, x, count, flat[1].shape[1], layout).contiguous()
    y, ends = _fused(torch._VF.gru, x, state, list(flat), True, direction, layers)
    return _results(_split(y, count // layers), ends, layout, outputs)


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
    outputs: tuple[bool, ...] = (True, False, False),
) -> Any:
    x = x.transpose(0, 1) if layout else x
    dirs, hidden = w.shape[0], r.shape[2]
    states = (_state(h, x, dirs, hidden, layout), _state(c, x, dirs, hidden, layout))
    plain = activations is None or tuple(activations) == ("Sigmoid", "Tanh", "Tanh") * dirs
    if plain and lengths is None and p is None and clip is None and not input_forget:
        flat = _flat_weights(w, r, b, _IOFC_TO_IFCO)
        y, ends = _fused(torch._VF.lstm, x, [s.contiguous() for s in states], flat, b is not None, direction)
        return _results(_split(y, dirs), ends, layout, outputs)
    functions = gate_activations(
        ACTIVATIONS, activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh", "Tanh") * dirs
    )
    bound = _bound(clip)

    def step(d: int, xt: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        f, g, k = functions[3 * d : 3 * d + 3]
        ht, ct = state
        bias = None if b is None else b[d].unflatten(0, (2, -1)).sum(0)
        i, o, forget, cell = (F.linear(xt, w[d], bias) + F.linear(ht, r[d])).chunk(4, 1)
        pi, po, pf = (0, 0, 0) if p is None else p[d].chunk(3)
        gate = f(bound(i + pi * ct))
        keep = 1 - gate if input_forget else f(bound(forget + pf * ct))
        ct = keep * ct + gate * g(bound(cell))
        return f(bound(o + po * ct)) * k(ct), ct

    y, ends = _loop(step, x, states, lengths, direction)
    return _results(y, ends, layout, outputs)


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
    outputs: tuple[bool, ...] = (True, False),
) -> Any:
    x = x.transpose(0, 1) if layout else x
    dirs, hidden = w.shape[0], r.shape[2]
    state = _state(h, x, dirs, hidden, layout)
    plain = activations is None or tuple(activations) == ("Sigmoid", "Tanh") * dirs
    if plain and lengths is None and clip is None and linear_before_reset:
        flat = _flat_weights(w, r, b, _ZRH_TO_RZN)
        y, ends = _fused(torch._VF.gru, x, state.contiguous(), flat, b is not None, direction)
        return _results(_split(y, dirs), ends, layout, outputs)
    functions = gate_activations(
        ACTIVATIONS, activations, activation_alpha, activation_beta, ("Sigmoid", "Tanh") * dirs
    )
    bound = _bound(clip)

    def step(d: int, xt: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        f, g = functions[2 * d : 2 * d + 2]
        ht = states[0]
        bw, br = (None, None) if b is None else b[d].chunk(2)
        (xz, xr, xh), (rz, rr, rh) = F.linear(xt, w[d], bw).chunk(3, 1), r[d].chunk(3)
        bz, bq, bh = (None, None, None) if br is None else br.chunk(3)
        z = f(bound(xz + F.linear(ht, rz, bz)))
        q = f(bound(xr + F.linear(ht, rr, bq)))
        inner = q * F.linear(ht, rh, bh) if linear_before_reset else F.linear(q * ht, rh, bh)
        return ((1 - z) * g(bound(xh + inner)) + z * ht,)

    y, ends = _loop(step, x, (state,), lengths, direction)
    return _results(y, ends, layout, outputs)


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
    outputs: tuple[bool, ...] = (True, False),
) -> Any:
    x = x.transpose(0, 1) if layout else x
    dirs, hidden = w.shape[0], r.shape[2]
    names = tuple(activations or ("Tanh",))[:dirs]
    names *= dirs if len(names) == 1 else 1
    functions = gate_activations(ACTIVATIONS, names, activation_alpha, activation_beta, ())
    bound = _bound(clip)

    def step(d: int, xt: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        bw, br = (None, None) if b is None else b[d].chunk(2)
        return (functions[d](bound(F.linear(xt, w[d], bw) + F.linear(states[0], r[d], br))),)

    y, ends = _loop(step, x, (_state(h, x, dirs, hidden, layout),), lengths, direction)
    return _results(y, ends, layout, outputs)
