"""Equality saturation of terms of two shape environments: what generated rules are proved by."""

from __future__ import annotations

from collections.abc import Sequence

from deep500.transformations.substitutions.proofs.saturation import saturate_loaded
from deep500.transformations.workshop.substitutions.encoding import EgglogTerms
from deep500.transformations.workshop.substitutions.terms import Expression

Goal = tuple[Expression, Expression]


def saturate(
    goals: Sequence[Goal], rules: Sequence[str], iterations: int = 5, limit: int = 2_000_000
) -> list[int | None]:
    """For every goal the iteration that proved it, or None.

    Args:
        goals: pairs of terms; all share one e-graph.
        rules: egglog rules (`rewrites`).
        iterations: rounds of all rules.
        limit: stop when the e-graph holds more tuples than this.

    Raises:
        MissingEngine: egglog is not installed.
        ShapeMismatch: a goal's terms do not fit together.
    """
    return saturate_loaded([_load(n, goal) for n, goal in enumerate(goals)], rules, iterations, limit)


def _load(number: int, goal: Goal) -> str:
    """A rule that runs once and puts a goal into the e-graph; one per goal."""
    definitions = EgglogTerms()
    sides = " ".join([definitions.add(goal[0]), definitions.add(goal[1])])
    return f"(rule () ({' '.join(definitions.lines)} (goal {number} {sides})) :ruleset load)"
