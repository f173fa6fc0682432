"""A profile for people and for files: what each checkpoint costs, in the three groups of the paper's tool.

Lines are sorted so that a reader may leave checkpoints out from the top; since changes of the peak do not add up, every
line also has the peak and the time of the step with it and all lines above it left out, by simulation.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any

from deep500.transformations.recomputation.profiler import groups, profile
from deep500.transformations.recomputation.sweep import simulate
from deep500.transformations.recomputation.tree import Region

HEADINGS = {
    "gain": "leaving these out saves time and memory",
    "neutral": "leaving these out saves time and costs no memory",
    "cost": "leaving these out saves time and costs memory, by falling time per byte",
}


@dataclass(frozen=True)
class Line:
    """One location: what leaving its checkpoint out alone changes, and where the step stands when all above is too.

    Attributes:
        group: ``"gain"``, ``"neutral"`` or ``"cost"``.
        place: the static location.
        instances: how often it runs in a step.
        time: saved, in the tree's unit.
        memory: change of the peak in bytes.
        peak, step: bytes and time with this and all lines above it left out.
    """

    group: str
    place: str
    instances: int
    time: float
    memory: int
    peak: int
    step: float


@dataclass(frozen=True)
class ProfileReport:
    """A profiled step: its peak in bytes and its time, and a line for each checkpointed location."""

    peak: int
    step: float
    time_unit: str
    lines: tuple[Line, ...]

    def data(self) -> dict[str, Any]:
        """What :func:`json.dumps` takes."""
        return asdict(self)

    def __str__(self) -> str:
        unit = self.time_unit
        found = [f"peak {self.peak:,} B, step {self.step:.6g} {unit}, {len(self.lines)} locations checkpointed"]
        head = ("location", "runs", f"saved [{unit}]", "peak change [B]", "then peak [B]", f"then step [{unit}]")
        rows = [head, *(_cells(line) for line in self.lines)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        text = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        found.append(text[0])
        before = ""
        for line, shown in zip(self.lines, text[1:], strict=True):
            if line.group != before:
                found.append(f"{HEADINGS[line.group]}:")
                before = line.group
            found.append(shown)
        return "\n".join(found)


def _cells(line: Line) -> tuple[str, ...]:
    return (
        line.place,
        str(line.instances),
        f"{line.time:.6g}",
        f"{line.memory:+,}",
        f"{line.peak:,}",
        f"{line.step:.6g}",
    )


def profile_report(
    root: Region, checkpointed: Collection[str], *, snapshot_kept: bool = False, time_unit: str = "s"
) -> ProfileReport:
    """Profile one simulated step and follow the guide from the top.

    Args:
        root: the tree of regions.
        checkpointed: static locations that are.
        snapshot_kept: see :func:`deep500.transformations.recomputation.sweep.simulate`.
        time_unit: of the tree's times.

    Example:
        >>> inner = Region("inner", (40,), snapshot=8, time=3)
        >>> print(profile_report(Region("root", (10, 20), (inner,), time=1), ["inner"]))
        peak 50 B, step 7 s, 1 locations checkpointed
        location  runs  saved [s]  peak change [B]  then peak [B]  then step [s]
        leaving these out saves time and costs memory, by falling time per byte:
        inner        1          3              +20             70              4
    """
    on = set(checkpointed)
    start = simulate(root, on, snapshot_kept=snapshot_kept)
    lines = []
    for group, savings in groups(profile(root, on, snapshot_kept=snapshot_kept)).items():
        for saving in savings:
            on.discard(saving.place)
            now = simulate(root, on, snapshot_kept=snapshot_kept)
            lines.append(Line(group, saving.place, saving.instances, saving.time, saving.memory, now.peak, now.time))
    return ProfileReport(start.peak, start.time, time_unit, tuple(lines))
