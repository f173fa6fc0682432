"""Geometry of sliding windows, and the two operations that convolution and pooling share backwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.networks.attributes import Sliding, collect
from deep500.networks.gradients.rules.context import GradContext, Value
from deep500.networks.windows import make_window


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial axes of an input: window ``o`` begins at ``o * stride - begin``.

    ``size`` and ``count`` are the input's and the output's spatial sizes, None unless all are known.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    size: tuple[int, ...] | None
    count: tuple[int, ...] | None

    @property
    def extent(self) -> tuple[int, ...]:
        """How far one window reaches."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def axes(self) -> list[int]:
        """The spatial axes."""
        return list(range(2, 2 + len(self.kernel)))

    @property
    def disjoint(self) -> bool:
        """Whether no element is in two windows."""
        return all(s >= e for s, e in zip(self.strides, self.extent, strict=True))

    def members(self, padded: bool) -> list[np.ndarray]:
        """For each axis, how many elements each window has inside the input (and its declared padding)."""
        counts = []
        for i, (size, count) in enumerate(zip(self.size or (), self.count or (), strict=True)):
            at = (
                np.arange(count)[:, None] * self.strides[i]
                - self.begin[i]
                + np.arange(self.kernel[i]) * self.dilations[i]
            )
            low, high = (-self.begin[i], size + self.end[i]) if padded else (0, size)
            counts.append(((at >= low) & (at < high)).sum(axis=1))
        return counts


def windows(g: GradContext, large: Value, small: Value, kernel: Sequence[int]) -> Windows:
    """The windows of a Conv or pooling node from ``large`` to ``small`` (swapped for ConvTranspose)."""
    n = len(kernel)
    size, count = (g.static(v, list(range(2, 2 + n))) for v in (large, small))
    names = ("auto_pad", "dilations", "pads", "strides")
    settings = collect(Sliding, {name: value for name in names if (value := g.attribute(name)) is not None})
    if settings.auto_pad.startswith("SAME") and size is None and any(s != 1 for s in settings.strides or ()):
        g.refuse(f"auto_pad {settings.auto_pad} with strides needs known spatial sizes")
    w = make_window(size or [None] * n, kernel, settings)
    return Windows(w.kernel, w.strides, w.dilations, w.begin, w.end, size, count)


def overlap_add(g: GradContext, values: Value, weight: Value, w: Windows, like: Value, group: int = 1) -> Value:
    """Spread each window's value over its elements by ``weight`` and add up, to ``like``'s spatial size."""
    common: dict[str, Any] = dict(strides=w.strides, dilations=w.dilations, group=group, kernel_shape=w.kernel)
    if w.size is None or w.count is None:
        full = g("ConvTranspose", values, weight, **common)  # without pads: cut and filled below, at run time
        room = g("Pad", full, g.ints(*([0] * len(w.kernel)), *(s - 1 for s in w.strides)), None, g.ints(*w.axes))
        first = g.ints(*w.begin)
        return g("Slice", room, first, first + g.sizes(like, w.axes), g.ints(*w.axes))
    end, beyond = list(w.end), []
    for i, (count, stride) in enumerate(zip(w.count, w.strides, strict=True)):
        left = w.size[i] + w.begin[i] + w.end[i] - ((count - 1) * stride + w.extent[i])
        end[i] += max(-left, 0)  # windows that ceil_mode lets hang over the end are cut off
        beyond.append(max(left, 0))  # elements that no window reaches have a gradient of zero
    return g("ConvTranspose", values, weight, pads=(*w.begin, *end), output_padding=tuple(beyond), **common)
