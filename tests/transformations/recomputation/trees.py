"""Random trees of nested regions, with whole numbers so that comparisons are exact."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from deep500.transformations.recomputation.region_tree import TreeRegion, locations, simulate


def random_tree(seed: int, regions: int, *, places: int | None = None, transient: bool = False) -> TreeRegion:
    """A random tree with a number of regions below its root.

    With ``places``, regions share that number of static locations; with ``transient``, they need more while they run.
    """
    rng = np.random.default_rng(seed)
    parents = [int(rng.integers(0, i)) for i in range(1, regions + 1)]
    below: dict[int, list[int]] = {i: [] for i in range(regions + 1)}
    for child, parent in enumerate(parents, 1):
        below[parent].append(child)

    def build(index: int) -> TreeRegion:
        children = tuple(build(child) for child in below[index])
        own = tuple(int(v) for v in rng.integers(0, 30, len(children) + 1))
        return TreeRegion(
            f"r{index}",
            own,
            children,
            snapshot=int(rng.integers(1, 40)),
            time=int(rng.integers(1, 20)),
            backward_time=int(rng.integers(1, 40)),
            location=f"place{rng.integers(0, places)}" if places else "",
            copy_time=int(rng.integers(0, 3)),
            advance=int(rng.integers(0, 60)) if transient else 0,
            overhead=int(rng.integers(0, 40)) if transient else 0,
        )

    return build(0)


def subsets(root: TreeRegion) -> Iterator[tuple[str, ...]]:
    """Every plan there is."""
    places = list(locations(root))
    for count in range(len(places) + 1):
        yield from combinations(places, count)


def best_by_trying(root: TreeRegion, budget: int, snapshot_kept: bool) -> float | None:
    """The least extra time of all plans within a budget, None if there is none."""
    outcomes = [simulate(root, plan, snapshot_kept=snapshot_kept) for plan in subsets(root)]
    return min((outcome.extra for outcome in outcomes if outcome.peak <= budget), default=None)


def mismatches(root: TreeRegion, snapshot_kept: bool) -> tuple[int, int]:
    """Locations, and those of them whose profiled change is not what running again without their checkpoint shows."""
    from deep500.transformations.recomputation.profiler import profile

    places = set(locations(root))
    base = simulate(root, places, snapshot_kept=snapshot_kept)
    wrong = 0
    savings = profile(root, places, snapshot_kept=snapshot_kept)
    assert {s.place for s in savings} == places
    for saving in savings:
        again = simulate(root, places - {saving.place}, snapshot_kept=snapshot_kept)
        wrong += (base.time - again.time, again.peak - base.peak) != (saving.time, saving.memory)
    return len(savings), wrong
