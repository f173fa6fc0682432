"""What a figure is: a number, a question, a bar, and a function that measures it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

MET, MISSED, NOT_MEASURED = "met", "missed", "not measured"


@dataclass(frozen=True)
class Outcome:
    """What was measured, and whether that is within the bar: ``met`` is None where it was not measured."""

    measured: str
    met: bool | None
    reason: str = ""

    @property
    def word(self) -> str:
        """``met``, ``missed`` or ``not measured (why)``."""
        if self.met is None:
            return f"{NOT_MEASURED} ({self.reason})"
        return (MET if self.met else MISSED) + (f" ({self.reason})" if self.reason else "")


@dataclass(frozen=True)
class Options:
    """What the command line decides."""

    trials: int = 2000
    seed: int = 0

    def each(self, items: Iterable[Any], what: str, total: int | None = None) -> Iterator[Any]:
        """The items, with a bar on the standard error."""
        return iter(tqdm(items, desc=what, total=total, leave=False, file=sys.stderr, mininterval=1.0))


@dataclass(frozen=True)
class Figure:
    """One acceptance figure."""

    number: int
    what: str
    bar: str
    measure: Callable[[Options], Outcome]

    @property
    def name(self) -> str:
        """As it stands in docs/figures.md."""
        return f"{self.number}. {self.what}"


FIGURES: dict[int, Figure] = {}


def figure(number: int, what: str, bar: str) -> Callable[[Callable[[Options], Outcome]], Callable[[Options], Outcome]]:
    """Enter a function under its number."""

    def enter(measure: Callable[[Options], Outcome]) -> Callable[[Options], Outcome]:
        FIGURES[number] = Figure(number, what, bar, measure)
        return measure

    return enter


def ratio(part: int, whole: int) -> str:
    """A share as a reader wants it: ``1936 of 2000 (96.8 %)``."""
    return f"{part} of {whole} ({100 * part / whole:.1f} %)"
