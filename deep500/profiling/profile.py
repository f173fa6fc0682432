"""`Profile`: the steps of one network in several frameworks, node by node; what is shown follows from kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from deep500.measure.bounds import Roofs
from deep500.measure.statistics import Interval
from deep500.networks.execution.step_profile import BACKWARD, FORWARD, Kernel, KernelPlace, ProfiledStep, held_by
from deep500.networks.node import Node
from deep500.profiling.work import Work

PHASES = (FORWARD, BACKWARD)


@dataclass(frozen=True)
class NodeRow:
    """A node of the network: its name, operator and work by phase, and the nodes whose values it reads."""

    name: str
    operator: str
    work: Mapping[str, Work]
    reads: Sequence[str] = ()

    def flops(self) -> int | None:
        """Operations forward and backward; None if a part is unknown."""
        counts = [work.flops for work in self.work.values()]
        return None if None in counts else sum(count for count in counts if count is not None)


@dataclass(frozen=True)
class Cell:
    """Cost of a node in one framework and phase: seconds, bytes reserved for results (None: not counted), and
    how many kernels ran."""

    seconds: float
    memory: int | None
    kernels: int


@dataclass(frozen=True)
class FrameworkProfile:
    """A step in one framework.

    Attributes:
        framework, version: of the backend.
        plain: median seconds of a step without the profiler.
        cost: a step under the profiler over the one before without, in pairs.
        step: the fastest of the profiled steps.
        fused: nodes that have no kernel of their own going forward, and the node in whose row they stand.
    """

    framework: str
    version: str
    plain: float
    cost: Interval
    step: ProfiledStep
    fused: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def cells(self) -> dict[KernelPlace, Cell]:
        """Times and memory by node and phase."""
        kernels: dict[KernelPlace, list[Kernel]] = {}
        for kernel in self.step.kernels:
            if kernel.place is not None:
                kernels.setdefault(kernel.place, []).append(kernel)
        return {place: _cell(group) for place, group in kernels.items()}

    @cached_property
    def outside(self) -> dict[str, float]:
        """Seconds that no node explains: kernels of no node, time between kernels, and Deep500's own.

        They and what is :attr:`explained` make up the step.
        """
        placed = covered(k for k in self.step.kernels if k.place is not None)
        everything, seconds = covered(self.step.kernels), self.step.seconds
        inside = seconds if self.step.inside is None else self.step.inside
        return {
            "(kernels of no node)": everything - placed,
            "(between kernels)": max(0.0, inside - everything),
            "(Deep500)": min(seconds - inside, seconds - everything),
        }

    @property
    def explained(self) -> float:
        """Share of the step in which a kernel of some node ran, 0 to 1."""
        return covered(k for k in self.step.kernels if k.place is not None) / self.step.seconds


def _cell(kernels: Sequence[Kernel]) -> Cell:
    sizes = [kernel.memory for kernel in kernels if kernel.memory is not None]
    return Cell(sum(kernel.seconds for kernel in kernels), sum(sizes) if sizes else None, len(kernels))


def covered(kernels: Iterable[Kernel]) -> float:
    """Seconds in which at least one of the kernels ran.

    Example:
        >>> covered([Kernel("a", 0.0, 2.0), Kernel("b", 1.0, 2.0, lane=1), Kernel("c", 5.0, 1.0)])
        4.0
    """
    total, end = 0.0, float("-inf")
    for kernel in sorted(kernels, key=lambda kernel: kernel.start):
        stop = kernel.start + kernel.seconds
        if stop > end:
            total += stop - max(kernel.start, end)
            end = stop
    return total


@dataclass(frozen=True)
class Profile:
    """One network in several frameworks.

    Attributes:
        subject: what was profiled.
        loss: the scalar that training steps differentiate; None for forward runs.
        shapes: of the inputs.
        machine: the facts that tell machines apart.
        roofs: what the machine can do.
        rows: nodes in the network's order.
        flops_elsewhere: operations that belong to no node, such as sums of gradients of inputs.
        frameworks: in the order they were asked for.
    """

    subject: str
    loss: str | None
    shapes: Mapping[str, Sequence[int]]
    machine: Mapping[str, Any]
    roofs: Roofs
    rows: Sequence[NodeRow]
    flops_elsewhere: int | None
    frameworks: Sequence[FrameworkProfile]

    def flops(self) -> int | None:
        """Operations of a step, as ``Network.flops`` has them; None if a part is unknown."""
        counts = [*(row.flops() for row in self.rows), self.flops_elsewhere]
        return None if None in counts else sum(count for count in counts if count is not None)

    def share_of_roof(self, work: Work, seconds: float) -> float | None:
        """The least time that the roofs allow for some work over the time that it took; None where it is unknown.

        Above 1 the operands lay in caches, which are faster than the memory that the roof was measured in.
        """
        if work.flops is None or work.bytes is None or not seconds:
            return None
        return max(work.flops / self.roofs.flops, work.bytes / self.roofs.bandwidth) / seconds


def in_rows(
    step: ProfiledStep, nodes: Sequence[Node], work: Mapping[tuple[str, str], Work]
) -> tuple[ProfiledStep, dict[str, str]]:
    """The step with kernels that compute several nodes in the row of the one that has most operations, and the others.

    Compilers name a fused kernel by one of its nodes, each by another one: so the same fusion would stand in another
    row in each framework.
    """
    forward = [k for k in step.kernels if k.place is not None and k.place.phase == FORWARD]
    fused = held_by(nodes, forward)
    groups: dict[str, list[str]] = {}
    for node, holder in fused.items():
        groups.setdefault(holder, [holder]).append(node)

    def operations(name: str) -> tuple[int, bool]:
        return work[name, FORWARD].flops or 0, name in groups  # where none has any it stays where it is

    target: dict[str, str] = {}
    for group in groups.values():
        chosen = max(group, key=operations)
        target.update(dict.fromkeys(group, chosen))
    kernels = [
        replace(k, place=KernelPlace(target.get(k.place.node, k.place.node), FORWARD))
        if k.place is not None and k.place.phase == FORWARD
        else k
        for k in step.kernels
    ]
    return replace(step, kernels=tuple(kernels)), {n: t for n, t in target.items() if n != t}
