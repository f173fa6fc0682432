"""Exact choice of the nested regions to recompute: a small mixed-integer program, solved by HiGHS through SciPy.

For every region v, x_v says whether it is recomputed (one x per static location) and w_v how many bytes it leaves on
the stack once the forward sweep has passed it; own_v is its own tape, M_v the most that it can leave, F_v the price of
its recomputation (one run of all of it, and copying the snapshot). Least sum of F_v x_v such that

    w_v >= snapshot_v x_v        and        w_v >= own_v + sum of w over its children - M_v x_v
    base(v) + own_v + sum of w over its children + overhead_v <= budget          (at the start of its reversal)
    base(v) + (snapshot_v + advance_v) x_v <= budget                             (while it runs without recording)

base(v) is what lies below it on the stack: for each ancestor its own tape and the w of its children up to the call,
and, where snapshots are kept until their region is reversed, snapshot_q x_q for v and all ancestors q below the root.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deep500.errors import PlanError
from deep500.transformations.integer_program import solve
from deep500.transformations.recomputation.budgets import budget_bytes, unreachable
from deep500.transformations.recomputation.region_tree import Outcome, Region, locations, simulate

_CUTS = 200  # plans that a solver's tolerance may let through before we give up


class Placement(NamedTuple):
    """Chosen locations, what one step then takes by simulation, and how that was chosen."""

    recomputed: tuple[str, ...]
    outcome: Outcome
    method: str


def optimal_placement(
    root: Region,
    budget: float | int,
    *,
    snapshot_kept: bool = False,
    gap: float = 1e-6,
    time_limit: float | None = None,
) -> Placement:
    """The placement with the least extra time whose peak is within a budget.

    Args:
        root: the tree of regions.
        budget: bytes (int), or a share of the peak without recomputation (float in (0, 1]).
        snapshot_kept: see :func:`deep500.transformations.recomputation.region_tree.simulate`.
        gap: how far from the optimum, relatively, the solver may stop.
        time_limit: seconds that the solver may take; None for no limit.

    Raises:
        BudgetError: no plan fits; names the smallest budget that one fits.
        PlanError: the solver ran out of time, or there is nothing within its tolerance.

    Example:
        >>> inner = Region("inner", (40,), snapshot=8, time=3)
        >>> root = Region("root", (10, 20), (inner,), time=1)
        >>> optimal_placement(root, 0.8).recomputed, optimal_placement(root, 70).recomputed
        (('inner',), ())
        >>> optimal_placement(root, 30)
        Traceback (most recent call last):
        deep500.errors.BudgetError: got a budget of 30 bytes; expected at least 50 (0.714 ...
    """
    full = simulate(root, ())
    limit = budget_bytes(budget, full.peak)
    if full.peak <= limit:
        return Placement((), full, "optimal")
    program = _PlacementProgram(root, snapshot_kept)
    solution = program.solve(limit, gap, time_limit) if limit else None
    if solution is None:
        smallest = smallest_placement(root, snapshot_kept=snapshot_kept, time_limit=time_limit)
        raise unreachable(limit, smallest.outcome.peak, full.peak, "any placement")
    return Placement(solution, simulate(root, solution, snapshot_kept=snapshot_kept), "optimal")


def smallest_placement(root: Region, *, snapshot_kept: bool = False, time_limit: float | None = None) -> Placement:
    """A placement with the smallest peak there is (to 1e-6 of the peak without recomputation), whatever it costs.

    Example:
        >>> smallest_placement(Region("root", (10, 20), (Region("inner", (40,), snapshot=8, time=3),))).outcome.peak
        50
    """
    solution = _PlacementProgram(root, snapshot_kept).solve(None, 1e-6, time_limit)
    assert solution is not None, "without a budget there is a plan"
    return Placement(solution, simulate(root, solution, snapshot_kept=snapshot_kept), "smallest peak")


@dataclass
class _Row:
    """sum of coefficient * variable + constant; variables are ``("x", place)`` and ``("w", region name)``."""

    terms: dict[tuple[str, str], float]
    constant: float = 0

    def plus(self, *others: tuple[tuple[str, str], float], constant: float = 0) -> _Row:
        terms = dict(self.terms)
        for key, value in others:
            terms[key] = terms.get(key, 0) + value
        return _Row(terms, self.constant + constant)


def _most_left(region: Region) -> int:
    """The most bytes that a region leaves recorded; more than its tape where a snapshot in it is larger than a tape."""
    return sum(region.own_tape) + sum(max(_most_left(child), child.snapshot) for child in region.children)


class _PlacementProgram:
    """The program of one tree; bytes are scaled to the peak without recomputation, so that tolerances mean the same."""

    def __init__(self, root: Region, snapshot_kept: bool) -> None:
        self.root, self.snapshot_kept = root, snapshot_kept
        self.places = locations(root)
        self.regions = [region for region in root.walk() if region is not root]
        keys = [*(("x", p) for p in self.places), *(("w", r.name) for r in self.regions), ("peak", "")]
        self.index = {key: i for i, key in enumerate(keys)}
        self.scale = float(max(simulate(root, ()).peak, 1))
        self.cuts: list[tuple[str, ...]] = []

    def solve(self, budget: int | None, gap: float, time_limit: float | None) -> tuple[str, ...] | None:
        """Recomputed locations, or None if nothing fits; without a budget those of the smallest peak."""
        for _ in range(_CUTS):
            placed = self._solve_once(budget, gap, time_limit)
            if placed is None or budget is None or self._fits(placed, budget):
                return placed
            self.cuts.append(placed)  # over the budget by less than the solver's tolerance: not this one
        raise PlanError(
            f"got {_CUTS} plans that are over {budget} bytes by less than the solver's tolerance; expected one "
            "within: change the budget a little"
        )

    def _fits(self, placed: tuple[str, ...], budget: int) -> bool:
        return simulate(self.root, placed, snapshot_kept=self.snapshot_kept).peak <= budget

    def _solve_once(self, budget: int | None, gap: float, time_limit: float | None) -> tuple[str, ...] | None:
        from scipy.optimize import Bounds, LinearConstraint

        prices = {p: sum(r.total_time + r.copy_time for r in rs) for p, rs in self.places.items()}
        unit = max(prices.values(), default=0) or 1.0
        cost = np.zeros(len(self.index))
        for place, price in prices.items():
            cost[self.index["x", place]] = price / unit if budget is not None else 0
        count = len(self.places)
        lower, upper = np.zeros(len(cost)), np.full(len(cost), np.inf)
        upper[:count] = 1
        if budget is None:
            cost[-1] = 1
        else:
            upper[-1] = budget / self.scale
        matrix, bound = self._matrix()
        options: dict[str, Any] = {"mip_rel_gap": gap} | ({} if time_limit is None else {"time_limit": time_limit})
        # fmt: off
        result = solve(
            cost, integrality=np.arange(len(cost)) < count, bounds=Bounds(lower, upper),
            constraints=LinearConstraint(matrix, -np.inf, bound), options=options,
        )
        # fmt: on
        if result.status == 2:  # infeasible
            return None
        if result.status != 0:
            raise PlanError(
                f"got no optimum for {count} locations: {result.message}; expected one: allow more time or a wider gap"
            )
        return tuple(place for place in self.places if result.x[self.index["x", place]] > 0.5)

    def _matrix(self) -> tuple[Any, np.ndarray]:
        """All rows as ``matrix @ variables <= bound``."""
        from scipy.sparse import coo_array

        rows = [*self._rows(self.root, _Row({}))]
        for cut in self.cuts:
            terms = {("x", p): (1.0 if p in cut else -1.0) * self.scale for p in self.places}
            rows.append(_Row(terms, (1 - len(cut)) * self.scale))
        entries = [
            (i, self.index[key], value if key[0] == "w" else value / self.scale)  # w is in units of the scale
            for i, row in enumerate(rows)
            for key, value in row.terms.items()
        ]
        at, column, value = (np.array(part) for part in zip(*entries, strict=True))
        shape = (len(rows), len(self.index))
        matrix = coo_array((value, (at.astype(int), column.astype(int))), shape=shape).tocsr()
        return matrix, np.array([-row.constant / self.scale for row in rows])

    def _rows(self, region: Region, base: _Row) -> Iterator[_Row]:
        """Rows ``<= 0`` of a region and of all that is nested in it; ``base`` lies below it on the stack."""
        left = [(("w", child.name), 1.0) for child in region.children]
        switch = ("x", region.place) if region is not self.root and region.place in self.places else None
        within = (("peak", ""), -self.scale)
        if region is not self.root:
            weight = ("w", region.name)
            tape = _Row({}).plus(*left, (weight, -1.0), constant=sum(region.own_tape))
            yield tape.plus((switch, -float(_most_left(region)))) if switch else tape
            if switch:
                yield _Row({weight: -1.0, switch: float(region.snapshot)})
                yield base.plus((switch, float(region.snapshot + region.advance)), within)
        if self.snapshot_kept and switch:
            base = base.plus((switch, float(region.snapshot)))
        yield base.plus(*left, within, constant=sum(region.own_tape) + region.overhead)
        for child, own_before in zip(region.children, region.own_tape, strict=False):
            base = base.plus(constant=own_before)
            yield from self._rows(child, base)
            base = base.plus((("w", child.name), 1.0))
