"""`nasnet_a`: the cells that a search found (Zoph et al. 2018, arXiv 1707.07012): separable convolutions and pools.

Convolutions have no bias and start Kaiming-normal by fan-out; batch normalization (epsilon 1e-3) at 1 and 0.
"""

from __future__ import annotations

import numpy as np

from deep500.errors import NetworkError
from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder

EPSILON = 1e-3


def _conv_norm(
    build: Builder,
    x: str,
    name: str,
    channels: int,
    kernel: int = 1,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
) -> str:
    x = build.conv(x, f"{name}.conv", channels, kernel, stride, padding, init="normalized", groups=groups)
    return build.batch_norm(x, f"{name}.bn", EPSILON)


def _separable(build: Builder, x: str, name: str, channels: int, kernel: int, stride: int = 1) -> str:
    """Twice ReLU, depthwise convolution, 1x1 convolution, batch normalization; the first has the stride."""
    for number, step in ((1, stride), (2, 1)):
        part, before = f"{name}.{number}", build.shapes[x][0]
        x = build.relu(x, f"{part}.relu")
        x = build.conv(x, f"{part}.depthwise", before, kernel, step, kernel // 2, init="normalized", groups=before)
        x = _conv_norm(build, x, part, channels)
    return x


def _halve(build: Builder, x: str, name: str, channels: int) -> str:
    """Every second pixel and, from one pixel further, every second pixel, each to half of the channels."""
    x = build.relu(x, f"{name}.relu")
    before, height, width = build.shapes[x]
    pads = build.constant("halve.pads", np.array([0, 0, 0, 0, 0, 0, 1, 1], np.int64))
    moved = build.node("Pad", [x, pads], f"{name}.padded", (before, height + 1, width + 1))
    cuts = {"starts": [1, 1], "ends": [2**31 - 1] * 2, "axes": [2, 3]}
    ends = [build.constant(f"halve.{key}", np.array(value, np.int64)) for key, value in cuts.items()]
    moved = build.node("Slice", [moved, *ends], f"{name}.moved", (before, height, width))
    sizes = (channels // 2, channels - channels // 2)
    halves = [
        build.conv(y, f"{name}.path{i}", size, 1, 2, init="normalized")
        for i, (y, size) in enumerate(zip((x, moved), sizes, strict=True), 1)
    ]
    return build.batch_norm(build.concat(halves, f"{name}.concat"), f"{name}.bn", EPSILON)


def _fit(build: Builder, previous: str | None, x: str, name: str, channels: int) -> str:
    """The output of the cell before last, in the size of the last one's and in the width of this cell; else x."""
    if previous is None:
        return x
    if build.shapes[previous][1:] != build.shapes[x][1:]:
        return _halve(build, previous, name, channels)
    if build.shapes[previous][0] != channels:
        return _conv_norm(build, build.relu(previous, f"{name}.relu"), name, channels)
    return previous


def _ends(build: Builder, x: str, previous: str | None, name: str, channels: int) -> tuple[str, str]:
    """Build what both kinds of cells begin with: h from x, p from the cell before, both in the cell's width."""
    p = _fit(build, previous, x, f"{name}.fit", channels)
    return _conv_norm(build, build.relu(x, f"{name}.relu"), f"{name}.begin", channels), p


def _normal(build: Builder, x: str, previous: str | None, name: str, channels: int) -> str:
    """The normal cell (the paper's figure 4, left): five sums and p itself, side by side."""
    h, p = _ends(build, x, previous, name, channels)
    left = [_separable(build, y, f"{name}.left{i}", channels, 5) for i, y in ((1, h), (2, p))]
    right = [_separable(build, p, f"{name}.right{i}", channels, 3) for i in (1, 2)]
    sums = [build.add(a, b, f"{name}.sum{i}") for i, (a, b) in enumerate(zip(left, right, strict=True), 1)]
    sums.append(build.add(build.average_pool(h, f"{name}.left3", 3, padding=1), p, f"{name}.sum3"))
    left4, right4 = (build.average_pool(p, f"{name}.{side}4", 3, padding=1) for side in ("left", "right"))
    sums.append(build.add(left4, right4, f"{name}.sum4"))
    sums.append(build.add(_separable(build, h, f"{name}.left5", channels, 3), h, f"{name}.sum5"))
    return build.concat([p, *sums], name)


def _reduction(build: Builder, x: str, previous: str | None, name: str, channels: int) -> str:
    """The reduction cell (figure 4, right): halves height and width."""
    h, p = _ends(build, x, previous, name, channels)
    y1 = _separable(build, h, f"{name}.left1", channels, 5, 2)
    y1 = build.add(y1, _separable(build, p, f"{name}.right1", channels, 7, 2), f"{name}.sum1")
    y2 = build.max_pool(h, f"{name}.left2", 3, 2, 1)
    y2 = build.add(y2, _separable(build, p, f"{name}.right2", channels, 7, 2), f"{name}.sum2")
    y3 = build.average_pool(h, f"{name}.left3", 3, 2, 1)
    y3 = build.add(y3, _separable(build, p, f"{name}.right3", channels, 5, 2), f"{name}.sum3")
    y4 = build.add(build.average_pool(y1, f"{name}.left4", 3, 1, 1), y2, f"{name}.sum4")
    y5 = _separable(build, y1, f"{name}.left5", channels, 3)
    y5 = build.add(y5, build.max_pool(h, f"{name}.right5", 3, 2, 1), f"{name}.sum5")
    return build.concat([y2, y3, y4, y5], name)


def nasnet_a(
    build: Builder,
    classes: int,
    *,
    cells: int = 5,
    filters: int = 44,
    groups: int = 3,
    stem: int = 32,
    last_reduction: bool = True,
) -> Network:
    """NASNet-A (Zoph et al. 2018): a stem, then groups of normal cells, each followed by a reduction cell.

    By default 3 x (5 normal cells and a reduction cell), as in TASO's benchmark, behind the paper's stem for ImageNet:
    a 3x3 convolution and two reduction cells. ``cells=4, last_reduction=False`` is the paper's NASNet-A (4 @ 1056):
    5,289,978 parameters with 1000 classes (the paper's table 2: 5.3 million). Windows are padded alike on both sides,
    where TensorFlow's pad the end first.

    Args:
        cells: normal cells per group.
        filters: of the first group's cells; doubled from group to group. The paper names the last group's output,
            24 times as wide.
        groups: of normal cells.
        stem: channels of the first convolution.
        last_reduction: a reduction cell after the last group too.
    """
    if filters % 4:
        raise NetworkError(f"got nasnet_a filters {filters}; expected a multiple of 4 filters: give filters=44")
    previous: str | None = None  # there is no cell before the stem
    x = _conv_norm(build, "input", "stem", stem, 3, 2)
    for number, divisor in ((1, 4), (2, 2)):
        x, previous = _reduction(build, x, previous, f"stem_cell{number}", filters // divisor), x
    for group in range(groups):
        width = filters << group
        for cell in range(cells):
            x, previous = _normal(build, x, previous, f"group{group + 1}.{cell}", width), x
        if last_reduction or group + 1 < groups:
            x, previous = _reduction(build, x, previous, f"reduction{group + 1}", 2 * width), x
    return build.classify(build.global_average(build.relu(x, "relu")), "fc", classes)
