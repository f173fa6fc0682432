"""The quiet of the machine during a run, from what its epochs recorded; without it, times are observations.

A busy machine makes all samples slow alike, so intervals are as narrow as ever and hold for the machine with its
neighbours, not for what was measured. Which neighbours disturb is stated in :mod:`deep500.measure.load`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deep500.measure.load import disturbances, together
from deep500.measure.quantiles import OBSERVED
from deep500.measure.standing import OBSERVATION

BUSY = "busy machine"
"""The label of every number of a run that was disturbed."""

RANKS_CHANGED = "number of ranks changed"
"""The label of every number of a run that went on on another number of ranks."""


def load_of_run(curve: Sequence[Mapping[str, Any]], manifest: Mapping[str, Any]) -> dict[str, Any] | None:
    """The load over all epochs, the CPU time of other ranks on the same host counted as the run's own.

    Args:
        curve: lines of ``metrics.jsonl``.
        manifest: says where ranks ran.

    Returns:
        see :func:`deep500.measure.load.together`; None where an epoch has none.
    """
    loads = [line.get("load") for line in curve]
    if not loads or not all(isinstance(load, Mapping) for load in loads):
        return None
    began = [entry.get("processes") for entry in manifest.get("resumed", ())]  # where the number of ranks changed
    places = [[rank.get("host") for rank in (p or {}).get("each", [])] for p in (*began, manifest.get("processes"))]
    hosts = {len(place): place for place in places}
    return together(
        {
            **load,
            "own": None
            if load.get("own") is None
            else load["own"] + _of_neighbours(line, hosts.get(len(line.get("ranks") or ()), [])),
        }
        for line, load in zip(curve, loads, strict=True)
        if load is not None
    )


def _of_neighbours(line: Mapping[str, Any], hosts: Sequence[Any]) -> float:
    """Processor seconds of the ranks that shared rank 0's host."""
    pairs = list(zip(line.get("ranks") or (), hosts, strict=False))
    return sum(rank.get("cpu_seconds", 0.0) for rank, host in pairs[1:] if host == hosts[0])


def disturbed(curve: Sequence[Mapping[str, Any]], manifest: Mapping[str, Any]) -> list[str]:
    """Return what disturbed a run, in words; empty where nothing did, none was recorded, or it was too short."""
    load = load_of_run(curve, manifest)
    return (disturbances(load) or []) if load is not None else []


def taints(curve: Sequence[Mapping[str, Any]], manifest: Mapping[str, Any]) -> bool:
    """Whether a run's times are observations: others used the machine, or its number of ranks changed."""
    return bool(disturbed(curve, manifest) or mixed(manifest))


def mixed(manifest: Mapping[str, Any]) -> list[str]:
    """Between which numbers of ranks a run changed, in words: its times are of both.

    Example:
        >>> mixed({"resumed": [{"at": ""}, {"at": "", "ranks": [2, 3]}]})
        ['from 2 to 3 ranks']
    """
    changes = [entry["ranks"] for entry in manifest.get("resumed", ()) if "ranks" in entry]
    return [f"from {began} to {now} ranks" for began, now in changes]


def lower_series(stats: dict[str, Any], why: Sequence[str]) -> dict[str, Any]:
    """``stats.json`` of a run that was disturbed: every estimate an observation, without interval, with the reason."""
    reason = f"{BUSY}: {'; '.join(why)}"
    for stat in stats["series"].values() if why else ():
        stat["disturbed"] = list(why)
        for estimate in stat["estimates"]:
            estimate.update(standing=OBSERVATION, reason=reason)
            estimate["ci"].update(low=None, high=None, method=OBSERVED)
            estimate["target"].update(achieved=None, reached=False, cause="")
    return stats
