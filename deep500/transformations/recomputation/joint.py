"""Recomputation and pieces of the batch chosen together for a chain of stages: an integer program, and its bound.

The chain is covered by *sections*, consecutive stages that are treated in one way: kept, computed again (with a plan of
their own, nested as deep as pays), or computed again piece by piece of the batch. With x_a = 1 for the sections taken,
T their time, K the bytes that they hold after their forward pass, P what they need besides while they run:

    minimise    sum T_a x_a
    such that   sum over a that end before s of K_a x_a  +  sum over a that begin at s of (K_a + P_a) x_a  <=  B
                sections follow each other:  sum that end before s  =  sum that begin at s,  1 at the start
    for every stage s, with P forward and with P backward.

Of the sections that begin at s at most one is taken, so the rows are exact without further constants. Every plan of
one means alone is a feasible point: what the solver returns is never slower than either, in this model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint
from scipy.sparse import lil_array

from deep500.errors import BudgetError, PlanError
from deep500.transformations.integer_program import solve
from deep500.transformations.recomputation.chain import (
    ChainPlan,
    ChainSimulation,
    CostTable,
    Keep,
    Recompute,
    Stage,
    keep_all,
    optimal_chain,
    simulate_chain,
    smallest_chain,
)

_SLOTS = 150  # of the table that nested plans are taken from
_NESTED = 3  # plans of a stretch that runs again, from the quickest to the smallest
_SECONDS = 20.0


class ChainSection(NamedTuple):
    """Stages ``first`` to ``last`` treated in one way.

    Attributes:
        first, last: of the chain.
        pieces: of the batch; 1 for the whole.
        plan: of its stages, if it is not in pieces.
        time: of its forward and backward pass.
        saved: bytes size from its forward to its backward pass.
        forward, backward: bytes that it needs besides while it runs and while it is reversed.
    """

    first: int
    last: int
    pieces: int
    plan: ChainPlan
    time: float
    saved: float
    forward: float
    backward: float


class JointChoice(NamedTuple):
    """The sections chosen, in order.

    Attributes:
        sections: cover the chain.
        time: of a step, by the model.
        peak: bytes, by the model.
        bound: no choice of these sections within the budget takes less time.
    """

    sections: tuple[ChainSection, ...]
    time: float
    peak: float
    bound: float


def choose_sections(sections: Sequence[ChainSection], budget: float) -> JointChoice:
    """The quickest cover of a chain within a budget.

    Args:
        sections: those that may be taken.
        budget: bytes.

    Raises:
        BudgetError: no cover fits; ``smallest`` is the least budget that one fits, proven by the solver.
        PlanError: the sections do not cover the chain, or the solver needs longer than 20 seconds.

    Example:
        >>> keep = [ChainSection(s, s, 1, (), 3.0, 10, 0, 4) for s in range(2)]
        >>> again = ChainSection(0, 1, 2, (), 8.0, 1, 5, 9)
        >>> choose_sections([*keep, again], 30).time, choose_sections([*keep, again], 12).time
        (6.0, 8.0)
    """
    count = 1 + max((section.last for section in sections), default=-1)
    scale = max((s.saved + max(s.forward, s.backward) for s in sections), default=0) or 1.0
    constraints = _constraints(sections, count, scale)
    times = np.array([section.time for section in sections])
    unit = float(times.max(initial=0)) or 1.0
    whole, options = np.append(np.ones(len(sections)), 0), {"mip_rel_gap": 0.0, "time_limit": _SECONDS}
    limits = Bounds(0, np.append(np.ones(len(sections)), max(budget, 0) / scale))
    solved = solve(
        np.append(times / unit, 0), integrality=whole, bounds=limits, constraints=constraints, options=options
    )
    if solved.x is None and solved.status != 2:  # 2: proven that no cover fits
        raise PlanError(
            f"got no choice of {len(sections)} sections within {_SECONDS:g} s ({solved.message}); expected one: cut "
            "the network in fewer stages, or plan recomputation alone"
        )
    if solved.x is None:
        limits = Bounds(0, np.append(np.ones(len(sections)), np.inf))
        least = solve(
            np.append(0 * times, 1), integrality=whole, bounds=limits, constraints=constraints, options=options
        )
        if least.x is None:
            raise PlanError(
                f"got {len(sections)} sections that do not cover {count} stages; expected every stage in one"
            )
        smallest = math.ceil(peak_of(_taken(sections, least.x)))
        raise BudgetError(
            f"got a budget of {budget:.0f} bytes; expected at least {smallest}, the least that any choice of these "
            "sections needs: raise the budget to that",
            smallest,
        )
    bound = solved.fun if solved.mip_dual_bound is None else solved.mip_dual_bound
    chosen = _taken(sections, solved.x)
    return JointChoice(chosen, sum(section.time for section in chosen), peak_of(chosen), float(bound) * unit)


def _constraints(sections: Sequence[ChainSection], count: int, scale: float) -> list[LinearConstraint]:
    """The rows above, of one variable for every section and, last, the peak."""
    follow, rows = lil_array((count + 1, len(sections) + 1)), lil_array((2 * count, len(sections) + 1))
    for a, section in enumerate(sections):
        follow[section.first, a] += 1
        follow[section.last + 1, a] -= 1
        for s in range(section.last + 1, count):
            rows[2 * s, a] = rows[2 * s + 1, a] = section.saved / scale
        for offset, need in enumerate((section.forward, section.backward)):
            rows[2 * section.first + offset, a] = (section.saved + need) / scale
    ends = np.zeros(count + 1)
    ends[0], ends[count] = 1, -1
    rows[:, -1] = -1  # the last variable is the peak
    flow = LinearConstraint(follow.tocsr(), ends, ends)
    return [flow, LinearConstraint(rows.tocsr(), -np.inf, 0)]


def _taken(sections: Sequence[ChainSection], x: np.ndarray) -> tuple[ChainSection, ...]:
    return tuple(sorted(section for section, share in zip(sections, x[:-1], strict=True) if share > 0.5))


def peak_of(sections: Sequence[ChainSection]) -> float:
    """Bytes that sections in order hold at most, by the model.

    Example:
        >>> peak_of([ChainSection(0, 0, 1, (), 1.0, 10, 0, 4), ChainSection(1, 1, 1, (), 1.0, 5, 7, 2)])
        22.0
    """
    below, peak = 0.0, 0.0
    for section in sections:
        peak = max(peak, below + section.saved + max(section.forward, section.backward))
        below += section.saved
    return peak


def sections_of(
    chain: Sequence[Stage], cuttable: Sequence[bool], pieces: dict[int, float], budget: float
) -> list[ChainSection]:
    """The ways in which stretches of a chain may be treated.

    Args:
        chain: the stages.
        cuttable: whether each may work on pieces of the batch.
        pieces: by number of pieces the time of a step in so many, over that of the whole batch.
        budget: bytes; the best plan within it without pieces is among the ways.

    Example:
        >>> from deep500.transformations.recomputation.chain import Mode
        >>> chain = [Stage("s", output=4, modes=(Mode(1, 2, saved=10),), forward=1)] * 3
        >>> sorted({section.pieces for section in sections_of(chain, [True] * 3, {2: 1.1}, 30)})
        [1, 2]
    """
    end = len(chain) - 1
    saved = [ChainSection(s, s, 1, *_run(chain, (plan,))) for s, plan in enumerate(keep_all(chain))]
    return [*saved, *_run_again(chain, budget), *_in_pieces(chain, cuttable, pieces, end)]


def _run_again(chain: Sequence[Stage], budget: float) -> list[ChainSection]:
    """Stretches with plans of their own, from the quickest on; and those of the best plan without pieces."""
    full = simulate_chain(chain, keep_all(chain)).peak
    slot = max(1, full // _SLOTS)
    table = CostTable(chain, slot, full // slot)
    again = list[ChainSection]()
    for first in range(len(chain) - 1):
        for last in range(first, len(chain) - 1):
            cost = table.cost[first, last, False]
            steps = np.flatnonzero(np.isfinite(cost) & np.append(True, cost[1:] < cost[:-1]))
            for slots in steps[np.unique(np.linspace(0, len(steps) - 1, _NESTED).astype(int))] if len(steps) else ():
                plan = tuple(table.elements(first, last, int(slots), False))
                again.append(ChainSection(first, last, 1, *_run(chain, (Recompute(first, last, plan),))))
    best = [smallest_chain(chain).plan]
    with suppress(BudgetError):
        best.append(optimal_chain(chain, int(budget), _SLOTS).plan)
    alone = [element for plan in best for element in plan if isinstance(element, Recompute)]
    return [*again, *(ChainSection(e.first, e.last, 1, *_run(chain, (e,))) for e in alone)]


def _run(chain: Sequence[Stage], plan: ChainPlan) -> tuple[ChainPlan, float, int, int, int]:
    """A plan of some stages as a section: simulated alone."""
    step, end = ChainSimulation(chain), plan[-1]
    step.forward(plan)
    saved, forward = step.live, step.peak - step.live
    step.peak = 0
    step.hold(chain[end.stage if isinstance(end, Keep) else end.last].delta)
    step.backward(plan)
    return plan, step.time, saved, max(forward, 0), max(step.peak - saved, 0)


def _in_pieces(
    chain: Sequence[Stage], cuttable: Sequence[bool], pieces: dict[int, float], end: int
) -> list[ChainSection]:
    """Stretches that are computed again piece by piece; of the last stage the last piece is saved."""
    sections = list[ChainSection]()
    for first in range(len(chain)):
        for last in range(first, len(chain)):
            if not all(cuttable[first : last + 1]):
                break
            stretch = chain[first : last + 1]
            whole = simulate_chain(stretch, keep_all(stretch))
            again = sum(stage.forward for stage in stretch)
            transient = max(stage.output + stage.overhead for stage in stretch)
            before = (chain[first - 1].output + chain[first - 1].delta) if first else 0
            for count, price in pieces.items():
                piece = math.ceil(whole.peak / count)
                spared, size = (again / count, piece) if last == end else (0.0, stretch[-1].output)
                time = price * (whole.time + again - spared)
                forward = math.ceil(transient / count) + (0 if last == end else stretch[-1].output)
                backward = (0 if last == end else piece) + before + stretch[-1].delta
                sections.append(ChainSection(first, last, count, (), time, size, forward, backward))
    return sections
