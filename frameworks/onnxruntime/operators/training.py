"""ONNX's preview of training operators: update rules that ONNX Runtime's inference build lacks.

Inputs are R, T, then all parameters, all gradients, then the state of each kind; outputs are the parameters and states.
Formulas: those of ONNX's schemas of ai.onnx.preview.training.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from deep500.frameworks.onnxruntime.operators.table import ExpansionEmitter, expansion
from deep500.tensors import dtype_to_onnx

_DOMAIN = "ai.onnx.preview.training"
_Rule = Callable[[ExpansionEmitter, str, str, list[str]], list[str]]


def _for_parameters(op: ExpansionEmitter, kinds: int, rule: _Rule) -> dict[str, str]:
    """Apply a rule to each parameter; ``kinds`` counts parameter, gradient and states."""
    count = (len(op.node.inputs) - 2) // kinds
    rows = [op.node.inputs[2 + k * count : 2 + (k + 1) * count] for k in range(kinds)]
    taken: dict[str, str] = {}
    for i, row in enumerate(zip(*rows, strict=True)):
        results = rule(op, row[0], row[1], list(row[2:]))
        taken.update({op.node.outputs[k * count + i]: value for k, value in enumerate(results)})
    return taken


def _number(op: ExpansionEmitter, value: float) -> str:
    return op.like(value, 2)


def _decayed(op: ExpansionEmitter, x: str, g: str) -> str:
    norm = float(op.node.attribute("norm_coefficient", 0.0))
    return op("Add", op("Mul", _number(op, norm), x), g) if norm else g


def _steps(op: ExpansionEmitter) -> str:
    """T as a floating number."""
    return op("Cast", op.node.inputs[1], to=dtype_to_onnx(op.dtype(2) or "float32"))


@expansion("Adagrad", domain=_DOMAIN)
def adagrad(op: ExpansionEmitter) -> dict[str, str]:
    """H += G^2; X -= r G / (sqrt(H) + epsilon), r = R / (1 + T decay)."""
    decay, epsilon = (float(op.node.attribute(n, 0.0)) for n in ("decay_factor", "epsilon"))
    rate = op("Div", op.node.inputs[0], op("Add", _number(op, 1.0), op("Mul", _steps(op), _number(op, decay))))

    def rule(op: ExpansionEmitter, x: str, g: str, states: list[str]) -> list[str]:
        g = _decayed(op, x, g)
        h = op("Add", states[0], op("Mul", g, g))
        step = op("Div", op("Mul", rate, g), op("Add", op("Sqrt", h), _number(op, epsilon)))
        return [op("Sub", x, step), h]

    return _for_parameters(op, 3, rule)


@expansion("Momentum", domain=_DOMAIN)
def momentum(op: ExpansionEmitter) -> dict[str, str]:
    """V = alpha V + b G; X -= R V, or R (G + alpha V) in Nesterov's mode; b is 1 at T = 0, else beta."""
    alpha, beta = (float(op.node.attribute(n)) for n in ("alpha", "beta"))
    first = op("Equal", op.node.inputs[1], op.constant(np.array(0, np.int64)))
    factor = op("Where", first, _number(op, 1.0), _number(op, beta))

    def rule(op: ExpansionEmitter, x: str, g: str, states: list[str]) -> list[str]:
        g = _decayed(op, x, g)
        v = op("Add", op("Mul", _number(op, alpha), states[0]), op("Mul", factor, g))
        step = op("Add", g, op("Mul", _number(op, alpha), v)) if op.node.attribute("mode") == "nesterov" else v
        return [op("Sub", x, op("Mul", op.node.inputs[0], step)), v]

    return _for_parameters(op, 3, rule)


@expansion("Adam", domain=_DOMAIN)
def adam(op: ExpansionEmitter) -> dict[str, str]:
    """First and second moments; at T > 0 the rate is corrected by sqrt(1 - beta^T) / (1 - alpha^T)."""
    alpha, beta, epsilon, after = (
        float(op.node.attribute(n, 0.0)) for n in ("alpha", "beta", "epsilon", "norm_coefficient_post")
    )
    unit, t = _number(op, 1.0), _steps(op)
    left = op("Sqrt", op("Sub", unit, op("Pow", _number(op, beta), t)))
    corrected = op("Div", left, op("Sub", unit, op("Pow", _number(op, alpha), t)))
    later = op("Greater", op.node.inputs[1], op.constant(np.array(0, np.int64)))
    rate = op("Mul", op.node.inputs[0], op("Where", later, corrected, unit))

    def rule(op: ExpansionEmitter, x: str, g: str, states: list[str]) -> list[str]:
        g = _decayed(op, x, g)
        v = _mixed(op, alpha, states[0], g)
        h = _mixed(op, beta, states[1], op("Mul", g, g))
        new = op("Sub", x, op("Div", op("Mul", rate, v), op("Add", op("Sqrt", h), _number(op, epsilon))))
        return [op("Mul", _number(op, 1 - after), new) if after else new, v, h]

    return _for_parameters(op, 4, rule)


def _mixed(op: ExpansionEmitter, share: float, old: str, new: str) -> str:
    return op("Add", op("Mul", _number(op, share), old), op("Mul", _number(op, 1 - share), new))
