"""Results of the gate: one `GateCheck` per framework and thing compared, and the `GateResult` that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

VACUOUS = 1e-3
"""Agreement says nothing where the largest reference value is below this: deep networks can vanish."""


@dataclass(frozen=True)
class GateCheck:
    """One thing that was compared.

    Attributes:
        framework: which was compared with the judge.
        name: what was compared: ``weights``, ``evaluation forward``, ``gradients``, ...
        difference: the largest, relative to the largest reference value; None where only equality counts.
        tolerance: what it may be; None: it is reported, not judged.
        passed: whether it may.
        where: what differs first: a value and its node, a parameter, a step; empty if nothing does.
    """

    framework: str
    name: str
    difference: float | None
    tolerance: float | None
    passed: bool
    where: str = ""

    def __str__(self) -> str:
        size = "" if self.difference is None else f" {self.difference:.1e}"
        limit = "" if self.tolerance is None else f" (tolerance {self.tolerance:.0e})"
        word = "agrees" if self.passed else "DIFFERS"
        where = f": {self.where}" if self.where else ""
        return f"{self.framework}: {self.name} {word}{size}{limit}{where}"


@dataclass
class GateResult:
    """All checks; truthy when every one passed.

    Attributes:
        judge: the framework that the others were compared with.
        checks: in the order in which they were made; a framework has none after the first that failed.
        curves: framework -> ``{"loss": [...], "gradient_norm": [...]}`` of the first steps in the recipe's precision.
        notes: what else must be said, such as a backend without float64.
    """

    judge: str
    checks: list[GateCheck] = field(default_factory=list)
    curves: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.checks) and all(check.passed for check in self.checks)

    def first(self, framework: str) -> GateCheck | None:
        """The first difference of a framework; None if there is none."""
        return next((c for c in self.checks if c.framework == framework and not c.passed), None)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"equivalent": bool(self), **asdict(self)}


def relative(got: Any, want: Any, scale: float | None = None) -> float:
    """Largest difference over the largest reference value (or ``scale``); infinite for another shape or a NaN.

    Example:
        >>> relative(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        0.5
    """
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return float("inf")
    if want.size == 0:
        return 0.0
    if got.dtype.kind not in "fc" or want.dtype.kind not in "fc":
        return 0.0 if np.array_equal(got, want) else 1.0
    wide, exact = got.astype(np.float64), want.astype(np.float64)
    if not np.array_equal(np.isfinite(wide), np.isfinite(exact)):
        return float("inf")
    finite = np.isfinite(exact)
    if not np.array_equal(wide[~finite], exact[~finite], equal_nan=True):
        return float("inf")
    apart = float(np.abs(wide - exact, where=finite, out=np.zeros_like(exact)).max())
    return apart / (scale or largest({"": want}) or 1.0) if apart else 0.0


def largest(arrays: Mapping[str, Any]) -> float:
    """The largest absolute finite value among floating-point arrays; 0 if there is none."""
    differences = [
        np.abs(a[np.isfinite(a)]).max(initial=0.0) for a in map(np.asarray, arrays.values()) if a.dtype.kind == "f"
    ]
    return float(max(differences, default=0.0))
