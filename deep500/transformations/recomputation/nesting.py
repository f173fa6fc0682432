"""Which sets of values can be the regions of a plan: known ones, nested or disjoint."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from deep500.errors import PlanError


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
    ordered = sorted(map(frozenset, regions), key=len, reverse=True)
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
