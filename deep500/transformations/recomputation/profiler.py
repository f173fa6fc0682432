"""From one step in which everything is recomputed to what each region's recomputation costs, for people and for files.

The merge rule is that of Hascoet et al. 2024 (arXiv 2405.15590, section 4) with a correction: when the peak of a level
grows, the entries of *all* locations are brought up to date, not only those of the level that is merged into it. So
every single deactivation is predicted exactly. Gains in time add up, changes of the peak do not: simulate a plan.

The report has the three groups of the paper's tool. Its lines are sorted so that a reader may leave recomputations out
from the top; since changes of the peak do not add up, every line also has the peak and the time of the step with it and
all lines above it left out, by simulation.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from deep500.errors import PlanError
from deep500.transformations.recomputation.region_tree import StepEvent, TreeRegion, simulate


class Saving(NamedTuple):
    """Change of a step by leaving the recomputation of one location out.

    Attributes:
        place: the static location.
        time: saved, never negative.
        memory: change of the peak of the step, in bytes; negative if it falls.
        instances: how often it was recomputed in the step.
    """

    place: str
    time: float
    memory: int
    instances: int


class _Delta(NamedTuple):
    time: float = 0
    peak: int = 0
    turn: int = 0


@dataclass
class _Level:
    """A region that is being recorded or reversed: its peak, its stack at the turn and what locations change there."""

    place: str
    peak: int = 0
    turn: int = 0
    deltas: dict[str, _Delta] = field(default_factory=dict)

    def observe(self, peak: int) -> None:
        """Take in a peak that no location seen so far changes."""
        top = max(self.peak, peak)
        self.deltas = {x: d._replace(peak=max(self.peak + d.peak, peak) - top) for x, d in self.deltas.items()}
        self.peak = top


@dataclass
class _Snapshot:
    """State held for a recomputed region between its run without recording and its reversal."""

    place: str
    live_before: int
    peak_before: int  # of the parent's recording, up to here
    time: float  # of writing, running and reading
    live: int = 0  # once the snapshot is written
    peak: int = 0  # while it ran without recording, and until it was read


class Profiler:
    """Listens to the events of one step; :meth:`savings` then says what each recomputed location costs.

    Args:
        snapshot_kept: whether snapshots are held until their region is reversed; see
            :func:`deep500.transformations.recomputation.region_tree.simulate`.

    Example:
        >>> inner = TreeRegion("inner", (40,), snapshot=8, time=3)
        >>> profiler = Profiler()
        >>> simulate(TreeRegion("root", (10, 20), (inner,), time=1), ["inner"], listener=profiler).peak
        50
        >>> profiler.savings()
        [Saving(place='inner', time=3, memory=20, instances=1)]
    """

    def __init__(self, snapshot_kept: bool = False) -> None:
        self.snapshot_kept = snapshot_kept
        self._levels = [_Level("")]
        self._snapshots: list[_Snapshot] = []
        self._reversed: list[_Snapshot] = []  # those whose reversal is going on
        self._instances: dict[str, int] = {}
        self._done = False

    def __call__(self, event: StepEvent) -> None:
        """Take one event in; raises PlanError where it cannot follow what came before."""
        if self._done:
            raise PlanError(f"got event {event.kind!r} after the step's end; expected none: take a new profiler")
        handler = getattr(self, f"_on_{event.kind}", None)
        if handler is None:
            raise PlanError(f"got event {event.kind!r}; expected one of those that StepEvent names")
        handler(event)

    def savings(self) -> list[Saving]:
        """One entry per location that was recomputed; raises PlanError before the step has ended."""
        if not self._done:
            raise PlanError("got no complete step; expected the events up to the root's end_rev: run one step")
        deltas = self._levels[0].deltas
        return [Saving(place, d.time, d.peak, self._instances[place]) for place, d in deltas.items()]

    @property
    def peak(self) -> int:
        """Most bytes held during the step."""
        return self._levels[0].peak

    # -- events -----------------------------------------------------------------------------------------------------
    def _on_snp_write(self, event: StepEvent) -> None:
        self._snapshots.append(_Snapshot(event.place, event.live, event.peak, -event.time))

    def _on_begin_adv(self, event: StepEvent) -> None:
        self._last(event).live = event.live
        self._snapshots[-1].peak = event.peak

    def _on_end_adv(self, event: StepEvent) -> None:
        snapshot = self._last(event)
        snapshot.time += event.time
        snapshot.peak = max(snapshot.peak, event.peak)

    def _on_snp_read(self, event: StepEvent) -> None:
        self._levels[-1].observe(event.peak)
        self._last(event).time -= event.time

    def _on_begin_rev(self, event: StepEvent) -> None:
        snapshot = self._last(event)
        snapshot.time += event.time
        snapshot.peak = max(snapshot.peak, event.peak)
        self._reversed.append(self._snapshots.pop())
        self._levels.append(_Level(event.place))

    def _on_turn(self, event: StepEvent) -> None:
        level = self._levels[-1]
        level.peak, level.turn = event.peak, event.live

    def _on_end_rev(self, event: StepEvent) -> None:
        level = self._levels[-1]
        level.observe(event.peak)
        if len(self._levels) == 1:
            self._done = True
            return
        self._levels.pop()
        self._merge(self._levels[-1], level, self._reversed.pop())

    def _last(self, event: StepEvent) -> _Snapshot:
        if not self._snapshots or self._snapshots[-1].place != event.place:
            got = self._snapshots[-1].place if self._snapshots else None
            raise PlanError(
                f"got event {event.kind!r} of {event.place!r} while the last snapshot is of {got!r}; expected them to "
                "nest: report events of one step only, in order"
            )
        return self._snapshots[-1]

    def _merge(self, parent: _Level, child: _Level, snapshot: _Snapshot) -> None:
        """Update all: the entries of both levels, relative to the parent's new peak."""
        # A location's delta says how the peak changes if it alone is not recomputed. Both levels' deltas are relative
        # to their own peaks, so all of them are rewritten once the larger of these is known.
        snapshot_bytes = snapshot.live - snapshot.live_before if self.snapshot_kept else 0
        top = max(parent.peak, child.peak, snapshot.peak)
        merged: dict[str, _Delta] = {}
        for place in dict.fromkeys([*parent.deltas, *child.deltas, child.place]):
            above, below = parent.deltas.get(place, _Delta()), child.deltas.get(place, _Delta())
            if place == child.place:  # its tape takes the place of its snapshot under all that came after it
                shift = child.turn - snapshot_bytes + below.turn - snapshot.live
                peak = max(parent.peak + above.peak + shift, child.peak + below.peak - snapshot_bytes)
                merged[place] = _Delta(above.time + below.time + snapshot.time, peak - top, above.turn + shift)
            else:
                peak = max(parent.peak + above.peak, child.peak + below.peak, snapshot.peak)
                merged[place] = _Delta(above.time + below.time, peak - top, above.turn)
        parent.peak, parent.deltas = top, merged
        parent.observe(snapshot.peak_before)
        self._instances[child.place] = self._instances.get(child.place, 0) + 1


