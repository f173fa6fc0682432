"""Rules of normalisations, all from one formula (Ioffe and Szegedy 2015, arXiv 1502.03167).

With xhat = (x - mean) / sd over some axes of n elements, sd = sqrt(var + epsilon), and d = the gradient of xhat:
dx = (d - mean(d) - xhat * mean(d * xhat)) / sd.
"""

from __future__ import annotations

from collections.abc import Sequence

from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import gradient_rule

Gradients = Sequence[Value | None]


def _mean(g: GradContext, value: Value, axes: Sequence[int]) -> Value:
    return g("ReduceMean", value, g.ints(*axes), keepdims=1)


def _standardise(g: GradContext, x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """(x - mean, 1 / sd) over axes, with the node's epsilon."""
    centred = x - _mean(g, x, axes)
    variance = _mean(g, centred * centred, axes)
    return centred, g("Reciprocal", g("Sqrt", variance + g.attribute("epsilon")))


def _through(g: GradContext, d: Value, xhat: Value, inverse_sd: Value, axes: Sequence[int]) -> Value:
    """The formula above."""
    return (d - _mean(g, d, axes) - xhat * _mean(g, d * xhat, axes)) * inverse_sd


def _per_channel(g: GradContext, value: Value, x: Value) -> Value:
    """[C] as [C, 1, ...], to broadcast against x: [N, C, ...]."""
    ones = g.rank(x) - 2
    return value if ones == 0 else g.reshape_to(value, [(x, 1), *[1] * ones])


@gradient_rule("BatchNormalization")
def batch_normalization(g: GradContext) -> Gradients:
    """In training mode statistics are functions of the batch; in evaluation mode the operator is an affine map."""
    return _batch_training(g) if g.attribute("training_mode") else _batch_evaluation(g)


def _batch_training(g: GradContext) -> Gradients:
    """dX = g/sd * (dY - dB/n - (X - mean)/sd * dG/n), with dB = sum dY, dG = sum dY * xhat.

    The running statistics do not influence Y: their gradient is zero.
    """
    x, scale, dy = g.input(0), g.input(1), g.only_first_output()
    axes = [0, *range(2, g.rank(x))]
    bias_gradient = g.total(dy, axes)
    if not g.needs(0) and not g.needs(1):
        return [None, None, bias_gradient]
    centred, inverse_sd = _standardise(g, x, axes)
    inverse = g("Squeeze", inverse_sd, g.ints(*axes))
    scale_gradient = g.total(dy * centred, axes) * inverse
    if not g.needs(0):
        return [None, scale_gradient, bias_gradient]
    slope = scale * inverse
    n = g.count(x, axes)
    toward_x = -(slope * inverse * scale_gradient / n)
    offset = -(slope * bias_gradient / n)
    slope, toward_x, offset = (_per_channel(g, v, x) for v in (slope, toward_x, offset))
    return [slope * dy + toward_x * centred + offset, scale_gradient, bias_gradient]


def _batch_evaluation(g: GradContext) -> Gradients:
    """y = (x - mean) * scale / sqrt(var + epsilon) + bias."""
    x, scale, mean, variance, dy = g.input(0), g.input(1), g.input(3), g.input(4), g.only_first_output()
    axes = [0, *range(2, g.rank(x))]
    inverse = g("Reciprocal", g("Sqrt", variance + g.attribute("epsilon")))
    slope = scale * inverse
    dx = dy * _per_channel(g, slope, x) if g.needs(0) else None
    bias_gradient = g.total(dy, axes)
    if not any(map(g.needs, (1, 3, 4))):
        return [dx, None, bias_gradient]
    along = g.total(dy * (x - _per_channel(g, mean, x)), axes)
    return [
        dx,
        along * inverse,
        bias_gradient,
        -(slope * bias_gradient) if g.needs(3) else None,
        along * slope * inverse * inverse * -0.5 if g.needs(4) else None,
    ]


@gradient_rule("InstanceNormalization")
def instance_normalization(g: GradContext) -> Gradients:
    """Per sample and channel, over the spatial axes."""
    x, scale, dy = g.input(0), g.input(1), g.grad()
    axes = list(range(2, g.rank(x)))
    centred, inverse_sd = _standardise(g, x, axes)
    xhat = centred * inverse_sd
    return [
        _through(g, dy * _per_channel(g, scale, x), xhat, inverse_sd, axes) if g.needs(0) else None,
        g.total(dy * xhat, [0, *axes]) if g.needs(1) else None,
        g.total(dy, [0, *axes]) if g.needs(2) else None,
    ]


@gradient_rule("GroupNormalization")
def group_normalization(g: GradContext) -> Gradients:
    """Per sample and group of channels: the same over [N, groups, everything else]."""
    x, scale, dy = g.input(0), g.input(1), g.grad()
    grouped = [(x, 0), g.attribute("num_groups"), -1]
    centred, inverse_sd = _standardise(g, g.reshape_to(x, grouped), [2])
    xhat = centred * inverse_sd
    dx = None
    if g.needs(0):
        d = g.reshape_to(dy * _per_channel(g, scale, x), grouped)
        dx = g.reshape_like(_through(g, d, xhat, inverse_sd, [2]), x)
    others = [0, *range(2, g.rank(x))]
    return [
        dx,
        g.total(dy * g.reshape_like(xhat, x), others) if g.needs(1) else None,
        g.total(dy, others) if g.needs(2) else None,
    ]


@gradient_rule("LayerNormalization")
def layer_normalization(g: GradContext) -> Gradients:
    """Over the last axes, from ``axis`` on."""
    x, scale, dy = g.input(0), g.input(1), g.only_first_output()
    rank = g.rank(x)
    axes = list(range(g.attribute("axis") % rank, rank))
    centred, inverse_sd = _standardise(g, x, axes)
    xhat = centred * inverse_sd
    return [
        _through(g, dy * scale, xhat, inverse_sd, axes) if g.needs(0) else None,
        g.unbroadcast(dy * xhat, scale) if g.needs(1) else None,
        g.unbroadcast(dy, g.input(2)) if g.needs(2) else None,
    ]


@gradient_rule("RMSNormalization")
def rms_normalization(g: GradContext) -> Gradients:
    """Like LayerNormalization without the mean (Zhang and Sennrich 2019, arXiv 1910.07467)."""
    x, scale, dy = g.input(0), g.input(1), g.grad()
    rank = g.rank(x)
    axes = list(range(g.attribute("axis") % rank, rank))
    inverse_rms = g("Reciprocal", g("Sqrt", _mean(g, x * x, axes) + g.attribute("epsilon")))
    xhat = x * inverse_rms
    d = dy * scale
    return [
        (d - xhat * _mean(g, d * xhat, axes)) * inverse_rms if g.needs(0) else None,
        g.unbroadcast(dy * xhat, scale) if g.needs(1) else None,
    ]


@gradient_rule("LpNormalization")
def lp_normalization(g: GradContext) -> Gradients:
    """y = x / |x|_p: dx = (dy - d|x|_p/dx * sum(dy * y)) / |x|_p, where d|x|_p/dx is y for p = 2, sign(x) for p = 1."""
    x, y, dy = g.input(0), g.output(), g.grad()
    axis, p = g.attribute("axis"), g.attribute("p")
    norm = g("ReduceL1" if p == 1 else "ReduceL2", x, g.ints(axis), keepdims=1)
    slope = g("Sign", x) if p == 1 else y
    return [(dy - slope * g.total(dy * y, [axis], keepdims=True)) / g.where(g("Equal", norm, 0), 1, norm)]
