"""Nested regions of a computation, what each costs, and one step over them: the model on which plans are made.

A region is a call in a call tree, or a sub-graph of a network (Hascoet et al. 2024, arXiv 2405.15590, section 2).
Recomputed ("recomputed", in the paper), it runs once without recording while a snapshot of what it reads is kept, and
again, recording, right before its reversal: joint mode. Else it records while its parent records: split mode. *Tape* is
what is recorded for the reversal. Time grows linearly in the decisions, the sum over recomputed instances of their
whole run; the peak does not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

from deep500.errors import PlanError, nearest


@dataclass(frozen=True)
class Region:
    """One region and, nested in it, those that it runs.

    Args:
        name: unique in the tree.
        own_tape: bytes that the region itself records before, between and after its children: one more than children.
        children: regions that it runs, in order.
        snapshot: bytes that must be kept so that it can run again.
        time: of its own part of one run forward, without its children; any unit, the same in the whole tree.
        backward_time: of its own part of one reversal.
        location: static place; instances that share it share the decision. The name if empty.
        copy_time: to write and to read the snapshot, together.
        advance: bytes that running it without recording needs for a while, beyond its snapshot.
        overhead: bytes that its reversal needs for a while at its start, beyond its tape.
        candidate: whether it may be recomputed; the root never is.

    Example:
        >>> inner = Region("inner", (40,), snapshot=8, time=3)
        >>> root = Region("root", (10, 20), (inner,), time=1)
        >>> root.total_time, root.full_tape, [region.name for region in root.walk()]
        (4, 70, ['root', 'inner'])
    """

    name: str
    own_tape: tuple[int, ...] = (0,)
    children: tuple[Region, ...] = ()
    snapshot: int = 0
    time: float = 0
    backward_time: float = 0
    location: str = ""
    copy_time: float = 0
    advance: int = 0
    overhead: int = 0
    candidate: bool = True

    def __post_init__(self) -> None:
        if len(self.own_tape) != len(self.children) + 1:
            raise PlanError(
                f"region {self.name!r}: got {len(self.own_tape)} stretches of its own tape and {len(self.children)} "
                "children; expected one stretch before, between and after the children: give 0 where there is none"
            )
        sizes = (*self.own_tape, self.snapshot, self.advance, self.overhead)
        times = (self.time, self.backward_time, self.copy_time)
        if any(x < 0 for x in (*sizes, *times)) or any(x != int(x) for x in sizes):
            raise PlanError(
                f"region {self.name!r}: got bytes {sizes} and times {times}; expected whole bytes and times, none "
                "negative: measure them again"
            )

    @cached_property
    def total_time(self) -> float:
        """Of one run forward with everything nested in it."""
        return self.time + sum(child.total_time for child in self.children)

    @cached_property
    def step_time(self) -> float:
        """Of one run forward and one reversal, nothing recomputed."""
        return sum(region.time + region.backward_time for region in self.walk())

    @cached_property
    def full_tape(self) -> int:
        """Bytes recorded by it and everything nested in it, nothing recomputed."""
        return sum(self.own_tape) + sum(child.full_tape for child in self.children)

    @property
    def place(self) -> str:
        """Its static location."""
        return self.location or self.name

    def walk(self) -> Iterator[Region]:
        """It and everything nested in it, in the order in which they start."""
        yield self
        for child in self.children:
            yield from child.walk()


def locations(root: Region) -> dict[str, list[Region]]:
    """The static locations that may be recomputed, each with its instances, in the order in which they start.

    A location with an instance that is no candidate is none.

    Raises:
        PlanError: two regions have the same name.

    Example:
        >>> block = Region("a", (4,), location="block")
        >>> {k: len(v) for k, v in locations(Region("root", (0, 0, 0), (block, replace(block, name="b")))).items()}
        {'block': 2}
    """
    instances: dict[str, list[Region]] = {}
    names: set[str] = {root.name}
    for region in root.walk():
        if region is root:
            continue
        if region.name in names:
            raise PlanError(f"got two regions named {region.name!r}; expected unique names: rename one")
        names.add(region.name)
        instances.setdefault(region.place, []).append(region)
    return {place: regions for place, regions in instances.items() if all(region.candidate for region in regions)}


def per_instance(root: Region) -> Region:
    """The same tree in which every region is a location of its own, to decide for each instance.

    Example:
        >>> block = Region("a", (4,), location="block")
        >>> list(locations(per_instance(Region("root", (0, 0), (block,)))))
        ['a']
    """
    return replace(root, location="", children=tuple(per_instance(child) for child in root.children))


class StepEvent(NamedTuple):
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


Listener: TypeAlias = Callable[[StepEvent], None]


class Outcome(NamedTuple):
    """Memory and time of one step.

    Attributes:
        peak: most bytes of tape, snapshots and overheads held at once.
        time: of the step, in the tree's unit.
        extra: the part of it that is due to recomputation: repeated runs, and snapshots written and read.
    """

    peak: int
    time: float
    extra: float


def simulate(
    root: Region, recomputed: Collection[str], *, snapshot_kept: bool = False, listener: Listener | None = None
) -> Outcome:
    """Peak and time of one step under a plan.

    Args:
        root: the tree; itself never recomputed.
        recomputed: static locations that are.
        snapshot_kept: whether a snapshot is held until its region is reversed, as networks hold a region's input;
            else it is dropped before the run that records, as Tapenade does.
        listener: called with every event.

    Raises:
        PlanError: a name is no location that may be recomputed.

    Example:
        >>> inner = Region("inner", (40,), snapshot=8, time=3)
        >>> root = Region("root", (10, 20), (inner,), time=1)
        >>> simulate(root, []), simulate(root, ["inner"])
        (Outcome(peak=70, time=4, extra=0), Outcome(peak=50, time=7, extra=3))
    """
    known = locations(root)
    for place in recomputed:
        if place not in known:
            raise PlanError(f"got location {place!r}; expected one that may be recomputed: {nearest(place, known)}")
    step = _TreeSimulation(frozenset(recomputed), snapshot_kept, listener)
    step.record(root)
    step.emit("turn", root)
    step.reverse(root)
    step.emit("end_rev", root)
    extra = sum(r.total_time + r.copy_time for place in step.on for r in known[place])
    return Outcome(step.peak, root.step_time + extra, extra)


class _TreeSimulation:
    """The stack and the clock."""

    def __init__(self, on: frozenset[str], snapshot_kept: bool, listener: Listener | None) -> None:
        self.on, self.snapshot_kept, self.listener = on, snapshot_kept, listener
        self.live, self.peak, self.recent = 0, 0, 0
        self.clock: float = 0

    def hold(self, size: int, extra: int = 0) -> None:
        """Hold ``size`` bytes more (or fewer), and ``extra`` beyond that for a moment."""
        self.live += size
        self.recent = max(self.recent, self.live + extra)
        self.peak = max(self.peak, self.recent)

    def emit(self, kind: str, region: Region) -> None:
        if self.listener is not None:
            self.listener(StepEvent(kind, region.place, self.live, self.recent, self.clock))
        self.recent = self.live

    def record(self, region: Region) -> None:
        self.hold(region.own_tape[0])
        for child, after in zip(region.children, region.own_tape[1:], strict=True):
            if child.place in self.on:
                self.advance(child)
            else:
                self.record(child)
            self.hold(after)
        self.clock += region.time

    def advance(self, region: Region) -> None:
        self.emit("snp_write", region)
        self.hold(region.snapshot)
        self.clock += region.copy_time
        self.emit("begin_adv", region)
        self.hold(0, region.advance)
        self.clock += region.total_time
        self.emit("end_adv", region)

    def reverse(self, region: Region) -> None:
        self.hold(0, region.overhead)
        for child, after in zip(reversed(region.children), reversed(region.own_tape[1:]), strict=True):
            self.hold(-after)
            if child.place in self.on:
                self.rerun(child)
            else:
                self.reverse(child)
        self.hold(-region.own_tape[0])
        self.clock += region.backward_time

    def rerun(self, region: Region) -> None:
        self.emit("snp_read", region)
        if not self.snapshot_kept:
            self.hold(-region.snapshot)
        self.emit("begin_rev", region)
        self.record(region)
        self.emit("turn", region)
        self.reverse(region)
        if self.snapshot_kept:
            self.hold(-region.snapshot)
        self.emit("end_rev", region)


def outermost_first(regions: Sequence[Collection[str]], written: Collection[str]) -> list[frozenset[str]]:
    """Regions, outer ones before those in them.

    Args:
        regions: for each the values that its nodes write.
        written: all values that the forward pass writes.

    Raises:
        PlanError: unknown values, or regions that overlap.

    Example:
        >>> [sorted(region) for region in outermost_first([{"b"}, {"a", "b"}], "abc")]
        [['a', 'b'], ['b']]
        >>> outermost_first([{"a", "b"}, {"b", "c"}], "abc")
        Traceback (most recent call last):
        deep500.errors.PlanError: got regions that overlap in ['b']; expected nested or disjoint ones: plan again
    """
    known = frozenset(written)
    ordered = sorted(map(frozenset, regions), key=len, reverse=True)  # a region is larger than those in it
    for i, outer in enumerate(ordered):
        if unknown := sorted(outer - known):
            raise PlanError(
                f"got values {unknown[:4]} in a region; expected some that the forward pass writes: plan again for "
                "this network"
            )
        for inner in ordered[i + 1 :]:
            if outer & inner and not inner < outer:
                raise PlanError(
                    f"got regions that overlap in {sorted(outer & inner)[:4]}; expected nested or disjoint ones: plan "
                    "again"
                )
    return ordered
