"""Profiles as JSON files: kernels and what was counted; what is shown is computed from them again."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from deep500.errors import ResultsError
from deep500.measure.bounds import Roofs
from deep500.measure.statistics import Interval
from deep500.networks.execution.step_profile import Kernel, KernelPlace, ProfiledStep
from deep500.profiling.measuring import machine_facts
from deep500.profiling.profile import FrameworkProfile, NodeRow, Profile
from deep500.profiling.work import Work
from deep500.reading import LARGEST, declare, number, parse, read_bytes, validate, word
from deep500.results.files import to_json, write_atomic

FORMAT, VERSION = "deep500-profile", 1
AGAIN = "name a file that 'deep500 profile' wrote, or profile again"
_MOST_BYTES = 256 * 2**20
_COUNT, _SECONDS = number(0, LARGEST, whole=True), number(0, 1e9)
_WORK = {"flops": (_COUNT, None), "bytes": (_COUNT, None)}
_POSITIVE = number(1e-12, 1e300)
_KERNEL = [str, _SECONDS, _SECONDS, (str, None), (word("forward", "backward"), None), [str], (_COUNT, None), _COUNT]
_FRAMEWORK = {
    "framework": str,
    "version": str,
    "plain": _POSITIVE,
    "cost": {"median": _POSITIVE, "low": (_POSITIVE, None), "high": (_POSITIVE, None), "n": _COUNT, "level": float},
    "seconds": _POSITIVE,
    "inside": (_SECONDS, None),
    "fused": {str: str},
    "kernels": [_KERNEL],
}
_HEAD = declare({"format": word(FORMAT), "version": number(VERSION, VERSION, whole=True)})
_PROFILE = declare(
    {
        "subject": str,
        "loss": (str, None),
        "shapes": {str: [_COUNT]},
        "machine": dict,
        "roofs": {"flops": _POSITIVE, "bandwidth": _POSITIVE, "threads": (_COUNT, None)},
        "rows": [{"name": str, "operator": str, "work": {str: _WORK}, "reads": [str]}],
        "flops_elsewhere": (_COUNT, None),
        "frameworks": [_FRAMEWORK],
    }
)
"""Format of a profile; a kernel is name, start, seconds, node, phase, further nodes, bytes of results, lane."""


def as_dict(profile: Profile) -> dict[str, Any]:
    """The profile as JSON holds it."""
    return {
        "format": FORMAT,
        "version": VERSION,
        **{key: getattr(profile, key) for key in ("subject", "loss", "shapes", "machine", "flops_elsewhere")},
        "roofs": asdict(profile.roofs),
        "rows": [asdict(row) for row in profile.rows],
        "frameworks": [_framework(part) for part in profile.frameworks],
    }


def _framework(part: FrameworkProfile) -> dict[str, Any]:
    step = part.step
    kernels = [
        [k.name, k.start, k.seconds, *(k.place or (None, None)), list(k.holds), k.memory, k.lane] for k in step.kernels
    ]
    return {
        **{key: getattr(part, key) for key in ("framework", "version", "plain")},
        "cost": asdict(part.cost),
        "seconds": step.seconds,
        "inside": step.inside,
        "fused": dict(part.fused),
        "kernels": kernels,
    }


def write_profile(profile: Profile, path: str | os.PathLike[str]) -> Path:
    """Write a profile as JSON; returns the path."""
    target = Path(path)
    write_atomic(target, to_json(as_dict(profile)) + "\n")
    return target


def read_profile(path: str | os.PathLike[str]) -> Profile:
    """Read a profile that :func:`write_profile` wrote.

    Raises:
        ResultsError: the file is absent, damaged, or no profile; it names nodes that the network has not.
    """
    data = parse(read_bytes(path, _MOST_BYTES, links=True, do=AGAIN), path, do=AGAIN)
    validate(data, _HEAD, path, do=AGAIN)
    validate(data, _PROFILE, path, do=AGAIN)
    rows = [
        NodeRow(
            row["name"],
            row["operator"],
            {phase: Work(work["flops"], work["bytes"]) for phase, work in row["work"].items()},
            row["reads"],
        )
        for row in data["rows"]
    ]
    frameworks = [_read_framework(part) for part in data["frameworks"]]
    known = {row.name for row in rows}
    for part in frameworks:
        placed = (
            {name for row in rows for name in row.reads}
            | {place.node for place in part.cells}
            | {*part.fused, *part.fused.values()}
        )
        if not placed <= known:
            raise ResultsError(f"{path}: got kernels of {min(placed - known)!r}; expected nodes of its rows; {AGAIN}")
    if not frameworks:
        raise ResultsError(f"{path}: got no frameworks; expected at least one; {AGAIN}")
    roofs = Roofs(**{key: data["roofs"][key] for key in ("flops", "bandwidth", "threads")})
    facts = {key: data[key] for key in ("subject", "loss", "shapes", "machine", "flops_elsewhere")}
    return Profile(**facts, roofs=roofs, rows=rows, frameworks=frameworks)


def _read_framework(data: dict[str, Any]) -> FrameworkProfile:
    kernels = tuple(
        Kernel(
            name, start, seconds, None if node is None else KernelPlace(node, phase or ""), tuple(holds), memory, lane
        )
        for name, start, seconds, node, phase, holds, memory, lane in data["kernels"]
    )
    cost = Interval(**{key: data["cost"][key] for key in ("median", "low", "high", "n", "level")})
    step = ProfiledStep(data["seconds"], data["inside"], kernels)
    return FrameworkProfile(data["framework"], data["version"], data["plain"], cost, step, data["fused"])


def elsewhere(profile: Profile) -> str:
    """Facts that tell the machine of a profile from this one, in words; empty if nothing does.

    Example:
        >>> from dataclasses import dataclass
        >>> import types
        >>> elsewhere(types.SimpleNamespace(machine={**machine_facts(), "cpu": "Z80"})).startswith("cpu Z80 (here ")
        True
    """
    here = machine_facts()
    apart = [key for key in here if profile.machine.get(key) != here[key]]
    return ", ".join(f"{key} {profile.machine.get(key)} (here {here[key]})" for key in apart)
