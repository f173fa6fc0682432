"""LSTM, GRU and RNN after ONNX's equations, for the tensors of any framework: their activations, and one step of each.

A backend supplies arithmetic, what inputs contribute to a step, and the loop over time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from deep500.networks.attributes import Recurrent

States: TypeAlias = tuple[Any, ...]
Step: TypeAlias = Callable[[int, Any, States], States]
"""``step(direction, x_t, states) -> new states``, of which the first is the output."""
Gates: TypeAlias = Callable[[int, Any, Any], Any]
"""``gates(direction, x_t, h)``: the products with both and all biases."""

_SINGLE = {"LeakyRelu": float(np.float32(0.01)), "HardSigmoid": float(np.float32(0.2))}  # as attributes hold numbers
ALPHA = {**_SINGLE, "ThresholdedRelu": 1.0, "Elu": 1.0, "ScaledTanh": 1.0, "Affine": 1.0}
"""Default alpha of the activations that have one."""
BETA = {"HardSigmoid": 0.5, "ScaledTanh": 1.0, "Affine": 0.0}
"""Default beta of the activations that have one."""


def gate_activations(
    functions: Mapping[str, Callable[[Any, float, float], Any]],
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    default: Sequence[str],
) -> list[Callable[[Any], Any]]:
    """The activation functions of all gates and directions, in order.

    Args:
        functions: of the backend, by ONNX's name, of a tensor, alpha and beta.
        names: the operator's ``activations``; those of ``default`` if there are none.
        alphas, betas: the operator's; handed in order to the activations that have such a number.
        default: names for all gates and directions.

    Example:
        >>> affine = {"Affine": lambda x, a, b: a * x + b, "Relu": lambda x, a, b: max(x, 0)}
        >>> first, second = gate_activations(affine, ["Relu", "Affine"], [2.0], None, ())
        >>> first(-1), second(3)
        (0, 6.0)
    """
    left, right = list(alphas or ()), list(betas or ())
    chosen: list[Any] = []
    for name in names or default:
        a = left.pop(0) if name in ALPHA and left else ALPHA.get(name, 0.0)
        b = right.pop(0) if name in BETA and right else BETA.get(name, 0.0)
        chosen.append(lambda x, f=functions[name], a=a, b=b: f(x, a, b))
    return chosen


class CellArithmetic(NamedTuple):
    """Functions of a framework that steps are made of.

    Attributes:
        split: ``split(x, parts, axis)``.
        linear: ``linear(x, w, b)`` is ``x w^T + b``; b may be None.
        added: ``added(y, x, w, b)`` is ``y + x w^T + b``.
        clip: ``clip(x, limit)`` lies between ``-limit`` and ``limit``.
        activations: by ONNX's names, of a tensor, alpha and beta.
    """

    split: Callable[[Any, int, int], Sequence[Any]]
    linear: Callable[[Any, Any, Any], Any]
    added: Callable[[Any, Any, Any, Any], Any]
    clip: Callable[[Any, float], Any]
    activations: Mapping[str, Callable[[Any, float, float], Any]]

    def functions(self, settings: Recurrent, names: Sequence[str], dirs: int) -> list[Callable[[Any], Any]]:
        """Activations of all gates and directions; ``names`` are those of one direction by default."""
        chosen = settings.activations
        if len(names) == 1 and chosen is not None:  # an RNN's may be named once for both directions
            chosen = tuple(chosen)[:dirs] * (dirs if len(tuple(chosen)[:dirs]) == 1 else 1)
        alphas, betas = settings.activation_alpha, settings.activation_beta
        return gate_activations(self.activations, chosen, alphas, betas, tuple(names) * dirs)

    def bound(self, settings: Recurrent) -> Callable[[Any], Any]:
        """Clipping before an activation, where the operator asks for it."""
        limit = settings.clip
        return (lambda x: x) if limit is None else (lambda x: self.clip(x, limit))


LSTM, GRU, RNN = ("Sigmoid", "Tanh", "Tanh"), ("Sigmoid", "Tanh"), ("Tanh",)
"""Usual activations of one direction."""


def lstm_step(a: CellArithmetic, settings: Recurrent, gates: Gates, dirs: int, peepholes: Any) -> Step:
    """One step of an LSTM (Hochreiter & Schmidhuber 1997; peepholes: Gers & Schmidhuber 2000)."""
    functions, bound = a.functions(settings, LSTM, dirs), a.bound(settings)

    def step(d: int, xt: Any, states: States) -> States:
        f, g, k = functions[3 * d : 3 * d + 3]
        ht, ct = states
        i, o, forget, cell = a.split(gates(d, xt, ht), 4, 1)
        pi, po, pf = (None, None, None) if peepholes is None else a.split(peepholes[d], 3, 0)
        gate = f(bound(i if pi is None else i + pi * ct))
        keep = 1 - gate if settings.input_forget else f(bound(forget if pf is None else forget + pf * ct))
        ct = keep * ct + gate * g(bound(cell))
        return f(bound(o if po is None else o + po * ct)) * k(ct), ct

    return step


def gru_step(a: CellArithmetic, settings: Recurrent, inputs: Callable[[int, Any], Any], r: Any, biases: Any) -> Step:
    """One step of a GRU (Cho et al. 2014).

    Args:
        a: of the framework.
        settings: of the operator.
        inputs: ``inputs(direction, x_t)``, the product with the input and its bias.
        r: recurrent weights [directions, 3 hidden, hidden].
        biases: of the recurrence, by direction; None where there are none.
    """
    functions, bound = a.functions(settings, GRU, r.shape[0]), a.bound(settings)

    def step(d: int, xt: Any, states: States) -> States:
        f, g = functions[2 * d : 2 * d + 2]
        ht = states[0]
        (xz, xr, xh), (rz, rr, rh) = a.split(inputs(d, xt), 3, 1), a.split(r[d], 3, 0)
        bz, bq, bh = (None, None, None) if biases is None else a.split(biases[d], 3, 0)
        z = f(bound(a.added(xz, ht, rz, bz)))
        q = f(bound(a.added(xr, ht, rr, bq)))
        inner = q * a.linear(ht, rh, bh) if settings.linear_before_reset else a.linear(q * ht, rh, bh)
        return ((1 - z) * g(bound(xh + inner)) + z * ht,)

    return step


def rnn_step(a: CellArithmetic, settings: Recurrent, gates: Gates, dirs: int) -> Step:
    """One step of a plain recurrent network (Elman 1990)."""
    functions, bound = a.functions(settings, RNN, dirs), a.bound(settings)
    return lambda d, xt, states: (functions[d](bound(gates(d, xt, states[0]))),)
