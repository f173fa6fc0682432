"""The training loop: its numbers against sums made by hand, its hooks, its state, its ends."""

from __future__ import annotations

import json
import threading

import numpy as np
import pytest

from deep500.errors import InputError, TrainingError
from deep500.events import HOOKS, Event, StopTraining
from deep500.training import tally
from deep500.training.check import check_training
from deep500.training.data import NumpyDataset
from deep500.training.data.prefetch import Prefetch
from deep500.training.data.samplers import OrderedSampler, ShuffleSampler
from deep500.training.listeners import StopOnNaN
from deep500.training.optimizers import AdamOptimizer, GradientDescent, MomentumOptimizer
from deep500.training.schedules import CosineSchedule
from deep500.training.statistics import EpochRecord, TrainingStatistics
from deep500.training.trainer import Trainer
from tests.tolerances import assert_close
from tests.training.linear import FakeExecutor, linear_network

SAMPLES, BATCH = 50, 8


def dataset(count=SAMPLES, seed=0):
    """Three Gaussian blobs: learnable, not perfectly."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, count)
    centres = np.array([[2.0, 0, 0, 1], [0, 2, 0, -1], [0, 0, 2, 0]])
    return NumpyDataset(centres[labels] + rng.normal(size=(count, 4)), "input", labels, "label")


def make_trainer(noise=0.0, prefetch=False, optimizer=MomentumOptimizer, seed=0, validate=True, **options):
    executor = FakeExecutor(linear_network("cross_entropy"), noise=noise)
    train = ShuffleSampler(dataset(), BATCH, seed=seed, drop_last_batch=False)
    validation = OrderedSampler(dataset(21, 1), BATCH, drop_last_batch=False) if validate else None
    train = Prefetch(train) if prefetch else train
    return Trainer(train, validation, executor, optimizer(executor, "loss", 0.1), seed=seed, **options)


def test_statistics_are_those_of_a_loop_by_hand():
    trainer = make_trainer()
    got = trainer.run(3, [])
    executor = FakeExecutor(linear_network("cross_entropy"))
    optimizer, sampler = MomentumOptimizer(executor, "loss", 0.1), ShuffleSampler(dataset(), BATCH, 0, False)
    test = dataset(21, 1)[:]
    for epoch in range(3):
        sampler.set_epoch(epoch)
        loss = correct = 0.0
        for batch in sampler:
            outputs = optimizer.step(batch)
            loss += float(outputs["loss"]) * len(batch["label"])
            correct += (outputs["y"].argmax(1) == batch["label"]).sum()
        tested = executor.inference(test)
        record = got.epochs[epoch]
        want = [
            loss / SAMPLES,
            100 * correct / SAMPLES,
            tested["loss"],
            100 * np.mean(tested["y"].argmax(1) == test["label"]),
        ]
        have = [record.train_loss, record.train_accuracy, record.test_loss, record.test_accuracy]
        np.testing.assert_allclose(have, want, rtol=1e-12)
        assert (record.epoch, record.train_samples, record.test_samples, record.complete) == (epoch, SAMPLES, 21, True)
        assert record.train_seconds > 0 and record.test_seconds > 0
    assert len(got.epochs) == 3 and got.initial is None and got.stopped_by is None
    assert got.epochs[-1].test_accuracy > 70 and got.epochs[-1].train_loss < got.epochs[0].train_loss
    assert (trainer.epoch, trainer.step) == (3, 21)


def test_reading_in_between_and_small_pending_limits_change_nothing(monkeypatch):
    class Read(Event):
        seen = 0

        def after_batch(self, run):
            assert run.train_loss() > 0 and 0 <= run.train_accuracy() <= 100
            self.seen += 1

    want = make_trainer().run(2, [])
    read = Read()
    got = make_trainer().run(2, [read])
    monkeypatch.setattr(tally, "MOST_ELEMENTS", 1)
    small = make_trainer().run(2, [])
    for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy"):
        assert want.column(name) == got.column(name) == small.column(name)
    assert read.seen == 14


def test_without_validation_nothing_is_reported():
    record = make_trainer(validate=False).run(1, []).epochs[0]
    assert (record.test_loss, record.test_accuracy, record.test_samples, record.test_seconds) == (None,) * 4


def test_validate_first():
    statistics = make_trainer(validate_first=True).run(1, [])
    executor, test = FakeExecutor(linear_network("cross_entropy")), dataset(21, 1)[:]
    assert statistics.initial.epoch == -1 and statistics.initial.train_loss is None
    np.testing.assert_allclose(statistics.initial.test_loss, executor.inference(test)["loss"])


def test_regression_has_no_accuracy():
    rng = np.random.default_rng(0)
    data = NumpyDataset(rng.normal(size=(16, 4)), "input", rng.normal(size=(16, 3)), "label")
    executor = FakeExecutor(linear_network())
    record = Trainer(OrderedSampler(data, 8), None, executor, GradientDescent(executor)).run(1, []).epochs[0]
    assert record.train_accuracy is None and record.train_loss > 0


class Log(Event):
    def __init__(self):
        self.calls = []
        for hook in HOOKS:
            setattr(self, hook, lambda source, hook=hook: self.calls.append(hook))


def test_order_of_the_hooks():
    log = Log()
    trainer = make_trainer()
    trainer.run(2, [log])
    batch = ["before_batch", "before_io", "after_io", "before_update", "after_update", "after_batch"]
    judged = ["before_validation_batch", "after_validation_batch"]
    validation = ["before_validation", *judged * len(trainer.validation_sampler), "after_validation"]
    epoch = ["before_epoch", *batch * 7, *validation, "after_epoch"]
    assert log.calls == ["before_run", *epoch * 2, "after_run"]
    assert trainer.executor.events.listeners == ()  # as it was before the run


def test_listeners_see_the_batch():
    class Look(Event):
        def before_epoch(self, run):
            self.epoch = run.epoch

        def after_batch(self, run):
            assert run.step == run.epoch * run.batches + run.batch + 1 and run.batches == 7 and run.epochs == 2
            assert run.epoch == self.epoch and set(run.inputs) == {"input", "label"} and "loss" in run.outputs
            assert run.trainer.optimizer is run.optimizer

        def after_epoch(self, run):
            assert run.record.epoch == run.epoch and run.record.test_loss is not None
            assert run.trainer.epoch == run.epoch + 1

    look = Look()
    make_trainer().run(2, [look])
    assert look.epoch == 1


@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("optimizer", [MomentumOptimizer, AdamOptimizer])
@pytest.mark.parametrize("stop", [1, 3])
def test_resuming_equals_never_stopping_bit_for_bit(stop, optimizer, prefetch):
    def schedule():
        return [CosineSchedule(5)]

    whole = make_trainer(0.3, prefetch, optimizer, seed=7)
    want = whole.run(5, schedule())
    first = make_trainer(0.3, prefetch, optimizer, seed=7)
    first.run(stop, schedule())
    state = first.state()
    values = json.loads(json.dumps(state["values"]))
    late = make_trainer(0.3, prefetch, optimizer, seed=99)  # all seeds come from the state
    late.load_state({"arrays": state["arrays"], "values": values})
    got = late.run(5, schedule())
    for name, value in whole.executor.network.state().items():
        assert_close(late.executor.network.state()[name], value, "exact", err_msg=name)
    for name in ("epoch", "train_loss", "train_accuracy", "test_loss", "test_accuracy"):
        assert got.column(name) == want.column(name)
    assert late.step == whole.step and len(got.epochs) == 5
    assert want.column("train_loss") != make_trainer(0.3, prefetch, optimizer, seed=8).run(5, schedule()).column(
        "train_loss"
    )


def test_hyperparameters_changed_by_hand_are_part_of_the_state():
    first, late = make_trainer(), make_trainer()
    first.optimizer.set_parameter("momentum", 0.25)
    late.load_state(first.state())
    assert late.optimizer.momentum == 0.25 and late.optimizer.initial["momentum"] == 0.9


def test_the_executor_is_reseeded_by_seed_and_epoch():
    seeds = [make_trainer(seed=seed) for seed in (0, 0, 1)]
    for trainer in seeds:
        trainer.run(3, [])
    first, again, other = (trainer.executor.seeds for trainer in seeds)
    assert first == again != other and len(set(first)) == 3


class RaiseAt(Event):
    def __init__(self, hook, error, at=0):
        self.count, self.ended = 0, 0

        def call(run):
            self.count += 1
            if self.count == at + 1:
                raise error

        setattr(self, hook, call)

    def after_run(self, run):
        self.ended += 1
        self.stopped_by = run.stopped_by


def test_a_listener_may_stop_in_the_middle_of_an_epoch():
    stop = RaiseAt("after_batch", StopTraining("enough"), at=9)
    trainer = make_trainer()
    statistics = trainer.run(5, [stop])
    assert statistics.stopped_by == stop.stopped_by == "enough" and stop.ended == 1
    assert [(r.epoch, r.complete, r.train_samples) for r in statistics.epochs] == [(0, True, 50), (1, False, 24)]
    assert statistics.epochs[1].test_accuracy is None and trainer.epoch == 1
    again = trainer.run(2, [])
    assert [(r.epoch, r.complete) for r in again.epochs] == [(0, True), (1, True)] and again.stopped_by is None


@pytest.mark.parametrize(
    ("hook", "records"),
    [("before_run", 0), ("before_epoch", 0), ("before_batch", 0), ("after_validation", 1), ("after_epoch", 1)],
)
def test_no_phantom_records(hook, records):
    statistics = make_trainer().run(3, [RaiseAt(hook, StopTraining("now"))])
    assert len(statistics.epochs) == records and statistics.stopped_by == "now"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("mine")])
def test_other_exceptions_pass_through_after_the_last_hook(error):
    stop = RaiseAt("after_batch", error, at=9)
    trainer = make_trainer(prefetch=True)
    with pytest.raises(type(error)) as caught:
        trainer.run(5, [stop])
    assert caught.tb and not [t for t in threading.enumerate() if "prefetch" in t.name]
    assert stop.ended == 1 and len(trainer.statistics.epochs) == 1 and trainer.executor.events.listeners == ()


class Poison(Event):
    """Makes the weights NaN before a step."""

    def __init__(self, step):
        self.step = step

    def before_batch(self, run):
        if run.step == self.step:
            run.executor.network.tensors["b"] *= np.nan


def test_a_loss_that_is_not_finite_names_epoch_and_step():
    with pytest.raises(TrainingError, match=r"epoch 2, step 9: got loss nan"):
        make_trainer().run(5, [Poison(9)])


def test_stop_on_nan_looks_sooner():
    for every, runs in ((1, 3), (4, 4), (100, 7)):
        trainer = make_trainer()
        with pytest.raises(TrainingError, match="epoch 1, step 2"):
            trainer.run(5, [Poison(2), StopOnNaN(every)])
        assert trainer.executor.runs == runs


def test_labels_are_kept_when_the_loader_uses_its_buffers_again():
    class Reusing(OrderedSampler):
        def __iter__(self):
            for batch in super().__iter__():
                kept = batch["label"].copy()
                yield batch
                batch["label"][:] = (kept + 1) % 3

    def accuracy(kind):
        executor = FakeExecutor(linear_network("cross_entropy"))
        return (
            Trainer(kind(dataset(), 10), None, executor, GradientDescent(executor)).run(1, []).epochs[0].train_accuracy
        )

    assert accuracy(Reusing) == accuracy(OrderedSampler)


@pytest.mark.parametrize("options", [{"network_output": "yy"}, {"loss": "los"}])
def test_a_wrong_name_is_refused(options):
    with pytest.raises(InputError, match="did you mean"):
        make_trainer(**options)


def test_an_optimizer_of_another_executor_is_refused():
    executors = [FakeExecutor(linear_network("cross_entropy")) for _ in range(2)]
    with pytest.raises(InputError, match="another executor"):
        Trainer(OrderedSampler(dataset(), 8), None, executors[0], GradientDescent(executors[1]))


def test_a_sampler_without_batches_is_refused():
    class Empty(OrderedSampler):
        def __len__(self):
            return 0

    executor = FakeExecutor(linear_network("cross_entropy"))
    optimizer = GradientDescent(executor)
    with pytest.raises(InputError, match="without batches"):
        Trainer(Empty(dataset(), 8), None, executor, optimizer)
    with pytest.raises(InputError, match="without batches"):
        optimizer.train(3, Empty(dataset(), 8))


def test_run_counts_epochs_in_all_and_keeps_the_old_name():
    trainer = make_trainer()
    trainer.run(2, [])
    assert len(trainer.run_loop(3, []).epochs) == 3 and len(trainer.run(3, []).epochs) == 3


def test_statistics_survive_json():
    statistics = make_trainer(validate_first=True).run(2, [])
    assert TrainingStatistics.from_json(statistics.to_json()) == statistics
    assert statistics.total("train_samples") == 2 * SAMPLES and TrainingStatistics().total("train_seconds") is None
    with pytest.raises(InputError, match="epoch record"):
        TrainingStatistics.from_dict({"epochs": [{"epoch": 0, "train_los": 1.0}]})
    assert TrainingStatistics([EpochRecord(0)]).epochs[0].train_loss is None


def test_optimizer_train():
    class Count(Event):
        batches = 0

        def after_batch(self, run):
            self.batches += 1

    executor, count = FakeExecutor(linear_network("cross_entropy")), Count()
    losses = GradientDescent(executor, lr=0.5).train(16, ShuffleSampler(dataset(), BATCH), [count])
    assert len(losses) == count.batches == executor.runs == 16 and losses[-1] < losses[0]
    assert executor.events.listeners == ()


def test_check_training():
    executor = FakeExecutor(linear_network("cross_entropy"))
    got = check_training(executor, dataset(), dataset(21, 1), MomentumOptimizer(executor, "loss", 0.1), 3, BATCH, "y")
    assert len(got) == 2 and all(60 < value <= 100 for value in got)


@pytest.mark.parametrize("listening", [False, True])
def test_nothing_waits_for_the_device_within_an_epoch(listening):
    """Reading a tensor is counted: once per batch is allowed only after the epoch's last batch."""
    from deep500.training.listeners import DefaultTrainerEvents

    trainer = make_trainer()
    reads = []
    network = trainer.executor.network
    original = network.to_numpy
    network.to_numpy = lambda tensor: reads.append(trainer.executor.runs) or original(tensor)
    trainer.run(2, DefaultTrainerEvents(2) if listening else [])
    assert reads and {runs % 7 for runs in reads} == {0}
