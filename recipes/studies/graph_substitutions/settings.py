"""Settings of a run of the experiments."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Settings:
    """Options shared by the experiments.

    Attributes:
        quick: a dry run: small networks, depth 2.
        networks, backends: which.
        budget: seconds of one search.
        seconds: of timing for one comparison.
        depth: most operators of a side of a generated rule.
        clock: "wall" or "cpu".
        database: of measured times of operators; None: the user's cache.
        compiled: the networks for which torch.compile is timed too.
        seed: of weights, inputs, searches and the order of timing.
    """

    quick: bool
    networks: tuple[str, ...]
    backends: tuple[str, ...]
    budget: float
    seconds: float
    depth: int
    clock: str
    compiled: tuple[str, ...]
    database: Path | None
    seed: int

    @property
    def search(self) -> dict[str, Any]:
        """The options of every search."""
        return {"budget": self.budget, "seed": self.seed, "database": self.database}
