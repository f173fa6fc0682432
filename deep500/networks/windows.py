"""Arithmetic of sliding windows: from ONNX's attributes and an input's sizes to explicit paddings and output sizes.

All backends, gradients of convolution and pooling, and expansions for ONNX Runtime take their windows from here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from deep500.networks.attributes import Sliding


class Window(NamedTuple):
    """A sliding window, one number per spatial axis.

    Attributes:
        kernel, strides, dilations: of the window.
        begin, end: padding before and after; of a transposed convolution what is cut away there.
        extra: what ``ceil_mode`` adds behind the padding; of a transposed convolution ``output_padding``.
        out: how many windows there are; empty where that depends on sizes that are unknown.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[Any, ...]
    end: tuple[Any, ...]
    extra: tuple[int, ...]
    out: tuple[Any, ...] = ()

    @property
    def reach(self) -> tuple[int, ...]:
        """How many elements a window spans."""
        return tuple(d * (k - 1) + 1 for d, k in zip(self.dilations, self.kernel, strict=True))

    @property
    def whole_end(self) -> tuple[int, ...]:
        """Padding after, with the extra."""
        return tuple(e + more for e, more in zip(self.end, self.extra, strict=True))

    def padding(self) -> list[tuple[int, int]]:
        """Pairs before and after, with the extra."""
        return list(zip(self.begin, self.whole_end, strict=True))

    def taps(self) -> Iterator[tuple[int, ...]]:
        """Every place in the window, the last axis fastest."""
        return itertools.product(*map(range, self.kernel))

    def part(self, tap: Sequence[int], out: Sequence[int] | None = None) -> tuple[slice, ...]:
        """Slices of the spatial axes of a padded input that this tap of all windows reads."""
        return tuple(
            slice(t * d, t * d + (o - 1) * s + 1 if o else t * d, s)
            for t, d, s, o in zip(tap, self.dilations, self.strides, self.out if out is None else out, strict=True)
        )

    def places(self, sizes: Sequence[int], column_major: int) -> tuple[list[int], list[int], int]:
        """For indices into a flattened input of these spatial sizes.

        Returns:
            weights of the axes, the offset of every tap, and the size of a plane.
        """
        weights, size = [0] * len(sizes), 1
        for axis in range(len(sizes)) if column_major else reversed(range(len(sizes))):
            weights[axis], size = size, size * sizes[axis]
        offsets = [sum(t * d * w for t, d, w in zip(tap, self.dilations, weights, strict=True)) for tap in self.taps()]
        return weights, offsets, size


def make_window(sizes: Sequence[Any], kernel: Sequence[int], settings: Sliding) -> Window:
    """The window of a convolution or a pooling.

    Args:
        sizes: of the spatial axes; None where they are unknown, which ``SAME`` padding with strides does not allow.
        kernel: its sizes.
        settings: the node's attributes.

    Example:
        >>> make_window([5, 6], [3, 2], Sliding(auto_pad="SAME_UPPER", strides=(2, 1))).padding()
        [(1, 1), (0, 1)]
        >>> make_window([6], [3], Sliding(strides=(2,), ceil_mode=1))[-2:]
        ((1,), (3,))
    """
    rank = len(kernel)
    strides, dilations = tuple(settings.strides or (1,) * rank), tuple(settings.dilations or (1,) * rank)
    both = tuple(settings.pads or (0,) * 2 * rank) if settings.auto_pad == "NOTSET" else (0,) * 2 * rank
    window = Window(tuple(kernel), strides, dilations, both[:rank], both[rank:], (0,) * rank)
    if settings.auto_pad.startswith("SAME"):
        total = [
            r - 1 if s == 1 else max((-(-n // s) - 1) * s + r - n, 0)
            for n, s, r in zip(sizes, strides, window.reach, strict=True)
        ]
        begin, end = _shared(total, settings.auto_pad)
        window = window._replace(begin=begin, end=end)
    if any(n is None for n in sizes):
        return window
    out, extra = [], []
    for n, s, r, b, e in zip(sizes, strides, window.reach, window.begin, window.end, strict=True):
        room = n + b + e - r
        count = (-(-room // s) if settings.ceil_mode else room // s) + 1
        if settings.ceil_mode and (count - 1) * s >= n + b:  # the last must begin inside the data or its begin padding
            count -= 1
        out.append(max(count, 0))
        extra.append(max((count - 1) * s - room, 0))
    return window._replace(out=tuple(out), extra=tuple(extra))


def make_transposed(sizes: Sequence[Any], kernel: Sequence[int], settings: Sliding) -> Window:
    """The window of a transposed convolution: ``out`` are the sizes of its result, ``begin`` and ``end`` are cut away.

    Sizes may be a framework's own numbers.
    """
    rank = len(kernel)
    strides, dilations = tuple(settings.strides or (1,) * rank), tuple(settings.dilations or (1,) * rank)
    extra = tuple(settings.output_padding or (0,) * rank)
    both = tuple(settings.pads or (0,) * 2 * rank) if settings.auto_pad == "NOTSET" else (0,) * 2 * rank
    window = Window(tuple(kernel), strides, dilations, both[:rank], both[rank:], extra)
    full = [s * (n - 1) + e + r for s, n, e, r in zip(strides, sizes, extra, window.reach, strict=True)]
    shape = list(settings.output_shape)[-rank:] if settings.output_shape else None
    if shape is None and settings.auto_pad.startswith("SAME"):
        shape = [n * s for n, s in zip(sizes, strides, strict=True)]
    if shape is not None:
        begin, end = _shared([f - o for f, o in zip(full, shape, strict=True)], settings.auto_pad)
        window = window._replace(begin=begin, end=end)
    return window._replace(out=tuple(f - b - e for f, b, e in zip(full, window.begin, window.end, strict=True)))


def _shared(total: Sequence[Any], auto_pad: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Padding before and after; where it is odd, ``SAME_UPPER`` has more after."""
    small, large = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    return (small, large) if auto_pad == "SAME_UPPER" else (large, small)
