"""Rules of convolutions (any number of spatial axes, groups, strides, dilations, pads).

With Y = Conv(X, W): dX = ConvTranspose(dY, W), and dW = the convolution of X by dY in which sample and channel axes are
exchanged, and so are **strides and dilations**: dW[k] = sum over o of X[o * stride + k * dilation] dY[o].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.gradients.rules.registry import gradient_rule
from deep500.networks.gradients.rules.windows import Windows, overlap_add, windows


def _kernel(g: GradContext) -> tuple[int, ...]:
    weight = g.input(1)
    known = g.attribute("kernel_shape") or g.static(weight, list(range(2, g.rank(weight))))
    return tuple(known) if known else g.refuse("the kernel's size is unknown")


def _channels_first(g: GradContext, value: Value, like: Value, group: int, axes: Sequence[int]) -> Value:
    """[N, group * C, ...] as [C, group * N, ...], for a value of the shape of the forward value ``like``."""
    if group == 1:
        return g.transpose(value, [1, 0, *axes])
    known = g.static(g.input(1), [1])  # [M, C / group, kernel] of Conv, [C, M / group, kernel] of ConvTranspose
    channels = known[0] if known else g.refuse("a grouped convolution needs a known number of channels")
    spatial = [(like, axis) for axis in axes]
    parts = g.reshape_to(value, [(like, 0), group, channels, *spatial])
    front = g.transpose(parts, [2, 1, 0, *range(3, 3 + len(axes))])
    return g.reshape_to(front, [channels, -1, *spatial])


def _weight_gradient(g: GradContext, large: Value, like: Value, small: Value, w: Windows) -> Value:
    """dW[s, l, k] = sum over samples and windows of large[l] * small[s]; ``large`` has the shape of ``like``."""
    axes, group = w.axes, g.attribute("group")
    image = _channels_first(g, large, like, group, axes)
    kernel = g.transpose(small, [1, 0, *axes])
    end, exact = w.end, False
    if w.size is not None and w.count is not None:  # the padding that makes the result exactly as large as the kernel
        reach = [(count - 1) * s + e for count, s, e in zip(w.count, w.strides, w.extent, strict=True)]
        needed = tuple(r - size - b for r, size, b in zip(reach, w.size, w.begin, strict=True))
        exact = min(needed) >= 0
        end = needed if exact else end
    result = g("Conv", image, kernel, strides=w.dilations, dilations=w.strides, pads=(*w.begin, *end), group=group)
    if not exact:
        result = g("Slice", result, g.ints(*[0] * len(axes)), g.ints(*w.kernel), g.ints(*axes))
    return g.transpose(result, [1, 0, *axes])


@gradient_rule("Conv")
def conv(g: GradContext) -> Sequence[Value | None]:
    """See the module's text."""
    x, weight, y, dy = g.input(0), g.input(1), g.output(), g.grad()
    w = windows(g, x, y, _kernel(g))
    return [
        overlap_add(g, dy, weight, w, x, g.attribute("group")) if g.needs(0) else None,
        _weight_gradient(g, x, x, dy, w) if g.needs(1) else None,
        g.total(dy, [0, *w.axes]) if g.needs(2) else None,
    ]


@gradient_rule("ConvTranspose")
def conv_transpose(g: GradContext) -> Sequence[Value | None]:
    """The roles exchanged: dX = Conv(dY, W), and dW correlates dY, the larger one now, with X."""
    x, weight, y, dy = g.input(0), g.input(1), g.output(), g.grad()
    w = _transposed_windows(g, windows(g, y, x, _kernel(g)))
    group, dx, whole = g.attribute("group"), None, dy
    if min(0, *w.begin, *w.end) < 0:  # zeros that stand around what the windows reach
        first, last = [max(-n, 0) for n in w.begin], [min(n, 0) or 2**31 for n in w.end]
        y = dy = g("Slice", dy, g.ints(*first), g.ints(*last), g.ints(*w.axes))
        size = w.size and tuple(n + min(b, 0) + min(e, 0) for n, b, e in zip(w.size, w.begin, w.end, strict=True))
        begin, end = (tuple(max(n, 0) for n in side) for side in (w.begin, w.end))
        w = replace(w, begin=begin, end=end, size=size)
    if g.needs(0):
        dx = g("Conv", dy, weight, strides=w.strides, dilations=w.dilations, group=group, pads=(*w.begin, *w.end))
        if any(o >= s for o, s in zip(g.attribute("output_padding") or (), w.strides, strict=False)):
            dx = g("Slice", dx, g.ints(*[0] * len(w.axes)), g.sizes(x, w.axes), g.ints(*w.axes))
    return [
        dx,
        _weight_gradient(g, dy, y, x, w) if g.needs(1) else None,
        g.total(whole, [0, *w.axes]) if g.needs(2) else None,
    ]


@gradient_rule("Col2Im")
def col2im(g: GradContext) -> Sequence[Value | None]:
    """The windows of dY side by side again: its convolution by one kernel for each of their places."""
    kernel = g.constant_of(2)
    if kernel is None:
        g.refuse("the windows' size is not known when the network is built")
    x, y = g.input(0), g.output()
    taps, names = int(np.prod(kernel)), ("dilations", "pads", "strides")
    planes = g.reshape_to(g.grad(), [-1, 1, *((y, 2 + axis) for axis in range(len(kernel)))])
    settings = {name: value for name in names if (value := g.attribute(name))}
    columns = g("Conv", planes, g.array(np.eye(taps).reshape(taps, 1, *kernel)), **settings)
    return [g.reshape_like(columns, x)]


def _transposed_windows(g: GradContext, w: Windows) -> Windows:
    """Pads that ``output_shape`` or ``auto_pad`` imply, as ONNX defines them for ConvTranspose."""
    kind = g.attribute("auto_pad")
    if not g.attribute("output_shape") and not kind.startswith("SAME"):
        return w
    if w.size is None or w.count is None:
        g.refuse("output_shape and auto_pad need known spatial sizes")
    more = g.attribute("output_padding") or (0,) * len(w.kernel)
    total = [
        (c - 1) * s + o + e - size for c, s, o, e, size in zip(w.count, w.strides, more, w.extent, w.size, strict=True)
    ]
    half = tuple(t // 2 for t in total)
    rest = tuple(t - t // 2 for t in total)
    begin, end = (half, rest) if kind == "SAME_UPPER" else (rest, half)
    return replace(w, begin=begin, end=end)