def profile(root: TreeRegion, recomputed: Collection[str], *, snapshot_kept: bool = False) -> list[Saving]:
    """The savings of every recomputed location, from one simulated step.

    Example:
        >>> inner = TreeRegion("inner", (5,), snapshot=8, time=3)
        >>> profile(TreeRegion("root", (10, 20), (inner,)), ["inner"])
        [Saving(place='inner', time=3, memory=-3, instances=1)]
    """
    profiler = Profiler(snapshot_kept)
    simulate(root, recomputed, snapshot_kept=snapshot_kept, listener=profiler)
    return profiler.savings()


def group_savings(savings: Collection[Saving]) -> dict[str, list[Saving]]:
    """Savings as the paper's tool reports them: what also gains memory, what is neutral, what costs memory.

    The first two are sorted by falling time; the last by falling time per byte.

    Example:
        >>> savings = [Saving("a", 2, 0, 1), Saving("b", 1, -4, 1), Saving("c", 9, 3, 1), Saving("d", 8, 1, 1)]
        >>> {name: [s.place for s in group] for name, group in group_savings(savings).items()}
        {'gain': ['b'], 'neutral': ['a'], 'cost': ['d', 'c']}
    """
    by_time = sorted(savings, key=lambda s: -s.time)
    return {
        "gain": [s for s in by_time if s.memory < 0],
        "neutral": [s for s in by_time if s.memory == 0],
        "cost": sorted((s for s in by_time if s.memory > 0), key=lambda s: -s.time / s.memory),
    }


