"""Chains of stages, and the best plan for one: model and dynamic programme of Rotor (Beaumont et al. 2019, 1911.13214).

A plan visits the stages in order. A stage is kept, recording in one of its modes; or a stretch of stages runs without
recording, only its output being held, and runs again under a plan of its own when its reversal comes.

C(s, t, m) is the least time to run and reverse stages s to t with m bytes free, the gradient entering after t among
them; d is the bytes of a gradient, a of an output, and a mode has forward time f, backward time b, saved bytes k:

    C(s, t, m) = min(keep, recompute)
    keep      = min over modes of  f + C(s + 1, t, m - k) + b              if m >= k + max(d_t + ..., d_s + ...)
    recompute = min over s < u <= t of  (forward of s .. u - 1, not recording) + C(u, t, m - a_(u-1)) + C(s, u - 1, m)

The outermost sweep forward runs before there is a gradient, so it has a table of its own, in which d_t is 0 forward.
Bytes are rounded up to slots, so no plan exceeds its budget; with as many slots as bytes it is exact. What a mode keeps
stays until its reversal: that is the one restriction of this family of plans.

Where only one activation crosses between the innermost regions of a network, these are the stages of a chain. Its plans
may let any stretch run again, nested as deep as pays, not only the groups that names have scopes for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from deep500.errors import PlanError
from deep500.networks.graph import Graph
from deep500.networks.hashing import structure_hash
from deep500.transformations.recomputation.budgets import budget_bytes, unreachable
from deep500.transformations.recomputation.plan_file import CheckpointingPlan, PlannedRegion
from deep500.transformations.recomputation.region_tree import Outcome

if TYPE_CHECKING:
    from deep500.transformations.recomputation.regions import NetworkRegions


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
    _check_order(plan, 0, len(chain) - 1)
    step = ChainSimulation(chain)
    step.forward(plan)
    step.hold(chain[-1].delta)
    step.backward(plan)
    quickest = sum(min(mode.forward + mode.backward for mode in stage.modes) for stage in chain)
    return Outcome(step.peak, step.time, step.time - quickest)


def _check_order(plan: ChainPlan, first: int, last: int) -> None:
    at = first
    for element in plan:
        start, end = (element.first, element.last) if isinstance(element, Recompute) else (element.stage,) * 2
        if start != at or end < start:
            raise PlanError(f"got {element} at stage {at}; expected the stages {first} to {last} in order, each once")
        if isinstance(element, Recompute):
            _check_order(element.plan, start, end)
        at = end + 1
    if at != last + 1:
        raise PlanError(f"got a plan that ends before stage {at}; expected the stages {first} to {last}")


class ChainSimulation:
    """Live bytes and a clock, stage by stage."""

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


class ChainPlacement(NamedTuple):
    """A plan for a chain, what one step then takes by simulation, and how it was chosen."""

    plan: ChainPlan
    outcome: Outcome
    method: str


def optimal_chain(chain: Sequence[Stage], budget: float | int, slots: int = 500) -> ChainPlacement:
    """The quickest plan whose peak is within a budget, up to the rounding of bytes to slots.

    Args:
        chain: the stages, one at least.
        budget: bytes (int), or a share of the peak without recomputation (float in (0, 1]).
        slots: into how many the budget is divided; time grows linearly with them. Where rounding leaves no plan
            although one exists, the plan with the smallest peak is returned, and ``method`` says so.

    Raises:
        BudgetError: no plan fits; names the smallest budget that one fits, exactly.

    Example:
        >>> from deep500.transformations.recomputation.chain import Mode
        >>> stage = Stage("s", output=4, modes=(Mode(1, 2, saved=10),), forward=1)
        >>> optimal_chain([stage] * 3, 0.9).plan
        (Keep(stage=0, mode=0), Recompute(first=1, last=1, plan=(Keep(stage=1, mode=0),)), Keep(stage=2, mode=0))
    """
    if not chain or slots < 1:
        raise PlanError(f"got {len(chain)} stages and {slots} slots; expected one of each at least")
    full = simulate_chain(chain, keep_all(chain)).peak
    limit = budget_bytes(budget, full)
    slot = max(1, limit // slots)
    plan = CostTable(chain, slot, limit // slot).plan()
    if plan is not None:
        return ChainPlacement(plan, simulate_chain(chain, plan), "optimal")
    smallest = smallest_chain(chain)
    if smallest.outcome.peak > limit:
        raise unreachable(limit, smallest.outcome.peak, full, "any plan for this chain")
    return smallest


def keep_all(chain: Sequence[Stage]) -> ChainPlan:
    """The plan without recomputation: every stage kept, in its quickest mode."""
    return tuple(
        Keep(k, min(range(len(stage.modes)), key=lambda i, s=stage: s.modes[i].forward + s.modes[i].backward))  # type: ignore[misc]
        for k, stage in enumerate(chain)
    )


def smallest_chain(chain: Sequence[Stage]) -> ChainPlacement:
    """The plan with the smallest peak there is, exactly, whatever it costs.

    Example:
        >>> from deep500.transformations.recomputation.chain import Mode
        >>> smallest_chain([Stage("s", output=4, modes=(Mode(1, 2, saved=10),), forward=1)] * 3).outcome.peak
        18
    """
    plan = _SmallestPeak(chain).plan()
    return ChainPlacement(plan, simulate_chain(chain, plan), "smallest peak")


class _Sizes:
    """Bytes that elements of a plan need, over what lies below."""

    def __init__(self, chain: Sequence[Stage]) -> None:
        self.chain, self.last = chain, len(chain) - 1

    def keep(self, s: int, t: int, mode: int, top: bool) -> int:
        m, incoming = self.chain[s].modes[mode], 0 if top else self.chain[t].delta
        return m.saved + max(incoming + m.forward_overhead, self.chain[s].delta + m.backward_overhead)

    def advance(self, s: int, t: int, u: int, top: bool) -> int:
        """While stages s to u - 1 run without recording."""
        need, before = 0, 0
        for stage in self.chain[s:u]:
            need, before = max(need, before + stage.output + stage.overhead), stage.output
        return need + (0 if top else self.chain[t].delta)


@dataclass
class CostTable:
    """C(s, t, m) for all stretches and numbers of slots, filled by length."""

    chain: Sequence[Stage]
    slot: int
    slots: int
    cost: dict[tuple[int, int, bool], np.ndarray] = field(default_factory=dict)
    choice: dict[tuple[int, int, bool], np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sizes = _Sizes(self.chain)
        last = len(self.chain) - 1
        self.times = np.concatenate([[0.0], np.cumsum([stage.forward for stage in self.chain])])
        for length in range(last + 1):
            for s in range(last - length + 1):
                self._fill(s, s + length, False)
        for s in range(last, -1, -1):
            self._fill(s, last, True)

    def plan(self) -> ChainPlan | None:
        """The plan of the whole chain, None if nothing fits."""
        if not np.isfinite(self.cost[0, len(self.chain) - 1, True][-1]):
            return None
        return tuple(self.elements(0, len(self.chain) - 1, self.slots, True))

    def _up(self, size: int) -> int:
        return -(-size // self.slot)

    def _fill(self, s: int, t: int, top: bool) -> None:
        best, choice = np.full(self.slots + 1, np.inf), np.zeros(self.slots + 1, np.int32)

        def offer(cost: np.ndarray, need: int, code: int) -> None:
            # With fewer free slots than the element itself needs it does not fit, whatever comes later.
            cost[: min(self._up(need), self.slots + 1)] = np.inf
            better = cost < best
            best[better], choice[better] = cost[better], code

        for i, mode in enumerate(self.chain[s].modes):
            later = self._with_less(s + 1, t, top, mode.saved) if s < t else np.zeros(self.slots + 1)
            offer(mode.forward + mode.backward + later, self.sizes.keep(s, t, i, top), i)
        for u in range(s + 1, t + 1):
            first, rest = self.cost[s, u - 1, False], self._with_less(u, t, top, self.chain[u - 1].output)
            offer(self.times[u] - self.times[s] + rest + first, self.sizes.advance(s, t, u, top), -u)
        self.cost[s, t, top], self.choice[s, t, top] = best, choice

    def _with_less(self, s: int, t: int, top: bool, size: int) -> np.ndarray:
        """C(s, t, m - size) for all m."""
        shift = min(self._up(size), self.slots + 1)
        return np.concatenate([np.full(shift, np.inf), self.cost[s, t, top][: self.slots + 1 - shift]])

    def elements(self, s: int, t: int, m: int, top: bool) -> list[Keep | Recompute]:
        elements: list[Keep | Recompute] = []
        while s <= t:
            code = int(self.choice[s, t, top][m])
            if code >= 0:
                elements.append(Keep(s, code))
                s, m = s + 1, m - self._up(self.chain[s].modes[code].saved)
            else:
                u = -code
                elements.append(Recompute(s, u - 1, tuple(self.elements(s, u - 1, m, False))))
                s, m = u, m - self._up(self.chain[u - 1].output)
        return elements


class _SmallestPeak:
    """P(s, t), the smallest peak, by the recurrence of C with max in the place of sums."""

    def __init__(self, chain: Sequence[Stage]) -> None:
        self.chain, self.sizes = chain, _Sizes(chain)
        self.best: dict[tuple[int, int, bool], tuple[int, int]] = {}
        last = len(chain) - 1
        for length in range(last + 1):
            for s in range(last - length + 1):
                self.best[s, s + length, False] = self._best(s, s + length, False)
        for s in range(last, -1, -1):
            self.best[s, last, True] = self._best(s, last, True)

    def _best(self, s: int, t: int, top: bool) -> tuple[int, int]:
        """The smallest peak, and by which choice: a mode, or minus the stage after a stretch that runs again."""
        options = []
        for i, mode in enumerate(self.chain[s].modes):
            later = mode.saved + self.best[s + 1, t, top][0] if s < t else 0
            options.append((max(self.sizes.keep(s, t, i, top), later), i))
        for u in range(s + 1, t + 1):
            rest = self.chain[u - 1].output + self.best[u, t, top][0]
            options.append((max(self.sizes.advance(s, t, u, top), rest, self.best[s, u - 1, False][0]), -u))
        return min(options, key=lambda option: option[0])

    def plan(self) -> ChainPlan:
        return self.elements(0, len(self.chain) - 1, True)

    def elements(self, s: int, t: int, top: bool) -> ChainPlan:
        if s > t:
            return ()
        code = self.best[s, t, top][1]
        if code >= 0:
            return (Keep(s, code), *self.elements(s + 1, t, top))
        u = -code
        return (Recompute(s, u - 1, self.elements(s, u - 1, False)), *self.elements(u, t, top))


_SLOTS = 2000  # a budget's resolution is 0.05 %
_MANY = 40  # stages beyond which a coarser resolution must do, as time grows with slots and stages


def innermost_regions(regions: NetworkRegions) -> list[PlannedRegion]:
    """The innermost regions in order; together they hold all nodes of the forward pass.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.regions import find_regions
        >>> [region.name for region in innermost_regions(find_regions(add_loss(create("resnet", depth=8)), 2))][::2]
        ['conv1:relu1', 'layer2.0.conv1:layer2.0.relu2', 'avgpool:loss']
    """
    return [
        PlannedRegion(region.name, region.place, regions.values(region))
        for region in regions.innermost()
        if region is not regions.root
    ]


def linked_regions(regions: NetworkRegions) -> list[PlannedRegion]:
    """The innermost regions joined to stages of a chain: each reads activations of the one before it alone.

    More than one value may cross between two of them, as from each step of a recurrent cell to the next.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.regions import find_regions
        >>> regions = find_regions(add_loss(create("unet", levels=1)), 2, crossing=2)
        >>> len(innermost_regions(regions)), len(linked_regions(regions))
        (8, 5)
    """
    known = {part.name: part for part in innermost_regions(regions)}
    groups = [[known[region.name] for region in group if region.name in known] for group in regions.linked()]
    return [_joined(group) for group in groups if group]


def counted_stages(regions: NetworkRegions) -> list[Stage]:
    """The innermost regions as stages with what was counted in the network; a backend may measure them instead.

    Example:
        >>> from deep500.networks import add_loss, create
        >>> from deep500.transformations.recomputation.regions import find_regions
        >>> stages = counted_stages(find_regions(add_loss(create("resnet", depth=8)), 2))
        >>> len(stages), stages[1].output, stages[1].modes[0].saved
        (5, 131072, 524288)
    """
    return [
        Stage(
            region.name,
            region.snapshot,
            (Mode(region.time, region.backward_time, region.full_tape, 0, region.overhead),),
            region.time,
            region.advance,
            0,  # gradients are in what reversing it takes
        )
        for region in regions.innermost()
    ]


def plan_chain(
    network: Graph,
    batch: int,
    regions: NetworkRegions,
    chain: Sequence[Stage],
    budget: float | int,
    backend: str,
    slots: int | None = None,
    parts: Sequence[PlannedRegion] | None = None,
) -> CheckpointingPlan:
    """The quickest plan within a budget for a network whose innermost regions are a chain with measured stages.

    Args:
        network, batch: what to plan for.
        regions: those of the network at that batch size.
        chain: one stage for each of :func:`innermost_regions`; times in seconds.
        budget: bytes (int), or a share of the peak of the chain without recomputation (float in (0, 1]).
        backend: where the stages were measured.
        slots: see :func:`optimal_chain`; 2000 if None, fewer for more than 40 stages.
        parts: what the stages are, :func:`linked_regions` for instance; the innermost regions if None.

    Raises:
        BudgetError: no plan fits; names the smallest budget that one fits.
    """
    if slots is None:
        slots = _SLOTS if len(chain) <= _MANY else max(_SLOTS * _MANY // len(chain), 200)
    limit = budget_bytes(budget, simulate_chain(chain, keep_all(chain)).peak)
    return as_plan(network, batch, regions, optimal_chain(chain, limit, slots), limit, backend, parts)


def as_plan(
    network: Graph,
    batch: int,
    regions: NetworkRegions,
    placement: ChainPlacement,
    budget: int,
    backend: str,
    parts: Sequence[PlannedRegion] | None = None,
) -> CheckpointingPlan:
    """A placement on the chain of a network's innermost regions as a plan for the network; see :func:`plan_chain`.

    Raises:
        PlanError: the placement is of another number of stages than the network has innermost regions.
    """
    parts, outcome = innermost_regions(regions) if parts is None else parts, placement.outcome
    end = placement.plan[-1]
    if (end.stage if isinstance(end, Keep) else end.last) != len(parts) - 1:
        raise PlanError(
            f"got a placement that ends with {end}; expected the last of {len(parts)} stages, as the network has "
            "innermost regions: measure innermost_regions(regions)"
        )
    recomputed = planned_regions(placement.plan, parts)
    return CheckpointingPlan(
        structure_hash(network),
        batch,
        regions.step.loss,
        backend,
        recomputed,
        budget,
        outcome.peak,
        outcome.time,
        outcome.extra,
        "s",
        placement.method,
    )


def _recomputed(plan: ChainPlan) -> Iterator[Recompute]:
    """Recomputed stretches, outermost first."""
    for element in plan:
        if not isinstance(element, Keep):
            yield element
            yield from _recomputed(element.plan)


def planned_regions(plan: ChainPlan, parts: Sequence[PlannedRegion]) -> tuple[PlannedRegion, ...]:
    """The regions that a plan for a chain runs again, outermost first; ``parts`` are what its stages are.

    Example:
        >>> from deep500.transformations.recomputation.plan_file import PlannedRegion
        >>> parts = [PlannedRegion(name, name, (name,)) for name in "ab"]
        >>> [region.values for region in planned_regions((Recompute(0, 0, (Keep(0),)), Keep(1)), parts)]
        [('a',)]
    """
    return tuple(_joined(parts[element.first : element.last + 1]) for element in _recomputed(plan))


def _joined(parts: Sequence[PlannedRegion]) -> PlannedRegion:
    """Consecutive ones as one."""
    if len(parts) == 1:
        return parts[0]
    name = f"{parts[0].values[0]}..{parts[-1].values[-1]}"
    return PlannedRegion(name, name, tuple(value for part in parts for value in part.values))
