"""`nested_resnet`: many small residual units in units of units, to plan and profile what is nested."""

from __future__ import annotations

from deep500.networks.network import Network
from deep500.networks.zoo.builder import Builder


def _unit(build: Builder, x: str, name: str) -> str:
    """x + ReLU(batch normalization(3x3 convolution of x))."""
    y = build.conv(x, f"{name}/conv", build.shapes[x][0], 3, padding=1, init="normalized")
    return build.add(x, build.relu(build.batch_norm(y, f"{name}/bn"), f"{name}/relu"), f"{name}/add")


def nested_resnet(build: Builder, classes: int, *, width: int = 4, counts: tuple[int, int, int] = (4, 5, 5)) -> Network:
    """Stages of groups of residual units, named ``stage1/group1/unit1``: 4 x 5 x 5 units in 124 nested regions.

    A unit keeps the size; between stages a strided convolution halves the image and doubles the channels. So regions
    are nested three deep, those of one stage are alike and those of different stages are not.

    Args:
        width: channels of the first stage.
        counts: stages, groups in a stage, units in a group; each at least 1.

    Initialisation: convolutions Kaiming-normal by fan-out, without bias; the last layer PyTorch's default.
    """
    stages, groups, units = counts
    x = "input"
    for stage in range(1, stages + 1):
        channels = width * 2 ** (stage - 1)
        x = build.conv(x, f"stage{stage}/conv", channels, 3, 1 if stage == 1 else 2, 1, init="normalized")
        x = build.relu(build.batch_norm(x, f"stage{stage}/bn"), f"stage{stage}/relu")
        for group in range(1, groups + 1):
            for unit in range(1, units + 1):
                x = _unit(build, x, f"stage{stage}/group{group}/unit{unit}")
    return build.classify(build.global_average(x), "fc", classes)
