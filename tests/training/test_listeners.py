"""The listeners that come with the project."""

from __future__ import annotations

import csv
import io

import pytest

from deep500.errors import InputError
from deep500.training import listeners
from deep500.training.listeners import (
    CSVWriter,
    DefaultTrainerEvents,
    ProgressBar,
    StopAfter,
    StopAtAccuracy,
    StopOnNaN,
)
from tests.training.test_trainer import make_trainer


class Clock:
    """Seconds that pass by one at every look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_the_bar_shows_loss_accuracy_rate_and_remaining_time():
    file = io.StringIO()
    statistics = make_trainer().run(2, [ProgressBar(interval=0, file=file, force=True)])
    shown = file.getvalue()
    assert "epoch 1/2" in shown and "epoch 2/2" in shown and "14/14" in shown and "samples/s=" in shown
    assert f"loss={statistics.epochs[-1].train_loss:.4g}" in shown
    assert f"accuracy={statistics.epochs[-1].train_accuracy:.4g}" in shown
    assert f"test accuracy={statistics.epochs[-1].test_accuracy:.4g}" in shown
    assert "epoch 1/2, validation 1/" in shown
    assert "<" in shown.rpartition("\r")[2]  # elapsed<remaining


def test_the_bar_is_silent_where_there_is_no_terminal(capfd):
    make_trainer().run(1, DefaultTrainerEvents(1))
    assert capfd.readouterr() == ("", "")


def test_the_bar_is_drawn_a_few_times_per_second_only(monkeypatch):
    drawn = []
    monkeypatch.setattr(listeners, "perf_counter", Clock())
    monkeypatch.setattr(ProgressBar, "_draw", lambda self, run, done: drawn.append(done))
    make_trainer().run(1, [ProgressBar(interval=1e6, file=io.StringIO(), force=True)])
    assert drawn == [7]  # after the epoch


def test_the_bar_closes_when_training_fails():
    class Fail(StopOnNaN):
        def after_batch(self, run):
            raise RuntimeError("mine")

    bar = ProgressBar(0, io.StringIO(), force=True)
    with pytest.raises(RuntimeError, match="mine"):
        make_trainer().run(1, [bar, Fail()])
    assert bar._bar is None


def test_csv_has_a_row_per_epoch(tmp_path):
    path = tmp_path / "epochs.csv"
    statistics = make_trainer(validate=False).run(3, [CSVWriter(path)])
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == [1, 2, 3]  # as in metrics.jsonl
    assert [float(row["train_loss"]) for row in rows] == statistics.column("train_loss")
    assert {row["test_loss"] for row in rows} == {""}
    assert list(tmp_path.iterdir()) == [path]


def test_csv_of_a_resumed_run_has_all_rows(tmp_path):
    first, late = make_trainer(), make_trainer()
    first.run(2, [])
    late.load_state(first.state())
    late.run(3, [CSVWriter(tmp_path / "all.csv")])
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 4


def test_csv_that_cannot_be_written_is_noticed_before_training(tmp_path):
    trainer = make_trainer()
    with pytest.raises(FileNotFoundError):
        trainer.run(1, [CSVWriter(tmp_path / "no" / "such.csv")])
    assert trainer.executor.runs == 0


def test_stop_at_accuracy():
    full = make_trainer().run(6, []).column("test_accuracy")
    target = sorted(full)[2]
    statistics = make_trainer().run(6, [StopAtAccuracy(target)])
    assert len(statistics.epochs) == 1 + next(i for i, a in enumerate(full) if a >= target)
    assert "reached the target" in statistics.stopped_by
    assert make_trainer().run(2, [StopAtAccuracy(100)]).stopped_by is None
    with pytest.raises(InputError, match="validation sampler"):
        make_trainer(validate=False).run(1, [StopAtAccuracy(50)])


def test_a_stopped_run_that_is_resumed_stops_again():
    first = make_trainer()
    first.run(2, [])
    for listener in (StopAtAccuracy(min(first.statistics.column("test_accuracy"))), StopAfter(1e-9)):
        late = make_trainer()
        late.load_state(first.state())
        statistics = late.run(6, [listener])
        assert len(statistics.epochs) == 2 and statistics.stopped_by and late.executor.runs == 0


def test_stop_after_seconds(monkeypatch):
    monkeypatch.setattr(listeners, "perf_counter", Clock())  # one second per look: at the start, then after each epoch
    assert len(make_trainer().run(9, [StopAfter(3)]).epochs) == 3
    statistics = make_trainer().run(9, [StopAfter(10, immediately=True)])  # and here after each batch
    assert [(r.complete, r.train_samples) for r in statistics.epochs] == [(True, 50), (False, 16)]


def test_stop_after_counts_what_was_before_a_resume(monkeypatch):
    trainer = make_trainer()
    trainer.run(2, [])
    for record in trainer.statistics.epochs:
        record.train_seconds = record.test_seconds = 10.0
    monkeypatch.setattr(listeners, "perf_counter", Clock())
    assert len(trainer.run(9, [StopAfter(41)]).epochs) == 3


@pytest.mark.parametrize(
    "make",
    [lambda: StopAfter(0), lambda: StopAfter(float("nan")), lambda: StopAtAccuracy(0.93 * 1000), lambda: StopOnNaN(0)],
)
def test_nonsense_is_refused(make):
    with pytest.raises(InputError, match="expected"):
        make()
