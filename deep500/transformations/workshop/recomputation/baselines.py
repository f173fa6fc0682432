"""Placements and plans to compare with: everything recomputed, the greedy guide, equal segments; and the front."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isqrt

import numpy as np

from deep500.errors import PlanError
from deep500.transformations.recomputation.budgets import budget_bytes, unreachable
from deep500.transformations.recomputation.chain import (
    ChainPlacement,
    ChainStage,
    Keep,
    Recompute,
    keep_all,
    simulate_chain,
)
from deep500.transformations.recomputation.placement import Placement, optimal_placement, smallest_placement
from deep500.transformations.recomputation.profiler import group_savings, profile
from deep500.transformations.recomputation.region_tree import TreeRegion, locations, simulate


def everything(root: TreeRegion, *, snapshot_kept: bool = False) -> Placement:
    """Every location recomputed: where the paper's method starts.

    Example:
        >>> everything(TreeRegion("root", (10, 20), (TreeRegion("inner", (40,), snapshot=8, time=3),))).outcome.peak
        50
    """
    places = tuple(locations(root))
    return Placement(places, simulate(root, places, snapshot_kept=snapshot_kept), "everything")


def greedy(root: TreeRegion, budget: float | int, *, snapshot_kept: bool = False, reprofile: bool = False) -> Placement:
    """The guide of Hascoet et al. 2024 (arXiv 2405.15590): from everything, leave out what pays best per byte.

    First all locations whose recomputation costs time and saves no memory, then the others by falling time per byte; a
    location that would exceed the budget stays. Where the paper adds up predicted changes, every one is simulated here,
    which never exceeds the budget by mistake.

    Args:
        root: the tree of regions.
        budget: bytes (int), or a share of the peak without recomputation (float in (0, 1]).
        snapshot_kept: see :func:`deep500.transformations.recomputation.region_tree.simulate`.
        reprofile: profile again after every decision instead of once.

    Raises:
        BudgetError: what it finds does not fit; names the peak of that.

    Example:
        >>> inner = TreeRegion("inner", (40,), snapshot=8, time=3)
        >>> greedy(TreeRegion("root", (10, 20), (inner,), time=1), 60).recomputed
        ('inner',)
    """
    full = simulate(root, ())
    limit = budget_bytes(budget, full.peak)
    on = set(locations(root))
    order = _order(root, on, snapshot_kept)
    refused: set[str] = set()
    while order:
        place = order.pop(0)
        before, after = (simulate(root, plan, snapshot_kept=snapshot_kept).peak for plan in (on, on - {place}))
        if after > max(limit, before):
            refused.add(place)
            continue
        on.remove(place)
        if reprofile:
            order = [p for p in _order(root, on, snapshot_kept) if p not in refused]
    plan = tuple(place for place in locations(root) if place in on)
    outcome = simulate(root, plan, snapshot_kept=snapshot_kept)
    if outcome.peak > limit:
        raise unreachable(limit, outcome.peak, full.peak, "the greedy guide")
    return Placement(plan, outcome, "greedy, profiled again" if reprofile else "greedy")


def _order(root: TreeRegion, on: set[str], snapshot_kept: bool) -> list[str]:
    return [s.place for g in group_savings(profile(root, on, snapshot_kept=snapshot_kept)).values() for s in g]


def pareto(
    root: TreeRegion, points: int = 9, *, snapshot_kept: bool = False, time_limit: float | None = None
) -> list[Placement]:
    """The optimal placements at evenly spaced budgets, from the smallest peak to none recomputed.

    Args:
        root: the tree of regions.
        points: how many budgets, at least 2.
        snapshot_kept: see :func:`deep500.transformations.recomputation.region_tree.simulate`.
        time_limit: seconds that the solver may take for each.

    Returns:
        placements by rising peak and falling time; none is as large and as slow as another.

    Example:
        >>> inner = TreeRegion("inner", (40,), snapshot=8, time=3)
        >>> [(p.outcome.peak, p.outcome.extra) for p in pareto(TreeRegion("root", (10, 20), (inner,), time=1))]
        [(50, 3), (70, 0)]
    """
    if points < 2:
        raise PlanError(
            f"got {points} points; expected at least 2, the smallest peak and no recomputation: ask for more"
        )
    low = smallest_placement(root, snapshot_kept=snapshot_kept, time_limit=time_limit).outcome.peak
    high = simulate(root, ()).peak
    front: list[Placement] = []
    for budget in dict.fromkeys(int(b) for b in np.linspace(low, high, points).round()):
        placement = optimal_placement(root, budget, snapshot_kept=snapshot_kept, time_limit=time_limit)
        if not front or placement.outcome.extra < front[-1].outcome.extra:
            front.append(placement)
    return front


def segmented(chain: Sequence[ChainStage], segments: int | None = None) -> ChainPlacement:
    """Equal segments, all but the last of them recomputed, as ``torch.utils.checkpoint_sequential`` cuts them.

    Args:
        chain: the stages.
        segments: how many, 1 to the number of stages; the rounded square root of that if None.

    Raises:
        PlanError: there are not as many stages.

    Example:
        >>> from deep500.transformations.recomputation.chain import Mode
        >>> chain = [ChainStage("s", output=4, modes=(Mode(1, 2, saved=10),), forward=1)] * 4
        >>> segmented(chain).outcome
        Outcome(peak=28, time=14, extra=2)
    """
    count = len(chain)
    root = isqrt(count)
    segments = (root + (count - root * root > root)) if segments is None else segments
    if not 1 <= segments <= count:
        raise PlanError(f"got {segments} segments; expected 1 to {count}, one stage each at least: ask for fewer")
    actions, length = keep_all(chain), count // segments
    starts = [i * length for i in range(segments)]
    cuts = [Recompute(first, end - 1, actions[first:end]) for first, end in pairwise(starts)]
    plan: tuple[Keep | Recompute, ...] = (*cuts, *actions[starts[-1] :])
    return ChainPlacement(plan, simulate_chain(chain, plan), f"{segments} segments")


def every_stage(chain: Sequence[ChainStage]) -> ChainPlacement:
    """Every stage recomputed by itself.

    Example:
        >>> from deep500.transformations.recomputation.chain import Mode
        >>> every_stage([ChainStage("s", output=4, modes=(Mode(1, 2, saved=10),), forward=1)] * 4).outcome
        Outcome(peak=26, time=16, extra=4)
    """
    plan = tuple(Recompute(k, k, (keep,)) for k, keep in enumerate(keep_all(chain)))
    return ChainPlacement(plan, simulate_chain(chain, plan), "every stage")
