"""Plans as files: which regions of which network run again, for which batch, and who measured that.

A plan holds for one structure of a network (weights may differ) and one batch size: others are refused by hash.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import PlanError
from deep500.networks.graph import Network
from deep500.networks.protos import node_proto

FORMAT = "deep500-checkpointing-plan"
VERSION = 1


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
        predicted_peak: bytes of tape, snapshots and overheads.
        predicted_time, predicted_extra: of a step, and the part of it due to running again, in ``time_unit``.
        time_unit: ``"s"`` where it was measured, ``"FLOP"`` where operations stand in for it.
        method: how it was chosen.
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

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it as JSON; returns the path."""
        target = Path(path)
        target.write_text(json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, indent=1) + "\n")
        return target

    def check(self, network: Network, batch: int, backend: str | None = None) -> None:
        """Raise PlanError if it was made for another network or batch size, or measured on another backend.

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
        if batch != self.batch:
            raise PlanError(f"got batch size {batch}; expected {self.batch}, for which the plan was made: plan again")
        if backend is not None and backend != self.backend:
            raise PlanError(
                f"got backend {backend!r}; expected {self.backend!r}, whose profile the plan rests on: profile again"
            )


def load_plan(path: str | os.PathLike[str]) -> CheckpointingPlan:
    """Read a plan file.

    Raises:
        PlanError: it cannot be read, is no plan, or lacks something.
    """
    try:
        data = json.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise PlanError(f"got {os.fspath(path)!r}, which cannot be read: {error}; expected a plan file") from error
    return _from_data(data, os.fspath(path))


def _from_data(data: Any, path: str) -> CheckpointingPlan:
    if not isinstance(data, Mapping) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
        raise PlanError(f"got {path!r}, no plan of version {VERSION}; expected what CheckpointingPlan.save wrote")
    kinds = CheckpointingPlan.__annotations__
    simple = {"int": int, "str": str, "float": (int, float)}
    for name, kind in kinds.items():
        if name not in data:
            raise PlanError(f"got {path!r} without {name!r}; expected all of {list(kinds)}: write it again")
        expected = simple.get(kind, list)
        if not isinstance(data[name], expected) or isinstance(data[name], bool):  # type: ignore[arg-type]
            raise PlanError(f"got {path!r} with {name}={data[name]!r}; expected {kind}: write it again")
    try:
        regions = tuple(PlannedRegion(r["name"], r["location"], tuple(r["values"])) for r in data["regions"])
    except (KeyError, TypeError) as error:
        raise PlanError(f"got {path!r} with a region that lacks {error}; expected name, location and values") from error
    return CheckpointingPlan(**{**{name: data[name] for name in kinds}, "regions": regions})


def structure_hash(network: Network) -> str:
    """SHA-256 over operators, attributes, names, shapes and dtypes, inputs and outputs; weights do not count.

    Parameters of integers and booleans do, since shapes and axes are among them.

    Example:
        >>> from deep500.networks import create
        >>> one, other = create("mlp"), create("mlp")
        >>> other.set_parameter("fc1.weight", 0 * other.parameters["fc1.weight"].value)
        >>> structure_hash(one) == structure_hash(other), structure_hash(one) == structure_hash(create("lenet"))
        (True, False)
    """
    digest = hashlib.sha256()
    digest.update(repr([(n, d.dtype, d.shape) for n, d in network.inputs.items()]).encode())
    digest.update(repr(network.outputs).encode())
    for name, parameter in sorted(network.parameters.items()):
        value = parameter.value
        digest.update(repr((name, str(value.dtype), value.shape, parameter.trainable)).encode())
        if np.dtype(value.dtype).kind in "iub":
            digest.update(repr(value.tolist()).encode())
    for node in sorted(network.nodes, key=lambda node: node.name):
        digest.update(node_proto(node).SerializeToString(deterministic=True))
    return digest.hexdigest()
