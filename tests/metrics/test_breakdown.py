"""The parts of a made-up run whose times are known to the nanosecond, and those of a real one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from deep500.metrics import CommunicationShare, IOShare, TimingBreakdown, TrainingTime, WallTime
from deep500.training.optimizers import GradientDescent
from tests.metrics.watched import CHECKPOINT, REST, STEPS, TAKES, TOTAL, VALIDATION, Clock, watch
from tests.training.test_trainer import make_trainer


def test_parts_are_what_they_took_and_sum_to_the_wall_time():
    clock = Clock()
    breakdown, wall = TimingBreakdown(clock.nanoseconds), WallTime(clock)
    statistics = watch(breakdown, wall, clock=clock)
    total = breakdown.measure(statistics)
    expected = {part: STEPS * seconds for part, seconds in TAKES.items()} | {"validation": VALIDATION}
    expected["other"] = STEPS * REST
    for part in ("io", "communication"):
        expected[part] += CHECKPOINT / 2
    assert breakdown.details == pytest.approx(expected, abs=1e-6)
    assert total == pytest.approx(wall.measure(statistics), rel=1e-6) == pytest.approx(TOTAL, rel=1e-6)


def test_communication_within_backward_counts_once():
    clock = Clock()
    breakdown = TimingBreakdown(clock.nanoseconds)

    run = SimpleNamespace(executor=SimpleNamespace(synchronize=lambda: None), epoch=0)
    breakdown.before_run(run)
    breakdown.before_backward(run.executor)
    clock.now += 2
    breakdown.before_communication(run.executor)
    clock.now += 3
    breakdown.after_communication(run.executor)
    clock.now += 1
    breakdown.after_backward(run.executor)
    breakdown.after_run(run)
    assert breakdown.measure(None) == pytest.approx(6)
    assert breakdown.details == pytest.approx({"other": 0.0, "backward": 3.0, "communication": 3.0})


@pytest.mark.parametrize("kind", [IOShare, CommunicationShare])
def test_shares_are_of_the_training_time(kind):
    clock = Clock()
    metric = kind(clock.nanoseconds)
    statistics = watch(metric, clock=clock)
    assert metric.measure(statistics) == pytest.approx(
        100 * STEPS * TAKES[metric.part] / TrainingTime().measure(statistics), rel=1e-6
    )
    assert metric.details == {
        metric.part: pytest.approx(STEPS * TAKES[metric.part]),
        "train_seconds": pytest.approx(TOTAL - VALIDATION - CHECKPOINT),
    }


def test_what_did_not_happen_is_not_measured():
    share = CommunicationShare()
    assert share.measure(None) is None and share.reason == "it did not watch a run"
    clock = Clock()
    share = CommunicationShare(clock.nanoseconds)
    statistics = watch(share, clock=clock)
    del share._parts["communication"]
    assert share.measure(statistics) is None and share.reason == "the run had no part called communication"


def test_a_resumed_run_was_watched_in_part():
    for metric in (TimingBreakdown(), WallTime(), IOShare()):
        statistics = watch(metric, began_at=2)
        assert metric.measure(statistics) is None
        assert metric.reason == "the run was resumed: its first 2 epochs were not watched"


def test_time_in_an_optimizers_own_step_is_the_updates():
    clock = Clock()
    breakdown = TimingBreakdown(clock.nanoseconds)

    class Slow(GradientDescent):
        def step(self, inputs):
            outputs = self.executor.inference_and_backprop(inputs, self.loss)
            clock.now += 2.0
            self.update()
            return outputs

    class Prepared(GradientDescent):
        def prepare(self):
            clock.now += 2.0
            super().prepare()

    for optimizer, part in ((Slow, "update"), (Prepared, "other")):
        make_trainer(optimizer=optimizer, validate=False).run(1, [breakdown])
        parts = breakdown.parts()
        assert parts[part] == pytest.approx(7 * 2.0) and sum(parts.values()) == parts[part]
