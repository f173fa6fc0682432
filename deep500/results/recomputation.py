"""``recomputation.json``: what a plan for recomputation promised and what was measured, for tables and the report.

It lies in a results folder (schema ``deep500-recomputation-1``), is written by :meth:`RecomputationRecord.write`, and
holds the regions, the profile, memory over time with and without the plan, and plans beside each other. Bytes are whole
numbers, times are in ``time_unit``; what was not measured is null, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deep500.errors import ResultsError
from deep500.measure.statistics import Interval
from deep500.results.files import read_json, to_json, write_atomic
from deep500.results.formats import RECOMPUTATION_SCHEMA, RECOMPUTATIONS
from deep500.results.ranks import from_entry, to_entry
from deep500.transformations.recomputation import CheckpointingPlan, NetworkRegions
from deep500.transformations.recomputation.counting import MemoryCurve, memory_curve
from deep500.transformations.recomputation.profiler import ProfileLine, ProfileReport, profile_report
from deep500.transformations.recomputation.region_tree import Region, locations
from deep500.transformations.recomputation.rewriting import recomputing

RECOMPUTATION, OLDER = RECOMPUTATIONS

PREDICTED, MEASURED = "predicted from the graph, node by node", "measured by the allocator"
"""Where curves come from."""


@dataclass(frozen=True)
class RegionRow:
    """A region as a row of a tree.

    Attributes:
        name, depth: of the region; those nested in it follow, one deeper.
        tape, snapshot: bytes that it records, and that it keeps if it is recomputed.
        time: of one run, in the record's unit.
        location: its static location, and how many regions share it.
        candidate: whether it may be recomputed.
        again: how often the plan runs all of it again; more than once where planned regions are nested.
        innermost: whether no regions are nested in it.
    """

    name: str
    depth: int
    tape: int
    snapshot: int
    time: float
    location: str
    shared: int
    candidate: bool
    again: int
    innermost: bool


@dataclass(frozen=True)
class Choice:
    """One way to spend memory and time, predicted and measured.

    Attributes:
        label: ``"no recomputation"``, ``"planned, 50 %"``, ...
        family: short, for legends: ``"none"``, ``"planned"``, ``"greedy"``, ...
        regions: how many run again; None where the way has no regions.
        predicted_peak, predicted_time: None where it cannot be predicted.
        measured_peak, measured_time: None: not measured. Seconds, over steps that took turns with the others'.
        ratio: measured time over that without recomputation, step by step in pairs.
        note: what a reader must know of it.
    """

    label: str
    family: str
    regions: int | None = None
    predicted_peak: int | None = None
    predicted_time: float | None = None
    measured_peak: int | None = None
    measured_time: Interval | None = None
    ratio: Interval | None = None
    note: str = ""


@dataclass(frozen=True)
class RecomputationRecord:
    """All that a page says about recomputation in one network.

    Attributes:
        network, batch, backend: what ran, and where; ``"none"`` if nothing did.
        time_unit: of predictions, ``"s"`` or ``"FLOP"``.
        budget: bytes that the plan may hold.
        profile: of a step with every candidate recomputed.
        regions: the tree.
        curves: memory over time, by label; that without the plan first.
        choices: that without recomputation first.
        kept: why what some nodes write is kept wherever they are, by node.
        source: where the curves come from.
    """

    network: str
    batch: int
    backend: str
    time_unit: str
    budget: int
    profile: ProfileReport
    regions: tuple[RegionRow, ...]
    curves: tuple[tuple[str, MemoryCurve], ...]
    choices: tuple[Choice, ...]
    kept: tuple[tuple[str, str], ...] = ()
    source: str = PREDICTED

    def write(self, folder: Path) -> Path:
        """Write ``recomputation.json`` into a results folder; raises ResultsError."""
        content = {"schema": RECOMPUTATION_SCHEMA, **asdict(self), "choices": [_to_json(c) for c in self.choices]}
        content["curves"] = [{"label": label, **curve._asdict()} for label, curve in self.curves]
        write_atomic(folder / RECOMPUTATION, to_json(content) + "\n")
        return folder / RECOMPUTATION

    @classmethod
    def read(cls, folder: Path) -> RecomputationRecord | None:
        """From a results folder, None where there is none; raises ResultsError for a file that is not one of ours."""
        path = folder / RECOMPUTATION
        if (folder / OLDER).exists():
            raise ResultsError(f"got {folder / OLDER}, of an older layout; expected {RECOMPUTATION}: run it again")
        if not path.exists():
            return None
        content = read_json(path)
        del content["schema"]
        if len(content["curves"]) < 2 or not content["choices"]:
            raise ResultsError(
                f"{path}: got {len(content['curves'])} curves and {len(content['choices'])} choices; expected those "
                "without recomputation first: make it anew"
            )
        report = content.pop("profile")
        report["lines"] = tuple(ProfileLine(**line) for line in report["lines"])
        curves = tuple(
            (curve.pop("label"), _curve(path, curve["at"], curve["held"], curve["turn"]))
            for curve in content.pop("curves")
        )
        return cls(
            profile=ProfileReport(**report),
            curves=curves,
            regions=tuple(RegionRow(**row) for row in content.pop("regions")),
            choices=tuple(_from_json(choice) for choice in content.pop("choices")),
            kept=tuple((node, why) for node, why in content.pop("kept")),
            **content,
        )


def _to_json(choice: Choice) -> dict[str, Any]:
    times = {name: getattr(choice, name) for name in ("measured_time", "ratio")}
    return {**asdict(choice), **{name: None if t is None else to_entry(t) for name, t in times.items()}}


def _from_json(content: dict[str, Any]) -> Choice:
    times = {name: content[name] and from_entry(content[name]) for name in ("measured_time", "ratio")}
    return Choice(**{**content, **times})


def _curve(path: Path, at: Sequence[float], amounts: Sequence[int], turn: float | None) -> MemoryCurve:
    if not amounts or len(at) != len(amounts) + 1 or list(at) != sorted(at) or at[0] == at[-1]:
        raise ResultsError(
            f"{path}: got a curve of {len(amounts)} amounts at {len(at)} times; expected a time more than amounts, all "
            "rising: make it anew"
        )
    return MemoryCurve(tuple(at), tuple(amounts), turn)


def record_of(
    regions: NetworkRegions,
    plan: CheckpointingPlan,
    backend: str = "none",
    choices: Sequence[Choice] = (),
    measured: Sequence[MemoryCurve] = (),
) -> RecomputationRecord:
    """Record regions and a plan for them, before or after anything ran.

    Args:
        regions: with the times that the plan rests on.
        plan: made for them.
        backend: where steps were measured; ``"none"`` if nothing ran.
        choices: what was measured; the plan and the step without it, as predicted, if there are none.
        measured: memory over a step without and with the plan, in seconds; predicted if not given.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation import find_regions, plan_network
        >>> network = add_loss(create("resnet", depth=8))
        >>> record = record_of(find_regions(network, batch=2), plan_network(network, 0.9, batch=2))
        >>> [choice.label for choice in record.choices], record.choices[0].measured_peak
        (['no recomputation', 'planned'], None)
    """
    if measured:
        without, planned = measured
    else:
        again = recomputing(regions.step, [region.values for region in plan.regions])
        without, planned = memory_curve(regions), memory_curve(regions, again)
    base = plan.predicted_time - plan.predicted_extra
    if not choices:
        count = len(plan.regions)
        choices = (
            Choice("no recomputation", "none", 0, without.peak, base),
            Choice("planned", "planned", count, plan.predicted_peak, plan.predicted_time),
        )
    report = profile_report(regions.root, locations(regions.root), time_unit=regions.time_unit)
    return RecomputationRecord(
        regions.step.network.name,
        plan.batch,
        backend,
        regions.time_unit,
        plan.budget,
        report,
        tuple(_rows(regions, plan)),
        (("no recomputation", without), ("planned", planned)),
        tuple(choices),
        tuple(regions.pinned.items()),
        MEASURED if measured else PREDICTED,
    )


def _rows(regions: NetworkRegions, plan: CheckpointingPlan) -> Iterator[RegionRow]:
    places, planned = locations(regions.root), [set(region.values) for region in plan.regions]

    def walk(region: Region, depth: int) -> Iterator[RegionRow]:
        nodes = regions.nodes.get(region.name, regions.step.forward)  # the root's are all
        again = sum(all(values.issuperset(node.writes) for node in nodes) for values in planned)
        shared = len(places.get(region.place, ()))
        yield RegionRow(
            region.name,
            depth,
            region.full_tape,
            region.snapshot,
            region.total_time,
            region.place,
            shared,
            shared > 0,
            again,
            not region.children,
        )
        for child in region.children:
            yield from walk(child, depth + 1)

    yield from walk(regions.root, 0)
