"""`lenet`, `simple_cnn` and `vgg16`: convolutions in a row."""

from __future__ import annotations

from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder


def lenet(build: Builder, classes: int) -> Network:
    """LeNet-5 (LeCun et al. 1998) with ReLU and maximum pooling: conv 6, conv 16 (both 5x5), fc 120, 84, classes.

    Images of 32x32 are taken as they are and those of 28x28 padded to 32x32, as LeCun did (61,706 parameters for one
    grey channel). Smaller ones, 8x8 digits for instance, are padded before *both* convolutions, so that these keep the
    size; the smallest possible is 4x4.

    Initialisation: PyTorch's defaults of ``nn.Conv2d`` and ``nn.Linear``.
    """
    small = min(build.shapes["input"][1:], default=0) < 28
    large = min(build.shapes["input"][1:], default=0) >= 32
    x = build.conv("input", "conv1", 6, 5, padding=0 if large else 2)
    x = build.max_pool(build.relu(x, "relu1"), "pool1", 2)
    x = build.conv(x, "conv2", 16, 5, padding=2 if small else 0)
    x = build.flatten(build.max_pool(build.relu(x, "relu2"), "pool2", 2))
    x = build.relu(build.linear(x, "fc1", 120), "relu3")
    x = build.relu(build.linear(x, "fc2", 84), "relu4")
    return build.classify(x, "fc3", classes)


def simple_cnn(build: Builder, classes: int, *, channels: tuple[int, int] = (16, 32), width: int = 64) -> Network:
    """Two times (3x3 convolution that keeps the size, ReLU, 2x2 maximum pooling), then fc ``width`` and classes.

    Args:
        channels: of the two convolutions.
        width: of the hidden fully connected layer.

    Initialisation: PyTorch's defaults.
    """
    x = "input"
    for number, count in enumerate(channels, 1):
        x = build.relu(build.conv(x, f"conv{number}", count, 3, padding=1), f"relu{number}")
        x = build.max_pool(x, f"pool{number}", 2)
    x = build.relu(build.linear(build.flatten(x), "fc1", width), "relu3")
    return build.classify(x, "fc2", classes)


VGG16 = (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M")


def vgg16(build: Builder, classes: int, *, batch_norm: bool | None = None, dropout: float = 0.5) -> Network:
    """VGG-16 (Simonyan & Zisserman 2014, arXiv 1409.1556, configuration D).

    From 64x64 upwards it is the original: two hidden layers of 4096 (138,357,544 parameters at 224x224 and 1000
    classes). Smaller images get the usual CIFAR form: batch normalization after each convolution and one fully
    connected layer (14,728,266 parameters at 3x32x32 and 10 classes).

    Args:
        batch_norm: after each convolution; None: for small images only.
        dropout: rate before the hidden layers' successors (original form only).

    Initialisation: convolutions Kaiming-normal by fan-out, fully connected N(0, 0.01^2), biases 0 (torchvision's).
    """
    small = max(build.shapes["input"][1:], default=0) < 64
    normalize = small if batch_norm is None else batch_norm
    x, number, pools = "input", 0, 0
    for step in VGG16:
        if isinstance(step, str):
            pools += 1
            x = build.max_pool(x, f"pool{pools}", 2)
            continue
        number += 1
        x = build.conv(x, f"conv{number}", step, 3, padding=1, init="fan_out")
        if normalize:
            x = build.batch_norm(x, f"bn{number}")
        x = build.relu(x, f"relu{number}")
    x = build.flatten(x)
    for layer in () if small else (1, 2):
        x = build.relu(build.linear(x, f"fc{layer}", 4096, 0.01), f"relu_fc{layer}")
        x = build.dropout(x, f"dropout{layer}", dropout)
    return build.classify(x, "fc" if small else "fc3", classes, 0.01)
