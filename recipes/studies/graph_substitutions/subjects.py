"""The networks of the experiments, from the zoo, at the sizes of their papers and at sizes for a dry run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deep500.networks import Network, create


@dataclass(frozen=True)
class ZooSubject:
    """A network of the zoo at batch 1.

    Attributes:
        model: name in the zoo.
        options: of its builder, and ``shape``.
        small: the same for a dry run.
        note: what the tables say about it.
    """

    model: str
    options: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def network(self, quick: bool = False, seed: int = 0) -> Network:
        """Build it."""
        return create(
            self.model, batch=1, classes=10 if quick else 1000, seed=seed, **(self.small if quick else self.options)
        )


IMAGE: dict[str, Any] = dict(shape=(3, 32, 32))
CELLS: dict[str, Any] = dict(cells=1, groups=1, filters=8, stem=8, last_reduction=False)
BRANCHES: dict[str, Any] = dict(IMAGE, blocks=(2,), widths=(8,))

# fmt: off
SEVEN = {
    "resnet50": ZooSubject("resnet50", {}, dict(IMAGE, blocks=(1,)), "batch normalization unfolded"),
    "resnext50": ZooSubject("resnext50", {}, dict(IMAGE, blocks=(1,), groups=8), "32 groups of width 4"),
    "nasnet_a": ZooSubject("nasnet_a", {}, IMAGE | CELLS,
                           "3 x (5 normal + 1 reduction cell), stem of 2 reduction cells"),
    "nasrnn": ZooSubject("nasrnn", {}, dict(shape=(2, 32)), "5 steps, 512 units, 16 matrix products a step"),
    "bert": ZooSubject("bert", dict(shape=(64, 768)), dict(shape=(8, 32), width=32, heads=4, layers=1),
                    "12 layers, 64 embedded vectors of 768, whole attention and feed-forward parts"),
    "squeezenet": ZooSubject("squeezenet", {}, dict(shape=(3, 33, 33)), "version 1.1"),
    "inception_v3": ZooSubject("inception_v3", {}, dict(shape=(3, 75, 75), modules=(1, 1, 1)),
                               "no auxiliary classifier"),
}
# fmt: on
"""The networks of TASO and Tensat."""

CASES = {
    "nasrnn-64": ZooSubject("nasrnn", dict(shape=(5, 64)), dict(shape=(2, 16)), "64 units"),
    "repvgg": ZooSubject("repvgg", {}, BRANCHES, "RepVGG-A0 with the branches of training: convolutions on one input"),
    "repvgg-4": ZooSubject(
        "repvgg", dict(branches=4), BRANCHES | dict(branches=4), "with four 3x3 branches (MobileOne's k)"
    ),
}
"""Networks in which a CPU alone gains: small matrices, and branches that add up to one convolution."""

SUBJECTS = SEVEN | CASES
