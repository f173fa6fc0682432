"""One step over a tree of regions: what is live when, and what runs twice. Simulates plans and feeds the profiler.

Joint mode for checkpointed regions, split mode for the others (Hascoet et al. 2024, arXiv 2405.15590, section 2). Time
grows linearly in the decisions, the sum over checkpointed instances of their whole run; the peak does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

from deep500.errors import PlanError, nearest
from deep500.transformations.recomputation.tree import Region, locations


class Event(NamedTuple):
    """Something that happened during a step.

    Attributes:
        kind: ``snp_write`` (before a snapshot is written), ``begin_adv`` and ``end_adv`` (around a run without
            recording), ``snp_read`` (before a snapshot is read), ``begin_rev`` (before the run that records), ``turn``
            (after it), ``end_rev`` (after the reversal, all that the region held being given back).
        place: static location of the region; the root's name for the turn and the end of the whole step.
        live: bytes held when it happened.
        peak: most bytes held since the event before.
        time: clock when it happened.
    """

    kind: str
    place: str
    live: int
    peak: int
    time: float


Listener: TypeAlias = Callable[[Event], None]


class Outcome(NamedTuple):
    """What one step takes.

    Attributes:
        peak: most bytes of tape, snapshots and overheads held at once.
        time: of the step, in the tree's unit.
        extra: the part of it that is due to checkpoints: repeated runs, and snapshots written and read.
    """

    peak: int
    time: float
    extra: float


def simulate(
    root: Region, checkpointed: Collection[str], *, snapshot_kept: bool = False, listener: Listener | None = None
) -> Outcome:
    """Peak and time of one step under a plan.

    Args:
        root: the tree; itself never checkpointed.
        checkpointed: static locations that are.
        snapshot_kept: whether a snapshot is held until its region is reversed, as networks hold a region's input;
            else it is dropped before the run that records, as Tapenade does.
        listener: is told every event.

    Raises:
        PlanError: a name is no location that may be checkpointed.

    Example:
        >>> inner = Region("inner", (40,), snapshot=8, time=3)
        >>> root = Region("root", (10, 20), (inner,), time=1)
        >>> simulate(root, []), simulate(root, ["inner"])
        (Outcome(peak=70, time=4, extra=0), Outcome(peak=50, time=7, extra=3))
    """
    known = locations(root)
    for place in checkpointed:
        if place not in known:
            raise PlanError(f"got location {place!r}; expected one that may be checkpointed: {nearest(place, known)}")
    machine = _Machine(frozenset(checkpointed), snapshot_kept, listener)
    machine.record(root)
    machine.tell("turn", root)
    machine.reverse(root)
    machine.tell("end_rev", root)
    extra = sum(r.total_time + r.copy_time for place in machine.on for r in known[place])
    return Outcome(machine.peak, root.step_time + extra, extra)


class _Machine:
    """The stack and the clock."""

    def __init__(self, on: frozenset[str], snapshot_kept: bool, listener: Listener | None) -> None:
        self.on, self.snapshot_kept, self.listener = on, snapshot_kept, listener
        self.live, self.peak, self.recent = 0, 0, 0
        self.clock: float = 0

    def hold(self, size: int, extra: int = 0) -> None:
        """Hold so many bytes more (or fewer), and ``extra`` beyond that for a moment."""
        self.live += size
        self.recent = max(self.recent, self.live + extra)
        self.peak = max(self.peak, self.recent)

    def tell(self, kind: str, region: Region) -> None:
        if self.listener is not None:
            self.listener(Event(kind, region.place, self.live, self.recent, self.clock))
        self.recent = self.live

    def record(self, region: Region) -> None:
        self.hold(region.own[0])
        for child, after in zip(region.children, region.own[1:], strict=True):
            if child.place in self.on:
                self.advance(child)
            else:
                self.record(child)
            self.hold(after)
        self.clock += region.time

    def advance(self, region: Region) -> None:
        self.tell("snp_write", region)
        self.hold(region.snapshot)
        self.clock += region.copy_time
        self.tell("begin_adv", region)
        self.hold(0, region.advance)
        self.clock += region.total_time
        self.tell("end_adv", region)

    def reverse(self, region: Region) -> None:
        self.hold(0, region.overhead)
        for child, after in zip(reversed(region.children), reversed(region.own[1:]), strict=True):
            self.hold(-after)
            if child.place in self.on:
                self.rerun(child)
            else:
                self.reverse(child)
        self.hold(-region.own[0])
        self.clock += region.backward_time

    def rerun(self, region: Region) -> None:
        self.tell("snp_read", region)
        if not self.snapshot_kept:
            self.hold(-region.snapshot)
        self.tell("begin_rev", region)
        self.record(region)
        self.tell("turn", region)
        self.reverse(region)
        if self.snapshot_kept:
            self.hold(-region.snapshot)
        self.tell("end_rev", region)
