"""Revolve: the optimal schedule for a uniform chain, a snapshot being all that a slot holds (Griewank & Walther 2000).

The number of runs of a step for l steps and s snapshots, the start's included, is l + r l - C(s + r, s + 1), with the
least r for which C(s + r, s) >= l; as a recurrence, without those that record, with R(l, 1) = l (l - 1) / 2:

    R(l, s) = min over 0 < i < l of  i + R(l - i, s - 1) + R(i, s)
"""

from __future__ import annotations

from functools import cache
from math import comb
from typing import NamedTuple

from deep500.errors import PlanError


class Action(NamedTuple):
    """One action of a schedule.

    Attributes:
        kind: ``store`` the state before step ``first``; ``restore`` it; ``drop`` it; ``advance`` from the state before
            step ``first`` to that before ``last``; ``reverse`` step ``first``, after running it once, recording.
        first, last: steps, counted from 0.
    """

    kind: str
    first: int
    last: int


def revolve_steps(steps: int, snapshots: int) -> int:
    """Number of forward runs of steps in all, in closed form: one run that records for each, and the repeated ones.

    Example:
        >>> revolve_steps(20, 5), revolve_steps(100, 10)
        (53, 322)
    """
    _check(steps, snapshots)
    r = 0
    while comb(snapshots + r, snapshots) < steps:
        r += 1
    return steps + r * steps - comb(snapshots + r, snapshots + 1)


def revolve(steps: int, snapshots: int) -> list[Action]:
    """The schedule, from the state before step 0 to the reversal of step 0.

    Args:
        steps: length of the chain, at least 1.
        snapshots: how many states may be stored at a time, that before step 0 included, at least 1.

    Example:
        >>> [f"{a.kind} {a.first}" for a in revolve(2, 1)]
        ['store 0', 'advance 0', 'reverse 1', 'restore 0', 'reverse 0', 'drop 0']
    """
    _check(steps, snapshots)
    actions: list[Action] = [Action("store", 0, 0)]
    _reverse(0, steps, snapshots, actions)
    return [*actions, Action("drop", 0, 0)]


def _check(steps: int, snapshots: int) -> None:
    if steps < 1 or snapshots < 1:
        raise PlanError(f"got {steps} steps and {snapshots} snapshots; expected one of each at least")


def _reverse(start: int, end: int, snapshots: int, actions: list[Action]) -> None:
    """Reverse steps start to end - 1; the state before ``start`` is the current one, and stored in one of the slots."""
    while end - start > 1:
        middle = start + _split(end - start, snapshots)[1]
        actions.append(Action("advance", start, middle))
        if middle < end - 1 and snapshots > 1:
            actions.append(Action("store", middle, middle))
            _reverse(middle, end, snapshots - 1, actions)
            actions.append(Action("drop", middle, middle))
        else:  # one step is left: it needs no snapshot
            actions.append(Action("reverse", middle, middle + 1))
        actions.append(Action("restore", start, start))
        end = middle
    actions.append(Action("reverse", start, start + 1))


@cache
def _split(steps: int, snapshots: int) -> tuple[int, int]:
    """R(steps, snapshots), and the step before which the next snapshot is stored."""
    if steps == 1:
        return 0, 0
    if snapshots == 1:
        return steps * (steps - 1) // 2, steps - 1
    options = ((i + _split(steps - i, snapshots - 1)[0] + _split(i, snapshots)[0], i) for i in range(1, steps))
    return min(options)
