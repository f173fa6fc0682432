"""The networks: a chain of unlike blocks, a U-Net, a transformer, and 129 nested regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deep500.networks import Network, add_loss, create
from deep500.networks.execution.inputs import make_inputs


@dataclass(frozen=True)
class PlanSubject:
    """A network to plan for.

    Attributes:
        name: on the command line and in the tables.
        model, options: of the zoo.
        batch: samples per step.
        crossing: how many activations may cross where regions meet; a U-Net needs one per level, and one.
        chain: plan it as a chain, whose plans may let any stretch run again; else as a tree of nested regions.
    """

    name: str
    model: str
    batch: int
    options: Mapping[str, Any] = field(default_factory=dict)
    crossing: int = 1
    chain: bool = False

    def network(self) -> Network:
        """With a loss; the same weights every time."""
        return add_loss(create(self.model, **self.options))

    def inputs(self) -> dict[str, np.ndarray]:
        """One batch of made-up samples."""
        return make_inputs(self.network(), self.batch)


FULL = (
    PlanSubject("chain", "mixed_resnet", 8, chain=True),
    PlanSubject("unet", "unet", 8, {"shape": (3, 64, 64)}, crossing=4),
    PlanSubject("transformer", "transformer", 16, {"shape": (64,), "layers": 6}, chain=True),
    PlanSubject("nested", "nested_resnet", 16),
)
SMALL = (
    PlanSubject("chain", "mixed_resnet", 16, {"width": 4, "blocks": (2, 2, 2, 2), "shape": (3, 16, 16)}, chain=True),
    PlanSubject("unet", "unet", 16, {"width": 4, "levels": 2, "shape": (3, 16, 16)}, crossing=3),
    PlanSubject(
        "transformer", "transformer", 16, {"shape": (32,), "width": 16, "vocabulary": 50, "layers": 3}, chain=True
    ),
    PlanSubject("nested", "nested_resnet", 16, {"width": 2, "counts": (3, 3, 3), "shape": (3, 16, 16)}),
)
"""By size; the small ones are for ``--quick`` and ``--dry-run``."""
NAMES = tuple(subject.name for subject in FULL)
