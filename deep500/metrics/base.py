"""A metric: one number from the statistics of a run, with unit, direction and a way to judge it.

Its three bases: :class:`Metric` reads the statistics, :class:`ObservingMetric` also watches the run,
:class:`ProbingMetric` runs the trained network again afterwards.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import numpy as np

from deep500.events import Event

Direction = Literal["higher", "lower"]
Kind = Literal["cost", "rate", "ratio", "count", "quality"]


@dataclass(frozen=True)
class Combined:
    """A metric's value over several runs.

    Attributes:
        value: what is judged; None if it was not measured.
        low, high: how far the runs, or the interval that the next two name, reach; None for a single run.
        remark: what must be said beside the value.
        interval: what ``low`` and ``high`` are the ends of, such as ``95 % interval (Kaplan-Meier)``; empty where they
            are those of the runs, or where the remark says it.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    remark: str = ""
    interval: str = ""


class Metric(abc.ABC):
    """One number that a run is judged by.

    Attributes:
        name: as results show it.
        unit: of the number.
        direction: which way is better.
        kind: how numbers of several runs may be combined: a ``cost`` (seconds) by the arithmetic mean, a ``rate``
            (samples/s) only through its cost, a ``ratio`` by the geometric mean, a ``count`` exactly, a ``quality``
            (accuracy, loss) by its median.
        unit_of_seeds: unit of what :meth:`measure` gives, where :meth:`combine` makes another quantity of it, such as a
            variance: values of single seeds are then shown with it, and neither judged nor compared.
        reason: after :meth:`measure` gave None: why, if there is more to say than that it was not measured.
        details: after :meth:`measure`: the numbers behind the value, in its unit where nothing else is said; what the
            record keeps and the report shows beside it.

    Example:
        >>> class Epochs(Metric):
        ...     name, unit, direction, kind = "epochs", "", "lower", "count"
        ...     def measure(self, statistics): return float(len(statistics.epochs))
        >>> Epochs().passes(3.0, 5.0), Epochs().better(3.0, 5.0)
        (True, True)
    """

    __test__ = False  # several metrics are called Test...: pytest must not collect them

    name: str
    unit: str = ""
    direction: Direction = "higher"
    kind: Kind = "quality"
    unit_of_seeds: str | None = None
    reason: str = ""
    details: Mapping[str, Any] = {}  # replaced, never written to

    @abc.abstractmethod
    def measure(self, statistics: Any) -> float | None:
        """The number, from a :class:`deep500.training.statistics.TrainingStatistics`; None if it was not measured."""

    def measured(self, statistics: Any) -> float | None:
        """:meth:`measure`'s number as a float; None, and the reason, where it gives anything but a finite number.

        Example:
            >>> class Ratio(Metric):
            ...     name = "ratio"
            ...     def measure(self, statistics): return float("inf")
            >>> metric = Ratio()
            >>> metric.measured(None), metric.reason
            (None, 'got inf from Ratio.measure; expected a finite number or None')
        """
        value = self.measure(statistics)
        if value is None:
            return None
        array = np.asarray(value)
        if array.ndim == 0 and array.dtype.kind in "iuf" and np.isfinite(array):
            return float(array)
        self.reason = f"got {value!r:.80} from {type(self).__name__}.measure; expected a finite number or None"
        return None

    def combine(self, values: Sequence[float | None], lasted: Sequence[float | None] = ()) -> Combined:
        """One value of several runs: the median with the smallest and the largest; nothing if one was not measured.

        Args:
            values: what :meth:`measure` gave, one per run (seed).
            lasted: seconds of training and validation of each run, for metrics to which a miss says "later than that".

        Example:
            >>> from deep500.metrics import TestAccuracy
            >>> TestAccuracy().combine([91.0, 95.0, 92.0]).value, TestAccuracy().combine([91.0, None]).value
            (92.0, None)
        """
        known = [float(value) for value in values if value is not None]
        if len(known) < len(values) or not known:
            return Combined(None)
        several = len(known) > 1
        value = math.nan if any(map(math.isnan, known)) else median(known)
        return Combined(value, min(known) if several else None, max(known) if several else None)

    def better(self, a: float | None, b: float | None) -> bool:
        """Return whether ``a`` is strictly better than ``b``; anything measured beats NaN and what was not measured."""
        if not _is_number(a) or not _is_number(b):
            return _is_number(a) and not _is_number(b)
        return a > b if self.direction == "higher" else a < b  # type: ignore[operator]

    def passes(self, value: float | None, target: float) -> bool:
        """Return whether a value is as good as the target or better; NaN and what was not measured do not pass."""
        return _is_number(value) and not self.better(target, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ObservingMetric(Metric, Event):
    """A metric that watches the run: it is a listener too, and a recipe adds it to the run by itself.

    Subclasses that override ``before_run`` call it here first. A run that went on from a checkpoint was watched in part
    only, and :meth:`observed` says so.

    Example:
        >>> class Steps(ObservingMetric):
        ...     name, unit, direction, kind, steps = "steps", "", "lower", "count", 0
        ...     def after_batch(self, run): self.steps += 1
        ...     def measure(self, statistics): return float(self.steps) if self.observed() else None
        >>> steps = Steps()
        >>> steps.measure(None), steps.reason
        (None, 'it did not watch a run')
    """

    run: Any = None
    _resumed_at = 0

    def before_run(self, run: Any) -> None:
        """Note whose run it is."""
        self.run, self._resumed_at = run, run.epoch

    def observed(self) -> bool:
        """Return whether the whole run was watched; sets ``reason`` if not."""
        self.reason = ""
        if self.run is None:
            self.reason = "it did not watch a run"
        elif self._resumed_at:
            self.reason = f"the run was resumed: its first {self._resumed_at} epochs were not watched"
        return not self.reason


class ProbingMetric(ObservingMetric):
    """A metric that runs the trained network again when it is measured, after the run and so outside its times."""

    def ready(self) -> bool:
        """Return whether there is a trainer to take batches and names from; a run that was resumed will do."""
        self.reason = ""
        if self.run is None:
            self.reason = "it did not watch a run"
        elif getattr(self.run, "trainer", None) is None:
            self.reason = "the run had no trainer, which knows the batches"
        return not self.reason

    def batches(self) -> Iterator[dict[str, Any]]:
        """Validation batches, training batches where there is no validation."""
        trainer = self.run.trainer
        sampler = trainer.train_sampler if trainer.validation_sampler is None else trainer.validation_sampler
        batches = iter(sampler)
        try:
            yield from batches
        finally:
            if hasattr(batches, "close"):
                batches.close()  # threads that prefetch end here

    def first(self, samples: int) -> dict[str, Any] | None:
        """The first ``samples`` samples of a batch by input name; None, and a reason, where they are not available."""
        batches = self.batches()
        batch = next(batches, None)
        batches.close()  # type: ignore[attr-defined]
        if batch is None:
            self.reason = "there is no batch"
            return None
        cut = {}
        for name, value in batch.items():
            descriptor = self.run.executor.network.inputs.get(name)
            fixed = descriptor is not None and descriptor.shape and isinstance(descriptor.shape[0], int)
            size = value.shape[0] if getattr(value, "shape", ()) else 0
            if size < samples or (fixed and descriptor.shape[0] != samples):
                self.reason = f"input {name!r} comes in batches of {size}, not of {samples} samples"
                return None
            cut[name] = value[:samples]
        return cut


def _is_number(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


TestMetric = Metric
"""The original's name."""
