"""Plans as files: which regions of which network run again, for which batch, and who measured that.

A plan holds for one structure of a network (weights may differ) and one batch size: others are refused by hash. Files
of another layout are told apart by their fields ``format`` and ``version``, and refused; so are files that were changed
after they were written, by the hash of their content, as a prediction holds for the plan that was made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deep500.errors import PlanError
from deep500.networks.execution.modes import training_network
from deep500.networks.graph import Graph
from deep500.networks.hashing import structure_hash as structure_hash
from deep500.reading import LARGEST, at_least, check_hash, declare, number, read_json, validate, with_hash, word
from deep500.transformations.recomputation.region_tree import outermost_first
from deep500.transformations.recomputation.training_step import needed, with_batch

FORMAT = "deep500-checkpointing-plan"
VERSION = 3
AGAIN = "name a plan file, or plan again with plan_checkpointing"


_HEAD = declare({"format": word(FORMAT), "version": number(VERSION, VERSION, whole=True)})
_COUNT, _AMOUNT = number(0, LARGEST, whole=True), number(0, 1e300)
_PLAN = declare(
    {
        "network": str,
        "batch": number(1, LARGEST, whole=True),
        "loss": str,
        "backend": str,
        "regions": [{"name": str, "location": str, "values": at_least(1, str)}],
        "budget": _COUNT,
        "predicted_peak": _COUNT,
        "predicted_time": _AMOUNT,
        "predicted_extra": _AMOUNT,
        "time_unit": str,
        "method": str,
        "peak_without": _COUNT,
        "measured": bool,
        "hash": str,
    }
)
"""Format of a plan file; :class:`CheckpointingPlan` says what it means."""


@dataclass(frozen=True)
class PlannedRegion:
    """A region that a plan lets run again: its name, its static location, and the values that its nodes write."""

    name: str
    location: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class CheckpointingPlan:
    """A plan for one network and batch size.

    Attributes:
        network: its :func:`structure_hash`.
        batch: number of samples for which sizes and times hold.
        loss: the scalar that is differentiated.
        backend: where times were measured; ``"none"`` where they are counted operations.
        regions: those that run again, outermost first.
        budget: bytes that were allowed.
        predicted_peak: bytes that a step holds at most.
        predicted_time, predicted_extra: of a step, and the part of it due to running again, in ``time_unit``;
            where the backend ran both, medians of steps in turns with steps without the plan.
        time_unit: ``"s"`` where it was measured, ``"FLOP"`` where operations stand in for it.
        method: how it was chosen.
        peak_without: bytes that a step without the plan holds at most; 0 where that was not asked.
        measured: whether both peaks were counted in steps on ``backend``, by its allocator; else they are counted in
            the network, as a backend holds them that frees every value after its last reader.
    """

    network: str
    batch: int
    loss: str
    backend: str
    regions: tuple[PlannedRegion, ...]
    budget: int
    predicted_peak: int
    predicted_time: float
    predicted_extra: float
    time_unit: str
    method: str
    peak_without: int = 0
    measured: bool = False

    def data(self) -> dict[str, Any]:
        """The plan as :func:`json.dumps` takes it and :func:`plan_from` reads it."""
        data = {"format": FORMAT, "version": VERSION, **asdict(self)}
        return with_hash(data)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as JSON; returns the path."""
        target = Path(path)
        target.write_text(json.dumps(self.data(), indent=1) + "\n")
        return target

    def check(self, network: Graph, batch: int, backend: str | None = None) -> None:
        """Raise PlanError if it was made for another network or batch size, or measured on another backend.

        Also if its regions are none of such a network, as in a file that was edited.

        Args:
            network: the one to be run.
            batch: number of samples.
            backend: whose times are meant to hold; None does not ask, as bytes and results do not depend on it.
        """
        got = structure_hash(network)
        if got != self.network:
            raise PlanError(
                f"got network {network.name!r} with structure {got[:12]}; expected {self.network[:12]}, for which the "
                "plan was made: plan again for this network"
            )
        if not network.has_value(self.loss):
            raise PlanError(f"got a plan for loss {self.loss!r}; expected a value of {network.name!r}: plan again")
        if batch != self.batch:
            raise PlanError(f"got batch size {batch}; expected {self.batch}, for which the plan was made: plan again")
        if self.regions:
            from deep500.networks.gradients.reach import prepare  # recipes without a plan load no gradients

            step = training_network(with_batch(network, batch))[0]
            prepare(step, [self.loss], step.trainable())  # gradients want operators expanded, and further outputs
            forward = needed(step, [self.loss])
            outermost_first([region.values for region in self.regions], {v for node in forward for v in node.writes})
        if backend is not None and backend != self.backend:
            raise PlanError(
                f"got backend {backend!r}; expected {self.backend!r}, whose profile the plan rests on: profile again"
            )


def load_plan(path: str | os.PathLike[str]) -> CheckpointingPlan:
    """Read a plan file.

    Raises:
        PlanError: it cannot be read, is no plan, lacks something, or was changed after it was written.
    """
    return plan_from(read_json(path, _HEAD, links=True, error=PlanError, do=AGAIN), path)


def plan_from(data: Any, path: str | os.PathLike[str]) -> CheckpointingPlan:
    """The plan whose :meth:`CheckpointingPlan.data` this is; ``path`` says where it comes from.

    Raises:
        PlanError: it is no plan, lacks something, or is not what was written.
    """
    validate(data, _HEAD, path, error=PlanError, do=AGAIN)
    validate(data, _PLAN, path, error=PlanError, do=AGAIN)
    check_hash(data, path, error=PlanError, do=AGAIN)
    regions = tuple(PlannedRegion(r["name"], r["location"], tuple(r["values"])) for r in data["regions"])
    return CheckpointingPlan(**{**{name: data[name] for name in CheckpointingPlan.__annotations__}, "regions": regions})


def undominated(plans: Iterable[CheckpointingPlan]) -> list[CheckpointingPlan]:
    """Those of which no other has as small a peak and as little extra time, by rising peak.

    Example:
        >>> plans = [CheckpointingPlan("", 1, "loss", "none", (), 0, peak, 0.0, extra, "FLOP", "")
        ...          for peak, extra in ((9, 0.0), (5, 2.0), (7, 2.0), (5, 3.0))]
        >>> [(plan.predicted_peak, plan.predicted_extra) for plan in undominated(plans)]
        [(5, 2.0), (9, 0.0)]
    """
    front: list[CheckpointingPlan] = []
    for plan in sorted(plans, key=lambda plan: (plan.predicted_peak, plan.predicted_extra)):
        if not front or plan.predicted_extra < front[-1].predicted_extra:
            front.append(plan)
    return front
