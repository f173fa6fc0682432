"""The best plan for a chain and a budget: Rotor's dynamic programme (Beaumont et al. 2019, arXiv 1911.13214).

C(s, t, m) is the least time to run and reverse stages s to t with m bytes free, the gradient entering after t among
them; d is the bytes of a gradient, a of an output, and a mode has forward time f, backward time b, saved bytes k:

    C(s, t, m) = min(keep, recompute)
    keep      = min over modes of  f + C(s + 1, t, m - k) + b              if m >= k + max(d_t + ..., d_s + ...)
    recompute = min over s < u <= t of  (forward of s .. u - 1, not recording) + C(u, t, m - a_(u-1)) + C(s, u - 1, m)

The outermost sweep forward runs before there is a gradient, so it has a table of its own, in which d_t is 0 forward.
Bytes are rounded up to slots, so no plan exceeds its budget; with as many slots as bytes it is exact. What a mode keeps
stays until its reversal: that is the one restriction of this family of plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from deep500.errors import PlanError
from deep500.transformations.recomputation.chain import ChainPlan, Keep, Recompute, Stage, simulate_chain
from deep500.transformations.recomputation.failures import budget_bytes, unreachable
from deep500.transformations.recomputation.sweep import Outcome


class ChainPlacement(NamedTuple):
    """A plan for a chain, what one step then takes by simulation, and how it was chosen."""

    plan: ChainPlan
    outcome: Outcome
    method: str


def optimal_chain(chain: Sequence[Stage], budget: float | int, slots: int = 500) -> ChainPlacement:
    """The quickest plan whose peak is within a budget, up to the rounding of bytes to slots.

    Args:
        chain: the stages, one at least.
        budget: bytes (int), or a share of the peak without checkpoints (float in (0, 1]).
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
    plan = _Table(chain, slot, limit // slot).plan()
    if plan is not None:
        return ChainPlacement(plan, simulate_chain(chain, plan), "optimal")
    smallest = smallest_chain(chain)
    if smallest.outcome.peak > limit:
        raise unreachable(limit, smallest.outcome.peak, full, "any plan for this chain")
    return smallest


def keep_all(chain: Sequence[Stage]) -> ChainPlan:
    """The plan without checkpoints: every stage kept, in its quickest mode."""
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
    plan = _Smallest(chain).plan()
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
class _Table:
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
        return tuple(self._elements(0, len(self.chain) - 1, self.slots, True))

    def _up(self, size: int) -> int:
        return -(-size // self.slot)

    def _fill(self, s: int, t: int, top: bool) -> None:
        best, choice = np.full(self.slots + 1, np.inf), np.zeros(self.slots + 1, np.int32)

        def offer(cost: np.ndarray, need: int, code: int) -> None:
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

    def _elements(self, s: int, t: int, m: int, top: bool) -> list[Keep | Recompute]:
        found: list[Keep | Recompute] = []
        while s <= t:
            code = int(self.choice[s, t, top][m])
            if code >= 0:
                found.append(Keep(s, code))
                s, m = s + 1, m - self._up(self.chain[s].modes[code].saved)
            else:
                u = -code
                found.append(Recompute(s, u - 1, tuple(self._elements(s, u - 1, m, False))))
                s, m = u, m - self._up(self.chain[u - 1].output)
        return found


class _Smallest:
    """P(s, t), the smallest peak, by the recurrence of C with max in the place of sums."""

    def __init__(self, chain: Sequence[Stage]) -> None:
        self.chain, self.sizes = chain, _Sizes(chain)
        self.found: dict[tuple[int, int, bool], tuple[int, int]] = {}
        last = len(chain) - 1
        for length in range(last + 1):
            for s in range(last - length + 1):
                self.found[s, s + length, False] = self._best(s, s + length, False)
        for s in range(last, -1, -1):
            self.found[s, last, True] = self._best(s, last, True)

    def _best(self, s: int, t: int, top: bool) -> tuple[int, int]:
        """The smallest peak, and by which choice: a mode, or minus the stage after a stretch that runs again."""
        options = []
        for i, mode in enumerate(self.chain[s].modes):
            later = mode.saved + self.found[s + 1, t, top][0] if s < t else 0
            options.append((max(self.sizes.keep(s, t, i, top), later), i))
        for u in range(s + 1, t + 1):
            rest = self.chain[u - 1].output + self.found[u, t, top][0]
            need = max(self.sizes.advance(s, t, u, top), rest, self.found[s, u - 1, False][0])
            options.append((need, -u))
        return min(options, key=lambda option: option[0])

    def plan(self) -> ChainPlan:
        return self._elements(0, len(self.chain) - 1, True)

    def _elements(self, s: int, t: int, top: bool) -> ChainPlan:
        if s > t:
            return ()
        code = self.found[s, t, top][1]
        if code >= 0:
            return (Keep(s, code), *self._elements(s + 1, t, top))
        u = -code
        return (Recompute(s, u - 1, self._elements(s, u - 1, False)), *self._elements(u, t, top))
