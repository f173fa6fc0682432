"""`ssd`: single-shot detectors (Liu et al. 2016, arXiv 1512.02325) with one scale, or a pyramid (Lin et al. 2017).

Their output is (batch, anchors, 4 + classes): offsets of a box from its anchor, then a logit for each class. Anchors
are in the order (scale, row, column, anchor of the cell), as :func:`deep500.tasks.boxes.anchor_grid` makes them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder

PRIOR = 0.01
"""Probability of every class before training (Lin et al. 2017, arXiv 1708.02002, section 4.1)."""


def _block(build: Builder, x: str, name: str, channels: int, stride: int = 1) -> str:
    x = build.conv(x, f"{name}.conv", channels, 3, stride, 1, init="normalized")
    return build.relu(build.batch_norm(x, f"{name}.bn"), name)


def _head(build: Builder, x: str, name: str, anchors: int, classes: int) -> str:
    """Rows of offsets and logits of one feature map: (cells * anchors, 4 + classes)."""
    x = _block(build, x, f"{name}.tower", build.shapes[x][0])
    width = 4 + classes
    y = build.conv(x, f"{name}.out", anchors * width, 3, 1, 1, init=0.01)
    bias = np.zeros((anchors, width), np.float32)
    bias[:, 4:] = -math.log((1 - PRIOR) / PRIOR)
    build.network.set_parameter(f"{name}.out.bias", bias.ravel())
    _, height, cells = build.shapes[y]
    y = build.node("Transpose", [y], f"{name}.last", (height, cells, anchors * width), perm=[0, 2, 3, 1])
    rows = build.constant(f"{name}.rows", np.array([0, height * cells * anchors, width], np.int64))
    return build.node("Reshape", [y, rows], f"{name}.flat", (height * cells * anchors, width))


def _pyramid(build: Builder, maps: Sequence[str], width: int) -> list[str]:
    """Every map in one width, with what the coarser ones know added to it (Lin et al. 2017, arXiv 1612.03144)."""
    merged: list[str] = []
    for level in reversed(range(len(maps))):
        x = build.conv(maps[level], f"pyramid{level}.lateral", width, 1)
        if merged:
            scales = build.constant("pyramid.scales", np.array([1, 1, 2, 2], np.float32))
            up = build.node("Resize", [merged[-1], "", scales], f"pyramid{level}.up", build.shapes[x], mode="nearest")
            x = build.add(x, up, f"pyramid{level}.sum")
        merged.append(x)
    return [build.conv(x, f"pyramid{level}.smooth", width, 3, 1, 1) for level, x in enumerate(reversed(merged))]


def ssd(
    build: Builder, classes: int, *, width: int = 32, stride: int = 8, levels: int = 1, anchors: int = 3, depth: int = 2
) -> Network:
    """A single-shot detector: convolutions down to ``stride``, then a row of offsets and class logits per anchor.

    With ``levels`` of 2 or more, feature maps of ``stride``, ``2 stride``, ... are joined into a feature pyramid, and
    each has a head of its own. Every convolution but the last and those of the pyramid is without bias and followed by
    batch normalization and ReLU; the last one starts at N(0, 0.01^2), its classes' bias so that each has probability
    0.01.

    Args:
        width: channels after the first stage; doubled at every further halving, up to four times.
        stride: pixels of a cell of the finest map: a power of two.
        levels: feature maps.
        anchors: boxes per cell.
        depth: convolutions per stage.
    """
    channels, height, across = build.shapes["input"] if len(build.shapes["input"]) == 3 else (0, 0, 0)
    coarsest = stride << (levels - 1)
    if min(width, levels, anchors, depth) < 1 or stride < 2 or stride & (stride - 1) or not channels:
        raise NetworkError(
            f"got ssd width {width}, stride {stride}, levels {levels}, anchors {anchors}, depth {depth} on samples "
            f"{build.shapes['input']}; expected at least 1 of each, a power of two as stride, and (channels, height, "
            "width): give width=32, stride=8, levels=1, anchors=3, depth=2"
        )
    if height % coarsest or across % coarsest:
        raise NetworkError(
            f"got an image of {height}x{across} for ssd; expected multiples of {coarsest}, the coarsest cell: resize it"
        )
    x, maps, size = "input", [], 1
    for stage in range(int(math.log2(coarsest))):
        size *= 2
        wide = width * min(4, 1 << stage)
        for layer in range(depth):
            x = _block(build, x, f"stage{stage + 1}.{layer}", wide, 2 if layer == 0 else 1)
        if size >= stride:
            maps.append(x)
    if levels > 1:
        maps = _pyramid(build, maps, build.shapes[maps[0]][0])
    rows = [_head(build, x, f"head{level}", anchors, classes) for level, x in enumerate(maps)]
    if levels > 1:
        total = sum(build.shapes[row][0] for row in rows)
        build.node("Concat", rows, "output", (total, 4 + classes), axis=1)
    else:
        build.node("Identity", rows, "output", build.shapes[rows[0]])
    build.network.add_output("output")
    return build.network
