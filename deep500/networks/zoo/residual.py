"""`resnet` (the CIFAR family), `resnet50` (ImageNet), `mixed_resnet` and `wide_resnet`.

Convolutions have no bias. Initialisation: convolutions Kaiming-normal by fan-out, batch normalization 1 and 0, the last
layer PyTorch's default of ``nn.Linear`` (torchvision's choices).
"""

from __future__ import annotations

import numpy as np

from deep500.errors import NetworkError, nearest
from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder


def _conv(build: Builder, x: str, name: str, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> str:
    return build.conv(x, name, channels, kernel, stride, kernel // 2, init="normalized", groups=groups)


def _depth(depth: int, step: int, base: int, model: str) -> int:
    """Blocks per group: depth = step * blocks + base."""
    blocks, rest = divmod(depth - base, step)
    if rest or blocks < 1:
        raise NetworkError(
            f"got {model} depth {depth}; expected {step}n + {base}, so {step + base}, {2 * step + base}, "
            f"{3 * step + base}, ...: choose one of these"
        )
    return blocks


# -- CIFAR family -----------------------------------------------------------------------------------------------------
def _projection(build: Builder, x: str, name: str, channels: int, stride: int) -> str:
    """Shortcut B: a strided 1x1 convolution with batch normalization."""
    x = _conv(build, x, f"{name}.downsample.0", channels, 1, stride)
    return build.batch_norm(x, f"{name}.downsample.1")


def _padding(build: Builder, x: str, name: str, channels: int, stride: int) -> str:
    """Shortcut A: every stride-th pixel, then zeros for the new channels; no parameters."""
    before, height, width = build.shapes[x]
    cuts = {"starts": [0, 0], "ends": [2**31 - 1] * 2, "axes": [2, 3], f"steps{stride}": [stride] * 2}
    ends = [build.constant(f"shortcut.{n}", np.array(v, np.int64)) for n, v in cuts.items()]
    shape = (before, -(-height // stride), -(-width // stride))
    x = build.node("Slice", [x, *ends], f"{name}.shortcut.slice", shape)
    extra = channels - before
    pads = np.array([0, extra // 2, 0, 0, 0, extra - extra // 2, 0, 0], np.int64)
    widths = build.constant(f"shortcut.pads{extra}", pads)
    return build.node("Pad", [x, widths], f"{name}.shortcut.pad", (channels, *shape[1:]))


SHORTCUTS = {"A": _padding, "B": _projection}


def _basic_block(build: Builder, x: str, name: str, channels: int, stride: int, shortcut: str) -> str:
    y = _conv(build, x, f"{name}.conv1", channels, 3, stride)
    y = build.relu(build.batch_norm(y, f"{name}.bn1"), f"{name}.relu1")
    y = build.batch_norm(_conv(build, y, f"{name}.conv2", channels, 3), f"{name}.bn2")
    if build.shapes[x] != build.shapes[y]:
        x = SHORTCUTS[shortcut](build, x, name, channels, stride)
    return build.relu(build.add(y, x, f"{name}.add"), f"{name}.relu2")


def resnet(build: Builder, classes: int, *, depth: int = 20, shortcut: str = "B") -> Network:
    """The residual networks for CIFAR of He et al. 2015 (arXiv 1512.03385, section 4.2): 16, 32, 64 channels.

    Args:
        depth: 6n + 2, for instance 20, 32, 44, 56, 110.
        shortcut: where the size changes: ``"B"`` a 1x1 convolution (ResNet-20: 272,474 parameters, -44: 661,338,
            -110: 1,730,714 with 10 classes), ``"A"`` strided slicing and zero padding as in the paper's CIFAR section
            (269,722, 658,586 and 1,727,962). To two digits both are the paper's 0.27, 0.66 and 1.7 million.
    """
    blocks = _depth(depth, 6, 2, "resnet")
    if shortcut not in SHORTCUTS:
        raise NetworkError(f"got shortcut {shortcut!r}; expected 'A' or 'B': {nearest(shortcut, SHORTCUTS)}")
    x = build.relu(build.batch_norm(_conv(build, "input", "conv1", 16, 3), "bn1"), "relu1")
    for group, channels in enumerate((16, 32, 64), 1):
        for block in range(blocks):
            stride = 2 if group > 1 and block == 0 else 1
            x = _basic_block(build, x, f"layer{group}.{block}", channels, stride, shortcut)
    return build.classify(build.global_average(x), "fc", classes)


# -- ImageNet ---------------------------------------------------------------------------------------------------------
def _bottleneck(
    build: Builder, x: str, name: str, channels: int, stride: int, width: int | None = None, groups: int = 1
) -> str:
    """From 4 ``channels`` to as many, through ``width`` (``channels`` if None), in that many groups."""
    width = width or channels
    y = build.relu(build.batch_norm(_conv(build, x, f"{name}.conv1", width, 1), f"{name}.bn1"), f"{name}.relu1")
    y = _conv(build, y, f"{name}.conv2", width, 3, stride, groups)
    y = build.relu(build.batch_norm(y, f"{name}.bn2"), f"{name}.relu2")
    y = build.batch_norm(_conv(build, y, f"{name}.conv3", 4 * channels, 1), f"{name}.bn3")
    if build.shapes[x] != build.shapes[y]:
        x = _projection(build, x, name, 4 * channels, stride)
    return build.relu(build.add(y, x, f"{name}.add"), f"{name}.relu3")


def _bottlenecks(build: Builder, classes: int, blocks: tuple[int, ...], groups: int = 1, width: int = 64) -> Network:
    """ImageNet's stem, groups of bottlenecks and classifier; ``width`` is of one group of the first stage."""
    if not blocks:
        raise NetworkError("got no blocks; expected numbers of them, one per stage: give (3, 4, 6, 3)")
    x = build.conv("input", "conv1", 64, 7, 2, 3, init="normalized")
    x = build.max_pool(build.relu(build.batch_norm(x, "bn1"), "relu1"), "maxpool", 3, 2, 1)
    for stage, count in enumerate(blocks):
        for block in range(count):
            name, stride = f"layer{stage + 1}.{block}", 2 if stage and block == 0 else 1
            x = _bottleneck(build, x, name, 64 << stage, stride, (width * groups) << stage, groups)
    return build.classify(build.global_average(x), "fc", classes)


def resnet50(build: Builder, classes: int, *, blocks: tuple[int, ...] = (3, 4, 6, 3)) -> Network:
    """ResNet-50 for ImageNet (He et al. 2015), version 1.5: the stride is in the 3x3 convolution, as in torchvision.

    25,557,032 parameters with 1000 classes. The image must be at least 32x32 to leave something for the last group.

    Args:
        blocks: per stage; ``(3, 4, 23, 3)`` is ResNet-101.
    """
    return _bottlenecks(build, classes, blocks)


def resnext50(
    build: Builder, classes: int, *, groups: int = 32, width: int = 4, blocks: tuple[int, ...] = (3, 4, 6, 3)
) -> Network:
    """ResNeXt-50 (Xie et al. 2016, arXiv 1611.05431, table 1, 32x4d): ResNet-50 with grouped 3x3 convolutions.

    25,028,904 parameters with 1000 classes, as torchvision's. The image must be at least 32x32.

    Args:
        groups: of every 3x3 convolution (the paper's cardinality C).
        width: channels of one group in the first stage (the paper's d), doubled from stage to stage.
        blocks: per stage.
    """
    return _bottlenecks(build, classes, blocks, groups, width)


# -- both kinds of blocks in one chain --------------------------------------------------------------------------------
def mixed_resnet(
    build: Builder, classes: int, *, width: int = 32, blocks: tuple[int, int, int, int] = (4, 5, 4, 5)
) -> Network:
    """A chain of blocks that differ in bytes and operations: two groups of basic blocks, two of bottlenecks, in turn.

    Between blocks there is one activation: ``width`` channels in full resolution, 4 ``width`` in half and in a quarter,
    16 ``width`` in an eighth. With stem and head the usual sizes give 20 blocks and 2,786,602 parameters, whose costs
    per byte differ widely; that makes it the network on which plans for checkpoints are compared.

    Args:
        width: channels of the first group.
        blocks: of basic, bottleneck, basic and bottleneck blocks; each at least 1.
    """
    x = build.relu(build.batch_norm(_conv(build, "input", "conv1", width, 3), "bn1"), "relu1")
    for group, count in enumerate(blocks, 1):
        for block in range(count):
            name, stride = f"layer{group}.{block}", 2 if group > 1 and block == 0 else 1
            if group in (1, 3):
                x = _basic_block(build, x, name, width if group == 1 else 4 * width, stride, "B")
            else:
                x = _bottleneck(build, x, name, width if group == 2 else 4 * width, stride)
    return build.classify(build.global_average(x), "fc", classes)


# -- wide -------------------------------------------------------------------------------------------------------------
def _wide_block(build: Builder, x: str, name: str, channels: int, stride: int, dropout: float) -> str:
    y = build.relu(build.batch_norm(x, f"{name}.bn1"), f"{name}.relu1")
    if build.shapes[x][0] != channels or stride != 1:
        x = _conv(build, y, f"{name}.shortcut", channels, 1, stride)
    y = _conv(build, y, f"{name}.conv1", channels, 3, stride)
    y = build.relu(build.batch_norm(y, f"{name}.bn2"), f"{name}.relu2")
    y = _conv(build, build.dropout(y, f"{name}.dropout", dropout), f"{name}.conv2", channels, 3)
    return build.add(y, x, f"{name}.add")


def wide_resnet(
    build: Builder, classes: int, *, depth: int = 28, widen_factor: int = 10, dropout: float = 0.3
) -> Network:
    """Wide residual network (Zagoruyko & Komodakis 2016, arXiv 1605.07146), pre-activation blocks B(3, 3).

    Args:
        depth: 6n + 4; the paper's 16, 22, 28, 40.
        widen_factor: multiplies 16, 32, 64 channels; 28-10 has 36.5 million parameters, 16-4 has 2.7.
        dropout: rate between the two convolutions of a block.
    """
    blocks = _depth(depth, 6, 4, "wide_resnet")
    x = _conv(build, "input", "conv1", 16, 3)
    for group, channels in enumerate((16, 32, 64), 1):
        for block in range(blocks):
            stride = 2 if group > 1 and block == 0 else 1
            x = _wide_block(build, x, f"layer{group}.{block}", widen_factor * channels, stride, dropout)
    x = build.relu(build.batch_norm(x, "bn"), "relu")
    return build.classify(build.global_average(x), "fc", classes)