HEADINGS = {
    "gain": "leaving these out saves time and memory",
    "neutral": "leaving these out saves time and costs no memory",
    "cost": "leaving these out saves time and costs memory, by falling time per byte",
}


@dataclass(frozen=True)
class ProfileLine:
    """One location: what leaving its recomputation out alone changes, and where the step stands when all above is too.

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
    """A profiled step: its peak in bytes and its time, and a line for each recomputed location."""

    peak: int
    step: float
    time_unit: str
    lines: tuple[ProfileLine, ...]

    def data(self) -> dict[str, Any]:
        """The report as :func:`json.dumps` takes it."""
        return asdict(self)

    def __str__(self) -> str:
        unit = self.time_unit
        shown_lines = [f"peak {self.peak:,} B, step {self.step:.6g} {unit}, {len(self.lines)} locations recomputed"]
        head = ("location", "runs", f"saved [{unit}]", "peak change [B]", "then peak [B]", f"then step [{unit}]")
        rows = [head, *(_cells(line) for line in self.lines)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
        text = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        ]
        shown_lines.append(text[0])
        before = ""
        for line, shown in zip(self.lines, text[1:], strict=True):
            if line.group != before:
                shown_lines.append(f"{HEADINGS[line.group]}:")
                before = line.group
            shown_lines.append(shown)
        return "\n".join(shown_lines)


def _cells(line: ProfileLine) -> tuple[str, ...]:
    return (
        line.place,
        str(line.instances),
        f"{line.time:.6g}",
        f"{line.memory:+,}",
        f"{line.peak:,}",
        f"{line.step:.6g}",
    )


def profile_report(
    root: TreeRegion, recomputed: Collection[str], *, snapshot_kept: bool = False, time_unit: str = "s"
) -> ProfileReport:
    """Profile one simulated step and follow the guide from the top.

    Args:
        root: the tree of regions.
        recomputed: static locations that are.
        snapshot_kept: see :func:`deep500.transformations.recomputation.region_tree.simulate`.
        time_unit: of the tree's times.

    Example:
        >>> inner = TreeRegion("inner", (40,), snapshot=8, time=3)
        >>> print(profile_report(TreeRegion("root", (10, 20), (inner,), time=1), ["inner"]))
        peak 50 B, step 7 s, 1 locations recomputed
        location  runs  saved [s]  peak change [B]  then peak [B]  then step [s]
        leaving these out saves time and costs memory, by falling time per byte:
        inner        1          3              +20             70              4
    """
    on = set(recomputed)
    start = simulate(root, on, snapshot_kept=snapshot_kept)
    lines = []
    for group, savings in group_savings(profile(root, on, snapshot_kept=snapshot_kept)).items():
        for saving in savings:
            on.discard(saving.place)
            now = simulate(root, on, snapshot_kept=snapshot_kept)
            lines.append(
                ProfileLine(group, saving.place, saving.instances, saving.time, saving.memory, now.peak, now.time)
            )
    return ProfileReport(start.peak, start.time, time_unit, tuple(lines))
