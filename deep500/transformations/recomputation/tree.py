"""Nested regions of a computation with what each costs: the model on which plans are made.

A region is a call in a call tree, or a sub-graph of a network (Hascoet et al. 2024, arXiv 2405.15590, section 2).
Checkpointed, it runs once without recording while a snapshot of what it reads is kept, and again, recording, right
before its reversal. Else it records while its parent records. *Tape* is what is recorded for the reversal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from deep500.errors import PlanError


@dataclass(frozen=True)
class Region:
    """One region and, nested in it, those that it runs.

    Args:
        name: unique in the tree.
        own: bytes that the region itself records before, between and after its children: one more than children.
        children: regions that it runs, in order.
        snapshot: bytes that must be kept so that it can run again.
        time: of its own part of one run forward, without its children; any unit, the same in the whole tree.
        backward_time: of its own part of one reversal.
        location: static place; instances that share it share the decision. The name if empty.
        copy_time: to write and to read the snapshot, together.
        advance: bytes that running it without recording needs for a while, beyond its snapshot.
        overhead: bytes that its reversal needs for a while at its start, beyond its tape.
        candidate: whether it may be checkpointed; the root never is.

    Example:
        >>> inner = Region("inner", (40,), snapshot=8, time=3)
        >>> root = Region("root", (10, 20), (inner,), time=1)
        >>> root.total_time, root.full_tape, [region.name for region in root.walk()]
        (4, 70, ['root', 'inner'])
    """

    name: str
    own: tuple[int, ...] = (0,)
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
        if len(self.own) != len(self.children) + 1:
            raise PlanError(
                f"region {self.name!r}: got {len(self.own)} stretches of its own tape and {len(self.children)} "
                "children; expected one stretch before, between and after the children: give 0 where there is none"
            )
        sizes = (*self.own, self.snapshot, self.advance, self.overhead)
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
        """Of one run forward and one reversal, nothing checkpointed."""
        return sum(region.time + region.backward_time for region in self.walk())

    @cached_property
    def full_tape(self) -> int:
        """Bytes recorded by it and everything nested in it, nothing checkpointed."""
        return sum(self.own) + sum(child.full_tape for child in self.children)

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
    """The static locations that may be checkpointed, each with its instances, in the order in which they start.

    A location with an instance that is no candidate is none.

    Raises:
        PlanError: two regions have the same name.

    Example:
        >>> block = Region("a", (4,), location="block")
        >>> {k: len(v) for k, v in locations(Region("root", (0, 0, 0), (block, replace(block, name="b")))).items()}
        {'block': 2}
    """
    found: dict[str, list[Region]] = {}
    names: set[str] = {root.name}
    for region in root.walk():
        if region is root:
            continue
        if region.name in names:
            raise PlanError(f"got two regions named {region.name!r}; expected unique names: rename one")
        names.add(region.name)
        found.setdefault(region.place, []).append(region)
    return {place: regions for place, regions in found.items() if all(region.candidate for region in regions)}


def per_instance(root: Region) -> Region:
    """The same tree in which every region is a location of its own, to decide for each instance.

    Example:
        >>> block = Region("a", (4,), location="block")
        >>> list(locations(per_instance(Region("root", (0, 0), (block,)))))
        ['a']
    """
    return replace(root, location="", children=tuple(per_instance(child) for child in root.children))
