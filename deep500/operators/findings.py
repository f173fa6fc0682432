"""Findings of operators' checks: `OpCheck`, and the `ComparedEntry` that is furthest off."""

from __future__ import annotations

import math
from dataclasses import dataclass

Index = tuple[int, ...]


@dataclass(frozen=True)
class ComparedEntry:
    """One number that was compared.

    Attributes:
        output: which output it belongs to; None: to a weighted sum of all.
        output_index: which element of that output; None: all.
        input: of a gradient, with respect to which input; None for a value.
        index: of a gradient, to which element of the input; None: along a direction through all.
        got, expected: the operator's number, and the other one.
        allowed: by how much they may differ.
    """

    output: int | None
    output_index: Index | None
    input: int | None
    index: Index | None
    got: float
    expected: float
    allowed: float

    @property
    def excess(self) -> float:
        """Difference over what is allowed: above 1 is wrong; infinite where one of them is no number."""
        if self.got == self.expected or (math.isnan(self.got) and math.isnan(self.expected)):
            return 0.0
        difference = abs(self.got - self.expected)
        return difference / self.allowed if math.isfinite(difference) and self.allowed else math.inf

    def __str__(self) -> str:
        return (
            f"{self._where()}: got {self.got:.9g}, expected {self.expected:.9g} "
            f"(difference {abs(self.got - self.expected):.2g}, allowed {self.allowed:.2g})"
        )

    def _where(self) -> str:
        output = f"output {self.output}{_list(self.output_index)}"
        if self.input is None:
            return output
        subject = "a weighted sum of the outputs" if self.output is None else output
        by = f"input {self.input}{_list(self.index)}" + ("" if self.index is not None else ", along one direction")
        return f"gradient of {subject} by {by}"


def _list(index: Index | None) -> str:
    return "" if index is None else str(list(index))


@dataclass(frozen=True)
class OpCheck:
    """Verdict on an operator; truthy when it is right.

    Attributes:
        operator: its name.
        what: ``forward`` or ``gradient``.
        ok: whether every compared number agrees, enough of them could be judged, and there are no ``problems``.
        method: ``comparison``, ``full Jacobian`` or ``directional``.
        dtype: in which precision it was checked.
        compared: how many numbers were compared.
        worst: the one furthest off, relative to what is allowed; None if there was nothing to compare.
        noise: of a gradient, how far the differences themselves may be off, relative to the gradient's size (median).
        condition: that in words.
        problems: what else is wrong, such as inputs that were changed.
    """

    operator: str
    what: str
    ok: bool
    method: str
    dtype: str
    compared: int
    worst: ComparedEntry | None
    noise: float = 0.0
    condition: str = ""
    problems: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "WRONG"
        lines = [f"{self.what} of {self.operator}: {verdict} ({self.method}, {self.dtype}, {self.compared} numbers)"]
        lines += [f"  problem: {problem}" for problem in self.problems]
        if self.worst is not None:
            lines.append(f"  {'worst' if self.worst.excess > 1 else 'furthest apart'}: {self.worst}")
        return "\n".join(lines + ([f"  {self.condition}"] if self.condition else []))
