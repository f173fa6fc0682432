"""``--repeat auto``: one seed after the other, until the intervals over seeds are tight or the budget ends.

The intervals are those of every metric with a target (of its median over seeds, or of what else it computes from
them) and of the time of a step. They are examined after 7, 10, 13, 17, ... seeds, each number 1.3 times the one before:
stopping after any seed, at the first interval that happens to be tight, would lower the coverage of a 95 % interval
(93 % instead of 94 %). A decision depends only on recorded values of the seeds so far, so that a run that was stopped
and resumed decides the same. Seven are the fewest with which `compare` can tell two runs apart by their launches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from deep500.measure.launch_comparison import FEWEST_FOR_RANKS
from deep500.measure.launches import launches_needed, over_launches
from deep500.measure.quantiles import quantile
from deep500.measure.sampling import next_size
from deep500.metrics import Metric
from deep500.results import Record
from deep500.results.stats import STEP, kept_samples


@dataclass(frozen=True)
class Repetition:
    """When to stop adding seeds.

    Attributes:
        budget: most seconds of training and validation, as recorded, over all seeds; a seed that would probably not fit
            is not begun. The first seed is trained in any case.
        precision: half-width of the intervals relative to the median.
        level: their confidence level.
    """

    budget: float
    precision: float = 0.05
    level: float = 0.95

    def look(self, record: Record, seeds: Sequence[int], judged: Sequence[Metric]) -> Look:
        """Return what is known after these seeds, all of them finished.

        Args:
            record: the run.
            seeds: those finished so far, in the order in which they were trained.
            judged: the metrics whose intervals must be tight.
        """
        costs = [_seconds(record, seed) for seed in seeds]
        ended = sum(costs) + max(costs) > self.budget
        achieved = {
            metric.name: self._of_metric(metric, [_value(record, seed, metric.name) for seed in seeds], costs)
            for metric in judged
        }
        achieved |= self._of_steps(record, seeds)
        tight = bool(achieved) and all(width is not None and width <= self.precision for width in achieved.values())
        over = ended or (tight and _is_look(len(seeds), max(launches_needed(self.level), FEWEST_FOR_RANKS)))
        return Look(len(seeds), sum(costs), achieved, over, over and tight)

    def summary(self, look: Look) -> dict[str, Any]:
        """The entry of ``summary.json``: precision asked for and achieved."""
        return {**asdict(self), **{key: value for key, value in asdict(look).items() if key != "over"}}

    def _of_metric(self, metric: Metric, values: Sequence[float | None], lasted: Sequence[float]) -> float | None:
        """Relative half-width of the interval of what the metric makes of all seeds; None where it has none."""
        if type(metric).combine is not Metric.combine:  # not the median: a variance, a median of censored times
            combined = metric.combine(values, lasted)
            if combined.value is None or combined.low is None or combined.high is None:
                return None
            width = max(combined.high - combined.value, combined.value - combined.low)
            return _finite(width / abs(combined.value) if combined.value else math.inf)
        known = [value for value in values if value is not None and math.isfinite(value)]
        if len(known) < len(values):
            return None  # a seed without a value: there is no median over seeds
        return _finite(quantile(known, 0.5, self.level, independent=True).precision)

    def _of_steps(self, record: Record, seeds: Sequence[int]) -> dict[str, float | None]:
        plan: Mapping[str, Any] = record.manifest()["series"][STEP]["plan"]
        launches = [samples for samples, _, _ in kept_samples(record.samples, STEP, seeds, plan).values()]
        if len(launches) < launches_needed(self.level):
            return {STEP: None}
        return {STEP: _finite(over_launches(launches, 0.5, self.level).estimate.precision)}


@dataclass(frozen=True)
class Look:
    """A look at the intervals after a number of seeds.

    Attributes:
        seeds: their number.
        seconds: of training and validation, over all of them.
        achieved: relative half-width of each interval; None where there is none yet.
        over: whether no further seed is trained.
        reached: whether that is because every interval is tight.
    """

    seeds: int
    seconds: float
    achieved: Mapping[str, float | None]
    over: bool
    reached: bool


def _is_look(count: int, fewest: int) -> bool:
    size = fewest
    while size < count:
        size = next_size(size)
    return size == count


def _seconds(record: Record, seed: int) -> float:
    return sum((line["train_seconds"] or 0.0) + (line["test_seconds"] or 0.0) for line in record.epochs(seed))


def _value(record: Record, seed: int, name: str) -> float | None:
    return (record.finished_seed(seed) or {}).get(name)


def _finite(precision: float) -> float | None:
    return precision if math.isfinite(precision) else None
