"""Rules of pooling: maxima through the forward's Indices, averages by spreading each window's share."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import gradient_rule
from deep500.networks.gradients.rules.windows import Windows, overlap_add, windows

Gradients = Sequence[Value | None]


@gradient_rule("MaxPool", outputs=2)
def max_pool(g: GradContext) -> Gradients:
    """Add each window's gradient where its maximum was; disjoint windows need no addition."""
    x, dy = g.input(0), g.only_first_output()
    if g.attribute("storage_order"):
        g.refuse("storage_order=1 has no rule")
    w = windows(g, x, g.output(), g.attribute("kernel_shape"))
    return [g.scatter_back(g.output(1), dy, x, unique=w.disjoint)]


def _spread(g: GradContext, share: Value, w: Windows) -> Value:
    """Give every element the sum of the shares of the windows that it is in; one channel at a time."""
    x = g.input(0)
    tiles = w.size is not None and w.size == tuple(c * k for c, k in zip(w.count or (), w.kernel, strict=False))
    if tiles and w.strides == w.extent == w.kernel and not any(w.begin):
        sizes = [n for count in w.count or () for n in (count, 1)]
        full = [n for pair in zip(w.count or (), w.kernel, strict=True) for n in pair]
        parts = g.reshape_to(share, [(x, 0), (x, 1), *sizes])
        return g.reshape_like(g("Expand", parts, g.ints(1, 1, *full)), x)
    y = g.output()
    planes = g.reshape_to(share, [-1, 1, *((y, axis) for axis in w.axes)])
    ones = g.array(np.ones((1, 1, *w.kernel)))
    return g.reshape_like(overlap_add(g, planes, ones, w, x), x)


@gradient_rule("AveragePool")
def average_pool(g: GradContext) -> Gradients:
    """Each element of a window gets an equal share; what counts as element depends on ``count_include_pad``."""
    x, dy = g.input(0), g.grad()
    w = windows(g, x, g.output(), g.attribute("kernel_shape"))
    padded = bool(g.attribute("count_include_pad"))
    if w.size is None or w.count is None:
        if g.attribute("ceil_mode") or (not padded and any((*w.begin, *w.end))):
            g.refuse("windows that reach over the edge need known spatial sizes")
        return [_spread(g, dy / float(np.prod(w.kernel)), w)]
    members = w.members(padded)
    if all((m == m[0]).all() for m in members):
        return [_spread(g, dy / float(np.prod([m[0] for m in members])), w)]
    return [_spread(g, dy / g.array(functools.reduce(np.multiply.outer, members)), w)]


@gradient_rule("LpPool")
def lp_pool(g: GradContext) -> Gradients:
    """y = (sum |x|^p)^(1/p): dx = sign(x) |x|^(p-1) times the windows' dy y^(1-p)."""
    x, y, p = g.input(0), g.output(), g.attribute("p")
    w = windows(g, x, y, g.attribute("kernel_shape"))
    share = g.grad() * g("Pow", g.where(g("Equal", y, 0), 1, y), 1 - p)
    return [_spread(g, share, w) * g("Sign", x) * g("Pow", g("Abs", x), p - 1)]


@gradient_rule("GlobalAveragePool")
def global_average_pool(g: GradContext) -> Gradients:
    """An equal share to every position."""
    x = g.input(0)
    return [g.expand_like(g.grad() / g.count(x, range(2, g.rank(x))), x)]


@gradient_rule("GlobalMaxPool")
def global_max_pool(g: GradContext) -> Gradients:
    """To the maximum; equal ones share evenly."""
    x = g.input(0)
    wins = g.cast(g("Equal", x, g.output()))
    return [wins * (g.grad() / g.total(wins, range(2, g.rank(x)), keepdims=True))]


@gradient_rule("LRN")
def lrn(g: GradContext) -> Gradients:
    """y_c = x_c / s_c^beta with s = bias + alpha/size * (sum of x^2 over a window of channels), a banded matrix B:
    dx = dy s^-beta - 2 alpha beta / size * x * B^T(dy y / s)."""
    x, y, dy = g.input(0), g.output(), g.grad()
    size, alpha, beta = g.attribute("size"), g.attribute("alpha"), g.attribute("beta")
    channels = g.static(x, [1])
    if channels is None:
        g.refuse("LRN needs a known number of channels")
    offset = np.arange(channels[0]) - np.arange(channels[0])[:, None]  # column - row
    band = ((offset >= -((size - 1) // 2)) & (offset <= size // 2)).astype(float)

    def apply(matrix: np.ndarray, value: Value) -> Value:
        flat = g.reshape_to(value, [(x, 0), channels[0], -1])
        return g.reshape_like(g("MatMul", g.array(matrix), flat), x)

    s = apply(band, x * x) * (alpha / size) + g.attribute("bias")
    return [dy * g("Pow", s, -beta) - x * (2 * alpha * beta / size) * apply(band.T, dy * y / s)]
