"""Budgets that cannot be, as errors with the number that helps."""

from __future__ import annotations

from numbers import Integral, Real

from deep500.errors import BudgetError, PlanError


def check_budget(budget: float | int) -> None:
    """Raise PlanError unless a budget is a positive number of bytes, or a share in (0, 1].

    Example:
        >>> check_budget(0.5)
        >>> check_budget(1000)
    """
    is_number = isinstance(budget, Real) and not isinstance(budget, bool)
    if not is_number or not budget > 0 or (not isinstance(budget, Integral) and budget > 1):
        raise PlanError(
            f"got budget {budget!r}; expected bytes (an int above 0) or a share of the peak without recomputation "
            "(a float above 0, up to 1): give one of them"
        )


def check_points(points: int) -> None:
    """Raise PlanError unless a front can have this number of points.

    Example:
        >>> check_points(2)
    """
    if isinstance(points, bool) or not isinstance(points, Integral) or points < 2:
        raise PlanError(
            f"got {points!r} points; expected a whole number, at least 2, the smallest peak and no "
            "recomputation: ask for more"
        )


def budget_bytes(budget: float | int, full_peak: int) -> int:
    """A budget in bytes; a float is a share of ``full_peak``, the peak without recomputation, rounded down.

    Example:
        >>> budget_bytes(0.5, 1001), budget_bytes(700, 1001)
        (500, 700)
    """
    check_budget(budget)
    return int(budget) if isinstance(budget, Integral) else int(float(budget) * full_peak)


def unreachable(budget: int, smallest: int, full_peak: int, method: str) -> BudgetError:
    """The error for a budget below the smallest peak that a method can reach."""
    share = smallest / full_peak if full_peak else 1.0
    return BudgetError(
        f"got a budget of {budget} bytes; expected at least {smallest} ({share:.3f} of the {full_peak} bytes without "
        f"recomputation), the smallest peak of {method}: raise the budget to that",
        smallest,
    )
