"""`unet`: an encoder and a decoder, joined by connections across; values live from the first layers to the last."""

from __future__ import annotations

from deep500.errors import NetworkError
from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder


def _twice(build: Builder, x: str, name: str, channels: int) -> str:
    """Two times 3x3 convolution, batch normalization, ReLU."""
    for number in (1, 2):
        x = build.conv(x, f"{name}.conv{number}", channels, 3, padding=1, init="normalized")
        x = build.relu(build.batch_norm(x, f"{name}.bn{number}"), f"{name}.relu{number}")
    return x


def _up(build: Builder, x: str, name: str, channels: int) -> str:
    """A transposed 2x2 convolution of stride 2: twice the size."""
    before, height, width = build.shapes[x]
    weights = build.weights(name, (before, channels, 2, 2), "normalized")
    shape = (channels, 2 * height, 2 * width)
    return build.node("ConvTranspose", [x, *weights], name, shape, kernel_shape=[2, 2], strides=[2, 2])


def unet(build: Builder, classes: int, *, width: int = 16, levels: int = 3) -> Network:
    """U-Net (Ronneberger et al. 2015, arXiv 1505.04597), its logits of all pixels averaged into one row per image.

    So it trains on images with one label each, like the other models. Against the paper: convolutions keep the size
    (padding 1), batch normalization follows each, and a 1x1 convolution to ``classes`` channels ends it.

    Args:
        width: channels of the first level; each level below has twice as many.
        levels: of the encoder, each ending with a 2x2 maximum pooling; height and width must be multiples of
            2 ** levels.

    Initialisation: convolutions Kaiming-normal by fan-out, without bias; the last one PyTorch's default.
    """
    spatial, step = build.shapes["input"][1:], 2**levels
    if levels < 1 or len(spatial) != 2 or any(size % step for size in spatial):
        raise NetworkError(
            f"got a unet of {levels} levels for shape {build.shapes['input']}; expected at least 1 level and an image "
            f"whose height and width are multiples of {step if levels > 0 else 2}: give another shape= or levels="
        )
    x, across = "input", []
    for level in range(levels):
        across.append(_twice(build, x, f"down{level + 1}", width * 2**level))
        x = build.max_pool(across[-1], f"down{level + 1}.pool", 2)
    x = _twice(build, x, "bottom", width * 2**levels)
    for level in reversed(range(levels)):
        name, channels = f"up{level + 1}", width * 2**level
        x = _up(build, x, f"{name}.up", channels)
        x = build.node("Concat", [across[level], x], f"{name}.concat", (2 * channels, *build.shapes[x][1:]), axis=1)
        x = _twice(build, x, name, channels)
    x = build.conv(x, "head", classes, 1)
    x = build.node("GlobalAveragePool", [x], "avgpool", (classes, 1, 1))
    build.network.add_output(build.node("Flatten", [x], "output", (classes,), axis=1))
    return build.network
