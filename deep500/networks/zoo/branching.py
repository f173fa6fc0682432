"""`squeezenet`, `inception_v3` and `repvgg`: several convolutions read one image, and their outputs are joined.

Convolutions start Kaiming-normal by fan-out with biases 0, batch normalization at 1 and 0.
"""

from __future__ import annotations

from deep500.errors import NetworkError, nearest
from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder, Count, Pair

# -- SqueezeNet -------------------------------------------------------------------------------------------------------
SQUEEZENET: dict[str, tuple[tuple[int, int], tuple[int | str, ...]]] = {  # (channels, kernel), then squeezed widths
    "1.0": ((96, 7), ("M", 16, 16, 32, "M", 32, 48, 48, 64, "M", 64)),
    "1.1": ((64, 3), ("M", 16, 16, "M", 32, 32, "M", 48, 48, 64, 64)),
}


def _fire(build: Builder, x: str, name: str, squeezed: int) -> str:
    """``squeezed`` channels by 1x1, then four times as many by 1x1 and by 3x3, side by side."""
    x = build.relu(build.conv(x, f"{name}.squeeze", squeezed, 1, init="fan_out"), f"{name}.squeeze_relu")
    sides = [
        build.relu(
            build.conv(x, f"{name}.expand{k}x{k}", 4 * squeezed, k, padding=k // 2, init="fan_out"),
            f"{name}.expand{k}x{k}_relu",
        )
        for k in (1, 3)
    ]
    return build.concat(sides, f"{name}.concat")


def squeezenet(build: Builder, classes: int, *, version: str = "1.1", dropout: float = 0.5) -> Network:
    """SqueezeNet (Iandola et al. 2016, arXiv 1602.07360): fire modules, no fully connected layer.

    1,235,496 parameters (version 1.1) or 1,248,424 (1.0) with 1000 classes, as torchvision's. Pooling leaves out what
    does not fill a window, where the original rounds up: at 224x224 both are the same in version 1.1.

    Args:
        version: ``"1.0"`` is the paper's, ``"1.1"`` the authors' cheaper one.
        dropout: rate before the classifier, a 1x1 convolution that starts at N(0, 0.01^2).
    """
    if version not in SQUEEZENET:
        raise NetworkError(
            f"got squeezenet version {version!r}; expected '1.0' or '1.1': {nearest(version, SQUEEZENET)}"
        )
    (channels, kernel), steps = SQUEEZENET[version]
    x = build.relu(build.conv("input", "conv1", channels, kernel, 2, init="fan_out"), "relu1")
    pools = 0
    for number, step in enumerate(steps):
        if isinstance(step, str):
            pools += 1
            x = build.max_pool(x, f"pool{pools}", 3, 2)
        else:
            x = _fire(build, x, f"fire{number - pools + 2}", step)
    x = build.dropout(x, "dropout", dropout)
    x = build.relu(build.conv(x, "classifier", classes, 1, init=0.01), "classifier_relu")
    x = build.node("GlobalAveragePool", [x], "avgpool", (classes, 1, 1))
    build.network.add_output(build.flatten(x, "output"))
    return build.network


# -- Inception --------------------------------------------------------------------------------------------------------
Layer = tuple[int, Pair]
"""Channels and kernel."""


def _unit(
    build: Builder, x: str, name: str, channels: int, kernel: Pair, stride: int = 1, padding: Pair | None = None
) -> str:
    """Convolution without bias, batch normalization (epsilon 1e-3), ReLU; padding keeps the size unless given."""
    if padding is None:
        padding = kernel // 2 if isinstance(kernel, int) else (kernel[0] // 2, kernel[1] // 2)
    x = build.conv(x, f"{name}.conv", channels, kernel, stride, padding, init="normalized")
    return build.relu(build.batch_norm(x, f"{name}.bn", 1e-3), name)


def _row(build: Builder, x: str, name: str, layers: tuple[Layer, ...]) -> str:
    for number, (channels, kernel) in enumerate(layers, 1):
        x = _unit(build, x, f"{name}_{number}", channels, kernel)
    return x


def _module(build: Builder, x: str, name: str, pooled: int, *branches: tuple[Layer, ...]) -> str:
    """Branches side by side and one that averages first; the average counts the padding's zeros, as torchvision's."""
    outputs = [_row(build, x, f"{name}.branch{i}", layers) for i, layers in enumerate(branches, 1)]
    average = build.average_pool(x, f"{name}.pool", 3, padding=1, count_padding=True)
    return build.concat([*outputs, _unit(build, average, f"{name}.branch_pool", pooled, 1)], name)


def _reduction(build: Builder, x: str, name: str, *branches: tuple[Layer, ...]) -> str:
    """Branches whose last 3x3 convolution has stride 2 and no padding, and a maximum pool of that kind."""
    outputs = []
    for i, (*layers, (channels, kernel)) in enumerate(branches, 1):
        inner = _row(build, x, f"{name}.branch{i}", tuple(layers))
        outputs.append(_unit(build, inner, f"{name}.branch{i}_last", channels, kernel, 2, 0))
    return build.concat([*outputs, build.max_pool(x, f"{name}.pool", 3, 2)], name)


def _spread(build: Builder, x: str, name: str) -> str:
    """The modules of the 8x8 grid: branches end in 1x3 and 3x1 side by side (figure 7 of the paper)."""
    parts = [_unit(build, x, f"{name}.branch1", 320, 1)]
    for i, layers in ((2, ((384, 1),)), (3, ((448, 1), (384, 3)))):
        inner = _row(build, x, f"{name}.branch{i}", layers)
        parts += [
            _unit(build, inner, f"{name}.branch{i}_{kernel[0]}x{kernel[1]}", 384, kernel) for kernel in ((1, 3), (3, 1))
        ]
    average = build.average_pool(x, f"{name}.pool", 3, padding=1, count_padding=True)
    return build.concat([*parts, _unit(build, average, f"{name}.branch_pool", 192, 1)], name)


def inception_v3(
    build: Builder, classes: int, *, modules: tuple[Count, Count, Count] = (3, 4, 2), dropout: float = 0.5
) -> Network:
    """Inception-v3 (Szegedy et al. 2015, arXiv 1512.00567), as in torchvision but without the auxiliary classifier.

    23,834,568 parameters with 1000 classes (torchvision's 27,161,264 less 3,326,696 of the auxiliary classifier, which
    inference leaves out). The image must be at least 75x75; 299x299 is the original's.

    Args:
        modules: how many on each of the three grids (35x35, 17x17 and 8x8 for an image of 299x299); at most as many as
            by default.
        dropout: rate before the classifier.
    """
    if len(modules) != 3 or any(not 0 <= count <= most for count, most in zip(modules, (3, 4, 2), strict=True)):
        raise NetworkError(
            f"got inception_v3 modules {modules}; expected at most (3, 4, 2): give (1, 1, 1) for a small one"
        )
    x = _unit(build, "input", "stem1", 32, 3, 2, 0)
    x = _unit(build, _unit(build, x, "stem2", 32, 3, 1, 0), "stem3", 64, 3)
    x = build.max_pool(x, "stem_pool1", 3, 2)
    x = _unit(build, _unit(build, x, "stem4", 80, 1), "stem5", 192, 3, 1, 0)
    x = build.max_pool(x, "stem_pool2", 3, 2)
    for letter, pooled in (("b", 32), ("c", 64), ("d", 64))[: modules[0]]:
        x = _module(build, x, f"mixed5{letter}", pooled, ((64, 1),), ((48, 1), (64, 5)), ((64, 1), (96, 3), (96, 3)))
    x = _reduction(build, x, "mixed6a", ((384, 3),), ((64, 1), (96, 3), (96, 3)))
    for letter, c in (("b", 128), ("c", 160), ("d", 160), ("e", 192))[: modules[1]]:
        wide, tall = (1, 7), (7, 1)
        once, twice = ((c, 1), (c, wide), (192, tall)), ((c, 1), (c, tall), (c, wide), (c, tall), (192, wide))
        x = _module(build, x, f"mixed6{letter}", 192, ((192, 1),), once, twice)
    x = _reduction(build, x, "mixed7a", ((192, 1), (320, 3)), ((192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3)))
    for letter in "bc"[: modules[2]]:
        x = _spread(build, x, f"mixed7{letter}")
    return build.classify(build.dropout(build.global_average(x), "dropout", dropout), "fc", classes)


# -- RepVGG -----------------------------------------------------------------------------------------------------------
def _rep_block(build: Builder, x: str, name: str, channels: int, stride: int, branches: int) -> str:
    """ReLU of a sum of normalized branches on one input: ``branches`` of 3x3, one of 1x1 and, where it fits, x."""
    parts = []
    for i, kernel in enumerate((*(3,) * branches, 1)):
        branch = f"{name}.branch{kernel}x{kernel}" + (f"_{i}" if kernel == 3 and branches > 1 else "")
        y = build.conv(x, f"{branch}.conv", channels, kernel, stride, kernel // 2, init="normalized")
        parts.append(build.batch_norm(y, f"{branch}.bn"))
    if stride == 1 and build.shapes[x][0] == channels:
        parts.append(build.batch_norm(x, f"{name}.identity.bn"))
    total = parts[0]
    for number, part in enumerate(parts[1:], 1):
        total = build.add(total, part, f"{name}.sum{number}")
    return build.relu(total, f"{name}.relu")


def repvgg(
    build: Builder,
    classes: int,
    *,
    blocks: tuple[int, ...] = (2, 4, 14, 1),
    widths: tuple[int, ...] = (48, 96, 192, 1280),
    branches: int = 1,
) -> Network:
    """RepVGG (Ding et al. 2021, arXiv 2101.03697) with the branches of training, which add up to one convolution each.

    Without options it is RepVGG-A0: 9,108,968 parameters with 1000 classes, 8.31 million once the branches are added
    up (the paper's table 4: 8.30 million). The image must be at least 32x32 to leave something for the last group.

    Args:
        blocks: of each stage; every stage starts with stride 2, and so does the block before them.
        widths: channels of each stage.
        branches: 3x3 convolutions side by side in every block; more than one are MobileOne's over-parameterisation
            (Vasu et al. 2022, arXiv 2206.04040, section 3.2: k), here in full convolutions.
    """
    if len(blocks) != len(widths):
        raise NetworkError(
            f"got repvgg blocks {blocks}, widths {widths}; expected as many blocks as widths: give (2, 4, 14, 1) and "
            "(48, 96, 192, 1280)"
        )
    x = _rep_block(build, "input", "stage0", min(64, widths[0]), 2, branches)
    for stage, (count, width) in enumerate(zip(blocks, widths, strict=True), 1):
        for block in range(count):
            x = _rep_block(build, x, f"stage{stage}.{block}", width, 1 if block else 2, branches)
    return build.classify(build.global_average(x), "fc", classes)
