"""Rules of activation functions. At a kink the gradient is the one PyTorch takes (Relu at 0: 0)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.math import Unary, register_unary
from deep500.networks.gradients.rules.registry import gradient_rule


def _elu(g: GradContext, x: Value, y: Value, dy: Value) -> Value:
    return g.where(g("Greater", x, 0), dy, dy * (y + g.attribute("alpha")))


def _selu(g: GradContext, x: Value, y: Value, dy: Value) -> Value:
    gamma, alpha = g.attribute("gamma"), g.attribute("alpha")
    return g.where(g("Greater", x, 0), dy * gamma, dy * (y + gamma * alpha))


def _celu(g: GradContext, x: Value, y: Value, dy: Value) -> Value:
    return g.where(g("Greater", x, 0), dy, dy * (y / g.attribute("alpha") + 1))


def _hard_sigmoid(g: GradContext, x: Value, y: Value, dy: Value) -> Value:
    inside = g("And", g("Greater", y, 0), g("Less", y, 1))
    return g.where(inside, dy * g.attribute("alpha"), 0)


def _hard_swish(g: GradContext, x: Value, y: Value, dy: Value) -> Value:
    between = g.where(g("Greater", x, -3), dy * (x / 3 + 0.5), 0)
    return g.where(g("Less", x, 3), between, dy)


def _gelu(g: GradContext, x: Value, y: Value, dy: Value) -> Value:
    """x Phi(x), Phi the normal distribution; or its tanh form (Hendrycks and Gimpel 2016, arXiv 1606.08415)."""
    if g.attribute("approximate") == "tanh":
        scale, cubic = math.sqrt(2 / math.pi), 0.044715
        square = x * x
        t = g("Tanh", x * (square * (scale * cubic) + scale))
        slope = (1 - t * t) * (square * (3 * scale * cubic) + scale)
        return dy * 0.5 * (1 + t + x * slope)
    distribution = (g("Erf", x * math.sqrt(0.5)) + 1) * 0.5
    density = g("Exp", x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return dy * (distribution + x * density)


def _mish(g: GradContext, x: Value, y: Value, dy: Value) -> Value:
    t = g("Tanh", g("Softplus", x))
    return dy * (t + x * (1 - t * t) * g("Sigmoid", x))


def _swish(g: GradContext, x: Value, y: Value, dy: Value) -> Value:
    alpha = g.attribute("alpha", 1.0)
    s = g("Sigmoid", x if alpha == 1 else x * alpha)
    return dy * (s + (y if alpha == 1 else y * alpha) * (1 - s))


def _softsign(g: GradContext, x: Value, y: Value, dy: Value) -> Value:
    root = g("Abs", x) + 1
    return dy / (root * root)


ACTIVATIONS: dict[str, Unary] = {
    "Relu": lambda g, x, y, dy: g.where(g("Greater", y, 0), dy, 0),
    "LeakyRelu": lambda g, x, y, dy: g.where(g("Greater", x, 0), dy, dy * g.attribute("alpha")),
    "ThresholdedRelu": lambda g, x, y, dy: g.where(g("Greater", x, g.attribute("alpha")), dy, 0),
    "Shrink": lambda g, x, y, dy: g.where(g("Greater", g("Abs", x), g.attribute("lambd")), dy, 0),
    "Elu": _elu,
    "Selu": _selu,
    "Celu": _celu,
    "Sigmoid": lambda g, x, y, dy: dy * y * (1 - y),
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "Softplus": lambda g, x, y, dy: dy * g("Sigmoid", x),
    "Softsign": _softsign,
    "Gelu": _gelu,
    "Mish": _mish,
    "Swish": _swish,
}
register_unary(ACTIVATIONS)


@gradient_rule("PRelu")
def prelu(g: GradContext) -> Sequence[Value | None]:
    """x, or slope * x where x is not positive."""
    dy, x, slope = g.grad(), g.input(0), g.input(1)
    positive = g("Greater", x, 0)
    return [
        g.where(positive, dy, dy * slope) if g.needs(0) else None,
        g.unbroadcast(g.where(positive, 0, dy * x), slope) if g.needs(1) else None,
    ]


@gradient_rule("Softmax")
def softmax(g: GradContext) -> Sequence[Value | None]:
    """dx = y * (dy - sum(dy * y)); 0 where y is NaN (all of x is -inf) and a Where behind puts something else there."""
    dy, y, axis = g.grad(), g.output(), g.attribute("axis")
    readers = g.emitter.network.consumers
    direct = readers(str(y))
    behind = [reader for node in direct if node.op_type == "Cast" for reader in readers(node.outputs[0])]
    if any(node.op_type == "Where" for node in (*direct, *behind)):
        y = g.where(g("IsNaN", y), 0, y)
    return [y * (dy - g.total(dy * y, [axis], keepdims=True))]


@gradient_rule("LogSoftmax")
def log_softmax(g: GradContext) -> Sequence[Value | None]:
    """dx = dy - exp(y) * sum(dy)."""
    dy, y, axis = g.grad(), g.output(), g.attribute("axis")
    return [dy - g("Exp", y) * g.total(dy, [axis], keepdims=True)]


@gradient_rule("Dropout", outputs=2, refused={1: "the ratio"})
def dropout(g: GradContext) -> Sequence[Value | None]:
    """The forward mask again, scaled by 1 / (1 - ratio); the identity where training_mode is false."""
    dy, mode = g.only_first_output(), g.optional(2)
    training = None if mode is None else g.known(mode)
    if mode is None or (training is not None and not training.any()):
        return [dy]
    scale = 1 / (1 - g.cast(g.input(1))) if g.optional(1) else g.scalar(2)  # the ratio may be fed anew
    if training is None:
        scale = g.where(mode, scale, 1)
    return [g.where(g.output(1), dy * scale, 0)]
