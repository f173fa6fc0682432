"""Traffic and balance of made-up ranks."""

from __future__ import annotations

import pytest

from deep500.errors import InputError
from deep500.metrics import CommunicationVolume, LoadImbalance, Messages, ScalingEfficiency, WaitShare
from deep500.training.statistics import EpochRecord, TrainingStatistics

RANKS = {
    "0": {"payload_bytes": 1000, "messages": 10, "wait_seconds": 1.0, "step_seconds": 10.0},
    "1": {"payload_bytes": 3000, "messages": 20, "wait_seconds": 4.0, "step_seconds": 10.0},
    "2": {"payload_bytes": 2000, "messages": 30, "wait_seconds": 1.0, "step_seconds": 10.0},
}
METRICS = [  # metric, value
    (CommunicationVolume(), 6000.0),
    (Messages(), 60.0),
    (LoadImbalance(), 100 * (9 / 8 - 1)),
    (WaitShare(), 20.0),
    (ScalingEfficiency(45.0), 75.0),
    (ScalingEfficiency(16.0, weak=True), 80.0),
]


def statistics(ranks):
    return TrainingStatistics([EpochRecord(0, train_seconds=20.0)], communication=ranks)


@pytest.mark.parametrize(("metric", "value"), METRICS, ids=lambda value: getattr(value, "name", ""))
def test_value(metric, value):
    assert metric.measure(statistics(RANKS)) == pytest.approx(value) and metric.reason == "" and metric.details
    restored = TrainingStatistics.from_json(statistics(RANKS).to_json())
    assert metric.measure(restored) == pytest.approx(value)


@pytest.mark.parametrize("metric", [row[0] for row in METRICS], ids=lambda metric: metric.name)
@pytest.mark.parametrize("ranks", [None, {}])
def test_one_process_does_not_send_0_bytes(metric, ranks):
    assert metric.measure(statistics(ranks)) is None and metric.reason == "the run was not distributed"


@pytest.mark.parametrize("metric", [row[0] for row in METRICS[:4]], ids=lambda metric: metric.name)
def test_a_rank_without_the_figure_leaves_no_number(metric):
    assert metric.measure(statistics({**RANKS, "3": {}})) is None and metric.reason.startswith("not every rank has")


def test_ranks_that_only_waited_have_no_balance():
    metric = LoadImbalance()
    idle = {rank: {"wait_seconds": 1.0, "step_seconds": 1.0} for rank in "01"}
    assert metric.measure(statistics(idle)) is None and metric.reason == "the ranks worked 0 s on average"


def test_the_base_of_a_speedup_is_a_measured_time():
    with pytest.raises(InputError, match="measure it"):
        ScalingEfficiency(0.0)
    metric = ScalingEfficiency(10.0)
    assert metric.measure(TrainingStatistics([EpochRecord(0)], communication=RANKS)) is None
    assert metric.reason == "no time was measured"
