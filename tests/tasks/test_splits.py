"""Three splits: the third is looked at once, after training; who tunes on what is reported is told so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import InputError, RecipeError
from deep500.metrics import TestQuality, TimeToQuality, TopKAccuracy
from deep500.recipe import run_recipe
from deep500.results.recomputed import seed_problems
from deep500.results.rules import RunView, check
from deep500.results.verify import verify
from deep500.training.data.split import Subset, hold_out
from deep500.training.listeners import JudgeEvery, StopAtAccuracy


def recipe(**changes):
    d5fw = d5.load_backend("reference")
    fixed = {"model": "mlp", "model_kwargs": {"hidden": (16,)}, "dataset": "digits", "epochs": 2}
    mutable = {
        "batch_size": 128,
        "executor": d5fw.from_model,
        "optimizer": d5fw.MomentumOptimizer,
        "optimizer_kwargs": {"lr": 0.1, "momentum": 0.9},
        **changes,
    }
    return fixed, mutable


def run(tmp_path, metrics, *words, **changes):
    result = run_recipe(*recipe(**changes), metrics, ["--out", str(tmp_path), "--quiet", *words])
    return Path(result.path), result


def read(path, name):
    return json.loads((path / name).read_text(encoding="utf-8"))


def curve(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def test_what_is_held_out_is_a_share_of_every_class():
    train, test = d5.load_dataset("digits")
    rest, held = hold_out(train, 0.1)
    labels = train[np.arange(len(train))]["label"]
    for label in range(10):
        assert np.count_nonzero(labels[held.positions] == label) == round(0.1 * np.count_nonzero(labels == label))
    assert sorted([*rest.positions, *held.positions]) == list(range(len(train)))
    assert len({rest.digest(), held.digest(), train.digest(), test.digest()}) == 4
    assert hold_out(train, 0.1)[1].digest() == held.digest()
    assert held[3]["label"] == train[int(held.positions[3])]["label"]


@pytest.mark.parametrize("share", [0.0, 1.0, 1e-6, -0.1])
def test_shares_that_leave_a_part_empty_are_refused(share):
    with pytest.raises(InputError, match="to hold out"):
        hold_out(d5.load_dataset("digits")[0], share)


def test_the_third_split_is_judged_once_at_the_end(tmp_path):
    metrics = [(d5.TestAccuracy(), 50.0), (d5.TestAccuracy(True), None), (TopKAccuracy(1), None)]
    path, result = run(tmp_path, metrics, validation_split=0.25)
    lines, final = curve(path), read(path, "seeds.json")["0"]["final"]
    accuracy, best, top = (metric.value for metric in result.metrics)
    assert [line["test_samples"] for line in lines] == [359, 359] and final["test_samples"] == 359
    assert accuracy == top == final["test_accuracy"] != lines[-1]["test_accuracy"]
    assert best == max(line["test_accuracy"] for line in lines)
    data = read(path, "manifest.json")["data"]
    assert [data[part]["length"] for part in ("train", "validation", "test")] == [1079, 359, 359]
    assert verify(path) == [] and check(path)["F2"].status == "pass"
    seeds = read(path, "seeds.json")
    seeds["0"]["final"]["test_accuracy"] = 99.0
    (path / "seeds.json").write_text(json.dumps(seeds), encoding="utf-8")
    assert "test_accuracy of seed 0 is" in seed_problems(RunView(path))[0]


def test_data_may_come_in_three_parts(tmp_path):
    def three():
        train, test = d5.load_dataset("digits")
        return *hold_out(train, 0.5), test

    fixed, mutable = recipe()
    fixed["dataset"] = three
    result = run_recipe(fixed, mutable, [(d5.TestAccuracy(), None)], ["--out", str(tmp_path), "--quiet"])
    assert read(Path(result.path), "seeds.json")["0"]["final"]["test_samples"] == 359
    with pytest.raises(RecipeError, match=r"validation_split=0.1 for data that have a validation part"):
        run_recipe(fixed, {**mutable, "validation_split": 0.1}, [], ["--out", str(tmp_path), "--quiet"])


def test_tuning_on_what_is_reported_is_flagged(tmp_path):
    wanted = [(d5.TestAccuracy(), 10.0)]
    path, _ = run(tmp_path / "plain", wanted)
    finding = check(path)["F2"]
    assert finding.status == "pass" and "there is no third split" in finding.reason
    path, _ = run(tmp_path / "stopped", wanted, events=[StopAtAccuracy(10.0)])
    assert check(path)["F2"].status == "fail" and "stopped by the data that judge" in check(path)["F2"].reason
    path, _ = run(tmp_path / "stopped3", wanted, events=[StopAtAccuracy(10.0)], validation_split=0.2)
    assert check(path)["F2"].status == "pass"
    for rate in (0.05, 0.02, 0.01):
        path, _ = run(tmp_path / "search", wanted, f"optimizer_kwargs.lr={rate}")
    assert check(path)["F2"].status == "fail" and "3 settings" in check(path)["F2"].reason


def test_time_to_quality_counts_no_evaluation(tmp_path):
    metrics = [
        (TimeToQuality(d5.TestAccuracy(), 20.0, every=3), None),
        (TimeToQuality(d5.TestAccuracy(), 101.0, every=5), None),
        (TimeToQuality(d5.metrics.TestLoss(), 5.0), None),
    ]
    path, result = run(tmp_path, metrics, "--repeat", "2")
    lines = [line for line in curve(path) if line["seed"] == 0]
    steps = [check["step"] for line in lines for check in line["checks"]]
    assert steps == [3, 5, 6, 9, 10, 12, 15, 18, 20, 21]  # of 22
    first = next(c for c in lines[0]["checks"] if c["step"] % 3 == 0 and c["test_accuracy"] >= 20)
    assert result.metrics[0].values[0] == first["seconds"]
    assert result.metrics[1].values == [None, None] and "best of 4 checks" in result.metrics[1].remark
    assert result.metrics[2].values[0] == lines[0]["train_seconds"]
    for line in lines:
        took = sum(check["took"] for check in line["checks"])
        assert line["train_seconds"] + took + line["test_seconds"] <= line["clock"]["wall_seconds"]
        assert line["checks"][-1]["seconds"] <= line["train_seconds"]
    assert verify(path) == []


def test_checks_change_nothing():
    def trained(events):
        train, test = d5.load_dataset("digits")
        d5fw = d5.load_backend("reference")
        network = d5.networks.create("mlp", hidden=(16,), shape=(1, 8, 8))
        network.add_parameter("ratio", np.float32(0.5), trainable=False)
        network.add_node("Dropout", ["output", "ratio"], ["dropped"], name="drop")
        executor = d5fw.from_model(d5.add_loss(network, output="dropped"))
        optimizer = d5fw.GradientDescent(executor, lr=0.1)
        sampler = d5.ShuffleSampler(train, 256)
        trainer = d5.Trainer(sampler, d5.OrderedSampler(test, 256), executor, optimizer)
        trainer.run(1, events)
        return executor.network.state(), trainer.statistics.epochs[0]

    (weights, plain), (again, checked) = trained([]), trained([JudgeEvery(2)])
    assert all(np.array_equal(weights[name], again[name]) for name in weights)
    assert not plain.checks and [check["step"] for check in checked.checks] == [2, 4]
    assert (plain.train_loss, plain.test_accuracy) == (checked.train_loss, checked.test_accuracy)


@pytest.mark.parametrize("steps", [(), (0,), (2.5,), (True,)])
def test_intervals_are_whole_numbers(steps):
    with pytest.raises(InputError, match="whole numbers of at least 1"):
        JudgeEvery(*steps)


@pytest.mark.parametrize("metric", [d5.TestAccuracy(True), d5.metrics.TrainingTime(), d5.metrics.TrainingLoss()])
def test_what_validations_do_not_judge_cannot_be_reached(metric):
    with pytest.raises(InputError, match="expected a quality that validations judge"):
        TimeToQuality(metric, 1.0)
    with pytest.raises(InputError, match="every=0"):
        TimeToQuality(TestQuality("r2"), 1.0, every=0)


def test_a_subset_of_nothing_is_refused():
    with pytest.raises(d5.errors.DataError, match="empty part"):
        Subset(d5.load_dataset("digits")[0], [])


def test_a_part_counts_its_labels():
    whole = d5.NumpyDataset(np.zeros((6, 1)), "input", np.array([0, 0, 1, 2, 2, 2]), "label")
    part = Subset(Subset(whole, [5, 4, 2, 0]), [0, 1, 3])
    assert whole.label_counts() == [2, 1, 3] and part.label_counts() == [1, 0, 2]
    assert d5.NumpyDataset(np.zeros((6, 1))).label_counts() is None
