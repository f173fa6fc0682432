"""Chains of stages, plans for them, and what a plan takes: the model of Rotor (Beaumont et al. 2019, arXiv 1911.13214).

A plan visits the stages in order. A stage is kept, recording in one of its modes; or a stretch of stages runs without
recording, only its output being held, and runs again under a plan of its own when its reversal comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from deep500.errors import PlanError
from deep500.transformations.recomputation.sweep import Outcome


class Mode(NamedTuple):
    """A way to run a stage so that it can be reversed, such as "save all" or "save what convolutions give".

    Attributes:
        forward, backward: time of the recording run and of the reversal, in any one unit.
        saved: bytes that it keeps, the stage's output included, its input and parameters not.
        forward_overhead, backward_overhead: bytes needed for a while beyond what is held before and after.
    """

    forward: float
    backward: float
    saved: int
    forward_overhead: int = 0
    backward_overhead: int = 0


@dataclass(frozen=True)
class Stage:
    """One stage of a chain.

    Args:
        name: for people.
        output: bytes of what it hands on.
        modes: at least one.
        forward: time of a run without recording.
        overhead: bytes that such a run needs for a while beyond input and output.
        gradient: bytes of the gradient of its output; as many as the output's if None.
    """

    name: str
    output: int
    modes: tuple[Mode, ...]
    forward: float
    overhead: int = 0
    gradient: int | None = None

    def __post_init__(self) -> None:
        if not self.modes:
            raise PlanError(f"stage {self.name!r}: got no mode; expected one at least: measure the stage recording")
        numbers = (self.output, self.forward, self.overhead, self.gradient or 0, *(v for m in self.modes for v in m))
        if any(number < 0 for number in numbers):
            raise PlanError(f"stage {self.name!r}: got {numbers}; expected no negative number: measure it again")

    @property
    def delta(self) -> int:
        """Bytes of the gradient of its output."""
        return self.output if self.gradient is None else self.gradient


class Keep(NamedTuple):
    """Run a stage recording, in one of its modes."""

    stage: int
    mode: int = 0


class Recompute(NamedTuple):
    """Run stages ``first`` to ``last`` without recording; again, under ``plan``, before they are reversed."""

    first: int
    last: int
    plan: tuple[Element, ...]


Element: TypeAlias = Keep | Recompute
ChainPlan: TypeAlias = tuple[Element, ...]


def simulate_chain(chain: Sequence[Stage], plan: ChainPlan) -> Outcome:
    """Peak and time of one step; ``extra`` is relative to keeping every stage in its quickest mode.

    The chain's input is held by others and does not count.

    Raises:
        PlanError: the plan does not visit every stage once, in order.

    Example:
        >>> stage = Stage("s", output=4, modes=(Mode(1, 2, saved=10),), forward=1)
        >>> simulate_chain([stage] * 2, (Keep(0), Keep(1)))
        Outcome(peak=24, time=6, extra=0)
        >>> simulate_chain([stage] * 2, (Recompute(0, 0, (Keep(0),)), Keep(1)))
        Outcome(peak=18, time=7, extra=1)
    """
    _check(plan, 0, len(chain) - 1)
    machine = _Machine(chain)
    machine.forward(plan)
    machine.hold(chain[-1].delta)
    machine.backward(plan)
    quickest = sum(min(mode.forward + mode.backward for mode in stage.modes) for stage in chain)
    return Outcome(machine.peak, machine.time, machine.time - quickest)


def _check(plan: ChainPlan, first: int, last: int) -> None:
    at = first
    for element in plan:
        start, end = (element.first, element.last) if isinstance(element, Recompute) else (element.stage,) * 2
        if start != at or end < start:
            raise PlanError(f"got {element} at stage {at}; expected the stages {first} to {last} in order, each once")
        if isinstance(element, Recompute):
            _check(element.plan, start, end)
        at = end + 1
    if at != last + 1:
        raise PlanError(f"got a plan that ends before stage {at}; expected the stages {first} to {last}")


class _Machine:
    """What is live, and the clock."""

    def __init__(self, chain: Sequence[Stage]) -> None:
        self.chain = chain
        self.live, self.peak = 0, 0
        self.time: float = 0

    def hold(self, size: int, extra: int = 0) -> None:
        self.peak = max(self.peak, self.live + extra)
        self.live += size
        self.peak = max(self.peak, self.live)

    def forward(self, plan: ChainPlan) -> None:
        for element in plan:
            if isinstance(element, Keep):
                mode = self.chain[element.stage].modes[element.mode]
                self.hold(mode.saved, mode.saved + mode.forward_overhead)
                self.time += mode.forward
            else:
                self.advance(element)

    def advance(self, element: Recompute) -> None:
        before = 0
        for stage in self.chain[element.first : element.last + 1]:
            self.hold(0, before + stage.output + stage.overhead)
            self.time += stage.forward
            before = stage.output
        self.hold(before)

    def backward(self, plan: ChainPlan) -> None:
        """Reverse; the gradient of the last output is live at the start, that of the input at the end."""
        for element in reversed(plan):
            if isinstance(element, Keep):
                stage = self.chain[element.stage]
                mode = stage.modes[element.mode]
                self.hold(0, mode.backward_overhead)
                before = self.chain[element.stage - 1].delta if element.stage else 0
                self.hold(before - stage.delta - mode.saved)
                self.time += mode.backward
            else:
                self.hold(-self.chain[element.last].output)
                self.forward(element.plan)
                self.backward(element.plan)
