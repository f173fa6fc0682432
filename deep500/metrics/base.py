"""What a metric is: one number from the statistics of a run, with unit, direction and a way to judge it."""

from __future__ import annotations

import abc
import math
from typing import Any, ClassVar, Literal

Direction = Literal["higher", "lower"]
Kind = Literal["cost", "rate", "ratio", "count", "quality"]


class Metric(abc.ABC):
    """One number that a run is judged by.

    Attributes:
        name: as results show it.
        unit: of the number.
        direction: which way is better.
        kind: how numbers of several runs may be combined: a ``cost`` (seconds) by the arithmetic mean, a ``rate``
            (samples/s) only through its cost, a ``ratio`` by the geometric mean, a ``count`` exactly, a ``quality``
            (accuracy, loss) by its median.

    Example:
        >>> class Epochs(Metric):
        ...     name, unit, direction, kind = "epochs", "", "lower", "count"
        ...     def measure(self, statistics): return float(len(statistics.epochs))
        >>> Epochs().passes(3.0, 5.0), Epochs().better(3.0, 5.0)
        (True, True)
    """

    __test__ = False  # several metrics are called Test...: pytest must not collect them

    name: str
    unit: ClassVar[str] = ""
    direction: ClassVar[Direction] = "higher"
    kind: ClassVar[Kind] = "quality"

    @abc.abstractmethod
    def measure(self, statistics: Any) -> float | None:
        """The number, from a :class:`deep500.training.statistics.TrainingStatistics`; None if it was not measured."""

    def better(self, a: float | None, b: float | None) -> bool:
        """Whether ``a`` is strictly better than ``b``; anything measured is better than what was not, or is NaN."""
        if not _is_number(a) or not _is_number(b):
            return _is_number(a) and not _is_number(b)
        return a > b if self.direction == "higher" else a < b  # type: ignore[operator]

    def passes(self, value: float | None, target: float) -> bool:
        """Whether a value is as good as the target or better; what was not measured, or is NaN, does not pass."""
        return _is_number(value) and not self.better(target, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _is_number(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


TestMetric = Metric
"""The original's name."""
