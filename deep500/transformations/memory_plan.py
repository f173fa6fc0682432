"""Memory plans: which nodes of a network work on pieces of the batch, and what of it a step computes again.

:func:`deep500.plan_memory` makes them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deep500.errors import PlanError
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.hashing import structure_hash
from deep500.networks.network import Network
from deep500.reading import parse, read_bytes
from deep500.transformations.loss_pieces import microbatch_loss
from deep500.transformations.microbatching import microbatch_parts
from deep500.transformations.recomputation.plan_file import AGAIN, CheckpointingPlan, plan_from


@dataclass(frozen=True)
class DividedPart:
    """Nodes of a network that work on pieces of the batch.

    Attributes:
        name: of the part; nodes of its pieces are named after it.
        nodes: their names in the network.
        pieces: how many.
    """

    name: str
    nodes: tuple[str, ...]
    pieces: int


@dataclass(frozen=True)
class MemoryPlan:
    """The nodes of a network that work on pieces of the batch, and the regions that a step computes again.

    Attributes:
        network: :func:`structure_hash` of the network that it was made for.
        parts: that work on pieces.
        checkpointing: what runs again in the network in parts; None if nothing does.
        budget: bytes that were allowed.
        peak, peak_without: bytes that a step holds at most, under the plan and without it.
        operations: of a step under the plan, over those without it; to start a node counts as 200,000.
        predicted, bound: the same by the model of sections, and the least that any choice of them could have, by the
            solver's proof; 1 where no sections were chosen.
        measured: whether the peaks were counted in steps, by the backend's allocator; else in the network.
        method: how it was chosen.
        loss: the scalar that is differentiated.
        at_once: in how many pieces the whole step runs, each differentiated before the next; 1: in none.
    """

    network: str
    parts: tuple[DividedPart, ...]
    checkpointing: CheckpointingPlan | None
    budget: int
    peak: int
    peak_without: int
    operations: float
    predicted: float
    bound: float
    measured: bool
    method: str
    loss: str = "loss"
    at_once: int = 1

    def apply(self, network: Network) -> Network:
        """The network in parts; the same one if there are none.

        Raises:
            PlanError: the plan was made for another network.
        """
        if (got := structure_hash(network)) != self.network:
            raise PlanError(
                f"got network {network.name!r} with hash {got[:12]}; expected {self.network[:12]}, for which the "
                "memory plan was made: plan again"
            )
        if self.at_once > 1:
            return microbatch_loss(network, self.at_once, list(network.inputs), self.loss, outputs=True)
        return microbatch_parts(network, by_name(self.parts)) if self.parts else network

    def executor(self, executor: GraphExecutor) -> GraphExecutor:
        """An executor like a given one for the network in parts, under the plan."""
        other = executor.like(self.apply(_plain(executor)))
        other.set_checkpointing(self.checkpointing)
        return other

    def data(self) -> dict[str, Any]:
        """The plan as JSON takes it and :func:`memory_plan_from` reads it."""
        checkpointing = None if self.checkpointing is None else self.checkpointing.data()
        return {**asdict(self), "checkpointing": checkpointing}

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as JSON; returns the path."""
        target = Path(path)
        target.write_text(json.dumps(self.data(), indent=1) + "\n")
        return target

    def __str__(self) -> str:
        pieces = f"{len(self.parts)} parts in pieces of the batch" if self.parts else "no pieces of the batch"
        if self.at_once > 1:
            pieces = f"the step in {self.at_once} pieces of the batch, each differentiated at once"
        again = 0 if self.checkpointing is None else len(self.checkpointing.regions)
        return (
            f"{pieces}, {again} regions run again: {self.peak:,} B of {self.peak_without:,} B "
            f"({'measured' if self.measured else 'counted'}), {self.operations:.2f} of the operations; {self.method}"
        )


def load_memory_plan(path: str | os.PathLike[str]) -> MemoryPlan:
    """Read what :meth:`MemoryPlan.save` wrote.

    Raises:
        PlanError: it cannot be read, or is no memory plan.
    """
    return memory_plan_from(
        parse(read_bytes(path, links=True, error=PlanError, do=AGAIN), path, error=PlanError, do=AGAIN), str(path)
    )


def memory_plan_from(data: Mapping[str, Any], where: str) -> MemoryPlan:
    """The plan whose :meth:`MemoryPlan.data` this is.

    Raises:
        PlanError: it is none.
    """
    try:
        inner = data["checkpointing"]
        checkpointing = None if inner is None else plan_from(inner, where)
        parts = tuple(DividedPart(part["name"], tuple(part["nodes"]), int(part["pieces"])) for part in data["parts"])
        return MemoryPlan(**{**data, "parts": parts, "checkpointing": checkpointing})
    except (KeyError, TypeError, ValueError) as error:
        raise PlanError(f"{where}: got no memory plan ({error}); expected what plan_memory made: plan again") from error


def by_name(parts: Sequence[DividedPart]) -> dict[str, tuple[tuple[str, ...], int]]:
    return {part.name: (part.nodes, part.pieces) for part in parts}


def _plain(executor: GraphExecutor) -> Network:
    network = executor.network
    return network if isinstance(network, Network) else network.copy()
