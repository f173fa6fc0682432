"""Live logging: what arrives at each client is what the run recorded, and it is closed however training ends."""

from __future__ import annotations

import csv
import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import deep500 as d5
from deep500 import cli
from deep500.errors import InputError, MissingPackage
from deep500.frameworks import reference
from deep500.networks import add_loss, create
from deep500.training.loggers import Logger, MLflowLogger, WandbLogger, client, make_loggers


class Kept(Logger):
    """Keeps what it is told."""

    def open(self):
        self.values, self.ended = [], None

    def write(self, values, step):
        self.values.append((step, values))

    def close(self, finished):
        self.ended = finished


def trainer():
    rng = np.random.default_rng(0)
    data = d5.NumpyDataset(rng.normal(size=(16, 4)).astype("float32"), "input", rng.integers(0, 3, 16), "label")
    executor = reference.from_model(add_loss(create("mlp", shape=(4,), hidden=(3,), classes=3)))
    optimizer = reference.GradientDescent(executor)
    return d5.Trainer(d5.ShuffleSampler(data, 4, seed=0), d5.ShuffleSampler(data, 4, seed=0), executor, optimizer)


def test_epochs_and_the_loss_in_between_arrive_with_their_steps():
    log = Kept(interval=0.0)
    statistics = trainer().run(2, [log])
    steps = [step for step, _ in log.values]
    assert steps == sorted(steps) and log.ended is True
    epochs = [values for _, values in log.values if "test_accuracy" in values]
    assert [values["train_loss"] for values in epochs] == [record.train_loss for record in statistics.epochs]
    assert sum("train_loss_so_far" in values for _, values in log.values) == 8


def test_the_loss_is_not_asked_for_more_often_than_the_interval():
    log = Kept(interval=3600.0)
    trainer().run(2, [log])
    assert len(log.values) == 2


def test_training_that_raises_leaves_a_log_that_says_so():
    class Fault(d5.Event):
        def after_epoch(self, run):
            raise RuntimeError("planted")

    log = Kept()
    with pytest.raises(RuntimeError, match="planted"):
        trainer().run(2, [log, Fault()])
    assert log.ended is False


class Recorded:
    """A client of which nothing is known but what was called on it."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*args, **options):
            self.calls.append((name, args, options))
            return self if name != "get_experiment_by_name" else None

        return call

    info = property(lambda self: SimpleNamespace(run_id="r1"))


def test_mlflow_gets_parameters_metrics_and_an_end(monkeypatch):
    sent = Recorded()
    monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(MlflowClient=lambda: sent))
    trainer().run(1, [MLflowLogger("job", "run 1", {"lr": "0.1"})])
    names = [name for name, _, _ in sent.calls]
    assert names[:3] == ["get_experiment_by_name", "create_experiment", "create_run"] and names[-1] == "set_terminated"
    assert ("log_param", ("r1", "lr", "0.1"), {}) in sent.calls
    logged = {args[1]: (args[2], options["step"]) for name, args, options in sent.calls if name == "log_metric"}
    assert 0 <= logged["test_accuracy"][0] <= 100 and logged["test_accuracy"][1] == 4


def test_wandb_gets_its_config_numbers_and_an_exit_code(monkeypatch):
    sent = Recorded()
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **said: sent.calls.append(said) or sent))
    trainer().run(1, [WandbLogger("job", "run 1", {"lr": "0.1"})])
    assert sent.calls[0]["config"] == {"lr": "0.1"} and sent.calls[-1] == ("finish", (), {"exit_code": 0})
    assert sent.calls[1][2] == {"step": 4} and "test_accuracy" in sent.calls[1][1][0]


def test_what_is_missing_or_misspelt_is_one_error(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingPackage, match=r"pip install 'deep500\[wandb\]'"):
        client("wandb")
    with pytest.raises(InputError, match="did you mean 'mlflow'"):
        make_loggers(["mlfow"], "job", "run", {}, tmp_path)


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("tensorboardX", "tensorflow")),
    reason="tensorboardX, or TensorFlow to read its files with, is not installed",
)
def test_a_recipe_logs_to_files_while_it_trains(tmp_path, monkeypatch):
    """Two kinds at once, read back by csv and by TensorFlow; the results folder stays as it was sealed."""
    import tensorflow as tf

    monkeypatch.chdir(tmp_path)
    words = ["--backend", "reference", "--dry-run", "--quiet", "--log", "csv", "--log", "tensorboard"]
    assert cli.main(["run", "digits_lenet", *words]) == 0
    (place,) = (tmp_path / "logs" / "digits_lenet").iterdir()
    assert place.name.endswith("seed 0 [dry run]")
    with (place / "epochs.csv").open() as file:
        rows = list(csv.DictReader(file))
    records = tf.data.TFRecordDataset(str(next(place.glob("events.*")))).as_numpy_iterator()
    values = [value for record in records for value in tf.compat.v1.Event.FromString(record).summary.value]
    losses = [value.simple_value for value in values if value.tag == "train_loss"]
    assert losses == pytest.approx([float(row["train_loss"]) for row in rows], rel=1e-6) and losses
    (run,) = (path for path in (tmp_path / "results" / "digits_lenet").iterdir() if path.is_dir())
    assert cli.main(["verify", str(run)]) == 0
