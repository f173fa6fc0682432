"""Whole runs in one process: verdicts, records, and every wrong input that shows only when things are built."""

from __future__ import annotations

import json
import math
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import (
    DataError,
    Deep500Error,
    MissingDevice,
    NetworkError,
    RecipeError,
    ResultsError,
    TrainingError,
)
from deep500.recipe import run_recipe
from deep500.results import Record
from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from deep500.results.verify import verify
from deep500.training.listeners import StopAtAccuracy
from tests.recipes.common import quick


def run(tmp_path, *argv, backend="pytorch", **changes):
    return run_recipe(*quick(backend, **changes), argv=[*argv, "--out", str(tmp_path)])


def read(result, name="summary.json"):
    return json.loads((Path(result.path) / name).read_text(encoding="utf-8"))


def lines(result):
    return Record(Path(result.path)).epochs()


def page_of(result):
    return Path(result.report).read_text(encoding="utf-8")


class Growing(d5.Sampler):
    """A curriculum: half of the samples, then all."""

    def order(self, epoch):
        return self.rng(epoch).permutation(len(self.dataset))[: len(self.dataset) // (2 - min(epoch, 1))]


def test_a_sampler_of_ones_own_may_have_epochs_of_other_lengths(tmp_path):
    result = run(tmp_path, backend="reference", train_sampler=Growing, metrics=[(d5.TestAccuracy(), 1.0)])
    first, second = (line["clock"]["steps"] for line in lines(result))
    assert second >= 2 * first > 0 and verify(Path(result.path)) == []


def test_all_validation_samples_are_judged_whatever_the_sampler(tmp_path):
    """A shuffle leaves out the last batch in training; one that takes some samples only judges other data."""
    same = {"backend": "reference", "epochs": 1, "metrics": [(d5.TestAccuracy(), 1.0)]}
    samplers = (d5.ShuffleSampler, d5.OrderedSampler)
    first, second = (run(tmp_path, validation_sampler=sampler, **same).metrics[0].value for sampler in samplers)
    assert first == second
    with pytest.raises(RecipeError, match=r"validation_sampler: got Growing, which leaves out \d+ of \d+ samples"):
        run(tmp_path, validation_sampler=Growing, **same)


class StopAt(d5.Event):
    """Asks for the end at a call of a hook in the second epoch."""

    def __init__(self, hook: str) -> None:
        setattr(self, hook, self.call)

    def call(self, run):
        if run.epoch == 1:
            raise d5.StopTraining("enough")


@pytest.mark.parametrize(
    "hook",
    ["before_batch", "after_io", "before_validation", "after_validation_batch", "after_validation", "after_epoch"],
)
def test_a_listener_that_stops_anywhere_in_an_epoch_ends_the_run_with_it(tmp_path, capsys, hook):
    """Curve, samples, checkpoints, metrics and pictures are of the network that the run ends with."""
    result = run(tmp_path, backend="reference", events=[StopAt(hook)], epochs=4, metrics=[(d5.TestAccuracy(), 1.0)])
    assert verify(Path(result.path)) == [] and read(result, "seeds.json")["0"]["stopped_by"] == "enough"
    epochs = lines(result)
    assert len(epochs) == 2 and epochs[-1]["test_accuracy"] == result["test_accuracy"].value


@pytest.mark.parametrize("backend", ["reference", "pytorch"])
def test_run_leaves_a_complete_record(tmp_path, capsys, backend):
    result = run(tmp_path, backend=backend)
    assert result and result.verdict == "PASSED" and result["test_accuracy"].value > 20
    files = sorted(path.name for path in Path(result.path).iterdir())
    assert files == [
        "SHA256SUMS",
        "checkpoints",
        "claims.json",
        "exhibits.json",
        "journal.jsonl",
        "manifest.json",
        "metrics.jsonl",
        "network.json",
        "report.html",
        "rules.json",
        "samples",
        "seeds.json",
        "stats.json",
        "summary.json",
    ]
    assert verify(Path(result.path)) == []
    stats = json.loads((Path(result.path) / "stats.json").read_text())["series"]
    assert stats["epoch"]["n"] == stats["validation"]["n"] == 2 and stats["step"]["n"] > 2
    assert stats["epoch"]["total"] == pytest.approx(result["training_time"].value, rel=1e-6)
    manifest = read(result, "manifest.json")
    assert manifest["division"] == "closed" and manifest["seeds"] == [0] and manifest["backend"] == backend
    assert manifest["resolved"]["recipe"]["executor"].startswith(f"deep500.frameworks.{backend}")
    train, validation = manifest["data"]["train"], manifest["data"]["validation"]
    assert (train["length"], validation["length"]) == (1438, 359) and train["digest"] != validation["digest"]
    assert manifest["environment"]["versions"]["numpy"] == np.__version__ and len(manifest["recipe_sha256"]) == 64
    assert [(line["seed"], line["epoch"]) for line in lines(result)] == [(0, 1), (0, 2)]
    assert lines(result)[-1]["test_accuracy"] == result["test_accuracy"].value
    printed = capsys.readouterr().out
    assert printed.splitlines()[0] == f"results: {result.path}" and "epoch 2/2" in printed
    assert "verdict: PASSED" in printed and result.report in printed and "test_accuracy" in printed


def test_training_changed_the_weights_and_resumable_checkpoints_are_kept(tmp_path):
    result = run(tmp_path, epochs=3)
    first, second = list_checkpoints(Path(result.path) / "checkpoints" / "seed-0")
    before, after = load_checkpoint(first), load_checkpoint(second)
    assert (before["epoch"], after["epoch"]) == (2, 3)
    weights = [name for name in after["arrays"] if name.startswith("network/")]
    assert any(not np.array_equal(before["arrays"][name], after["arrays"][name]) for name in weights)


def test_same_seed_same_numbers_and_the_callers_objects_stay(tmp_path):
    fixed, mutable, metrics = quick("pytorch")
    before = repr((fixed, mutable, metrics)), [vars(metric) for metric, _ in metrics]
    first, second = (run_recipe(fixed, mutable, metrics, argv=["--out", str(tmp_path), "--quiet"]) for _ in range(2))
    assert (repr((fixed, mutable, metrics)), [vars(metric) for metric, _ in metrics]) == before
    assert first.path != second.path

    def exact(result):
        times = ("train_seconds", "test_seconds", "clock", "load")
        return [{k: v for k, v in line.items() if k not in times} for line in lines(result)]

    assert exact(first) == exact(second)
    other = run_recipe(fixed, mutable, metrics, argv=["--out", str(tmp_path), "--seed", "1", "--quiet"])
    assert exact(first) != exact(other)


def test_missed_target_is_falsy(tmp_path):
    result = run(tmp_path, metrics=[(d5.TestAccuracy(), 100.0), (d5.metrics.TestLoss(), 1e9)])
    assert not result and result.verdict == "FAILED" and result.exit_code == 1
    assert [metric.verdict for metric in result.metrics] == ["FAILED", "PASSED"]


def test_repeat_reports_median_and_spread(tmp_path):
    result = run(tmp_path, "--repeat", "3", "--seed", "5", epochs=1)
    metric = result["test_accuracy"]
    assert len(set(metric.values)) > 1 and metric.value == sorted(metric.values)[1]
    assert (metric.low, metric.high) == (min(metric.values), max(metric.values))
    assert {line["seed"] for line in lines(result)} == {5, 6, 7} and read(result, "manifest.json")["seeds"] == [5, 6, 7]
    assert "median of 3" in page_of(result)


def test_framework_is_exchanged_as_a_whole(tmp_path):
    result = run(tmp_path, "--backend", "reference", epochs=1)
    recipe = read(result, "manifest.json")["resolved"]["recipe"]
    assert recipe["executor"].startswith("deep500.frameworks.reference")
    assert "pytorch" not in recipe["optimizer"] and read(result, "manifest.json")["backend"] == "reference"
    with pytest.raises(d5.errors.MissingBackend, match="tensorfow"):
        run(tmp_path, "--backend", "tensorfow")


def test_dry_run_takes_two_batches_and_judges_nothing(tmp_path):
    result = run(tmp_path, "--dry-run", epochs=200, batch_size=4, metrics=[(d5.TestAccuracy(), 100.0)])
    assert result and result.verdict == "UNJUDGED (dry run)" and result.labels == ("dry run",)
    (line,) = lines(result)
    assert line["train_samples"] == 8 and line["test_samples"] == 8


def test_absent_data_are_replaced_labelled_and_unjudged(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DATA_ROOT", str(tmp_path / "nothing"))
    monkeypatch.chdir(tmp_path)
    changes = {"dataset": "mnist", "augmentation": None, "epochs": 1, "metrics": [(d5.TestAccuracy(), 100.0)]}
    result = run(tmp_path, **changes)
    assert result and result.exit_code == 0 and result.verdict == "UNJUDGED (stand-in data)"
    out, err = capsys.readouterr()
    assert "STAND-IN" in err and "UNJUDGED (stand-in data)" in out
    assert all("[stand-in data]" in line for line in out.splitlines() if "accuracy " in line and "epoch" in line)
    page = page_of(result)
    assert page.index("UNJUDGED (stand-in data)") < page.index('id="results"') and all(
        f'{heading} <span class="label">stand-in' in page for heading in (">Learning", ">Results")
    )
    assert read(result, "manifest.json")["warnings"] and read(result)["labels"] == ["stand-in data"]
    with pytest.raises(DataError, match="mnist"):
        run(tmp_path, "--strict", **changes)


def test_absent_gpu_is_in_the_record(tmp_path, capsys):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    result = run(tmp_path, "--device", "gpu", epochs=1)
    manifest = read(result, "manifest.json")
    assert manifest["device"] == {"asked": "gpu:0", "used": "cpu:0"} and "gpu:0" in manifest["warnings"][0]
    assert "deep500: warning: got device gpu:0" in capsys.readouterr().err
    assert "gpu:0" in page_of(result)
    with pytest.raises(MissingDevice, match="--strict"):
        run(tmp_path, "--device", "gpu", "--strict")


def test_open_run_says_so(tmp_path):
    with pytest.raises(RecipeError, match="--open"):
        run(tmp_path, "epochs=1")
    result = run(tmp_path, "epochs=1", "--open")
    assert result.labels == ("open division",) and len(lines(result)) == 1
    page = page_of(result)
    assert '>Results <span class="label">open division</span>' in page and "epochs=1" in page


def test_json_prints_one_object(tmp_path, capsys):
    result = run(tmp_path, "--json", epochs=1)
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdict"] == "PASSED" and printed["path"] == result.path
    run(tmp_path, "--quiet", epochs=1)
    assert len(capsys.readouterr().out.splitlines()) == 4  # two metrics with their header, and the verdict


def test_list_mutable(tmp_path, capsys):
    run(tmp_path, "--list-mutable")
    names = [line.split(" = ")[0] for line in capsys.readouterr().out.splitlines()]
    assert {"batch_size", "optimizer", "optimizer_kwargs", "seed"} <= set(names) and "epochs" not in names
    assert not (tmp_path / "test_run").exists()


def never(*_):
    raise AssertionError("not called")


WRONG = [
    ({"model": "resnett"}, NetworkError, "resnet"),
    ({"model_kwargs": {"hiden": (3,)}}, NetworkError, "hidden"),
    ({"model": "absent.onnx", "model_kwargs": None}, Deep500Error, "absent.onnx"),
    ({"model": "absent.onnx", "model_kwargs": {"depth": 3}}, RecipeError, "'depth'"),
    ({"model": lambda depth: None, "model_kwargs": {"dept": 3}}, RecipeError, "'depth'"),
    ({"model": lambda **_: 3, "model_kwargs": None}, RecipeError, "got int"),
    ({"dataset": "digit"}, DataError, "digits"),
    ({"dataset": lambda: 3}, DataError, "expected two or three Datasets"),
    ({"dataset_kwargs": {"sise": 3}}, DataError, "size"),
    ({"optimizer_kwargs": {"momentun": 0.9}}, Deep500Error, "momentum"),
    ({"optimizer_kwargs": {"lr": -1.0}}, Deep500Error, "lr"),
    ({"executor_kwargs": {"devise": "cpu"}}, RecipeError, "device"),
    ({"executor": lambda network: 3}, RecipeError, "GraphExecutor"),
    ({"train_sampler": d5.ShuffleSampler, "train_sampler_kwargs": {"sed": 3}}, RecipeError, "seed"),
    ({"train_sampler": lambda data, batch_size: [3]}, RecipeError, "got list; expected a Sampler"),
    ({"batch_size": 1439}, RecipeError, "at most 1438"),
    ({"loss": "cross_entropi"}, NetworkError, "cross_entropy"),
    ({"gradient_modifier": never, "optimizer_kwargs": {"gradient_modifier": never}}, RecipeError, "expected it once"),
]


@pytest.mark.parametrize(
    ("changes", "error", "message"), WRONG, ids=[f"{n}-{next(iter(w[0]))}" for n, w in enumerate(WRONG)]
)
def test_wrong_recipe_is_an_error_before_anything_is_written(tmp_path, changes, error, message):
    with pytest.raises(error, match=message) as caught:
        run(tmp_path, **changes)
    assert isinstance(caught.value, Deep500Error) and not list(tmp_path.iterdir())


def test_not_a_number_ends_the_run_and_keeps_the_last_good_checkpoint(tmp_path):
    spoilt = d5.schedules.TableSchedule({0: 0.1, 2: 1e30})
    with pytest.raises(TrainingError, match=r"epoch 3, step \d+: got loss (nan|inf)"):
        run(tmp_path, epochs=5, schedule=spoilt)
    (folder,) = (tmp_path / "test_run").glob("20*-*")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "failed" and summary["verdict"] == "FAILED" and "epoch 3" in summary["error"]
    assert "epoch 3" in (folder / "report.html").read_text()
    newest = load_checkpoint(list_checkpoints(folder / "checkpoints" / "seed-0")[-1])
    assert newest["epoch"] == 2 and all(np.isfinite(a).all() for a in newest["arrays"].values())


@pytest.mark.parametrize("place", ["in the way", "full"])
def test_results_that_cannot_be_written(tmp_path, monkeypatch, place):
    (tmp_path / "file").write_text("in the way")
    if place == "full":
        calls = iter(range(100))
        real = os.fsync

        def fsync(handle):
            if next(calls) > 6:
                raise OSError(28, "No space left on device")
            real(handle)

        monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(ResultsError, match="--out DIR"):
        run(tmp_path / ("file" if place == "in the way" else "ok"), epochs=5)
    monkeypatch.undo()
    if place == "full":  # nothing is lost: it goes on from where it was
        resumed = run(tmp_path / "ok", "--resume", epochs=5)
        assert resumed.verdict == "PASSED" and len(lines(resumed)) == 5


def test_own_parts(tmp_path):
    """A Network, data and listeners of one's own; the network's input gets the data's name."""
    network = d5.Network("own")
    network.add_input("x", ("N", 4))
    network.add_parameter("w", np.full((4, 2), 0.1, "float32"))
    network.add_node("MatMul", ["x", "w"], ["y"])
    network.add_output("y")
    x = np.random.default_rng(0).normal(size=(40, 4)).astype("float32")
    seen = []

    class Watch(d5.Event):
        def after_batch(self, run):
            seen.append(run.step)

    def data(half):
        return d5.NumpyDataset(x[:half], "input", (x[:half, 0] > 0).astype(int), "label", classes=2), d5.NumpyDataset(
            x[half:], "input", (x[half:, 0] > 0).astype(int), "label", classes=2
        )

    metrics = [d5.TestAccuracy(), (d5.metrics.TimeToAccuracy(100.0), 1e-9)]
    changes = {
        "model": network,
        "model_kwargs": None,
        "dataset": data,
        "dataset_args": (30,),
        "augmentation": None,
        "batch_size": 10,
        "events": [Watch],
        "metrics": metrics,
    }
    result = run(tmp_path, **changes)
    assert len(seen) == 6 and network.inputs.keys() == {"x"}
    assert result["test_accuracy"].label == "UNJUDGED (no target)"
    assert result["time_to_accuracy_100"].verdict == "FAILED"  # never reached, or not within a nanosecond


def test_seeds_share_no_metric_and_no_listener(tmp_path):
    class Batches(d5.Metric, d5.Event):
        name, unit, direction, kind = "batches", "", "higher", "count"

        def __init__(self):
            self.seen = 0

        def after_batch(self, run):
            self.seen += 1

        def measure(self, statistics):
            return self.seen

    mine = Batches()
    result = run(tmp_path, "--repeat", "2", metrics=[(mine, 22)])
    assert result["batches"].values == [22, 22] and mine.seen == 0 and result["batches"].verdict == "PASSED"


def test_preprocessing_reaches_both_halves_augmentation_the_training_one(tmp_path):
    seen = {"preprocessing": [], "augmentation": []}

    def note(name):
        def transform(batch, rng):
            seen[name].append(len(batch["label"]))
            return batch

        return transform

    run(
        tmp_path, batch_size=359, epochs=1, **{name: [note(name)] for name in seen}
    )  # 4 batches; validation has 1, what the report shows, and two samples tell the network's shape
    assert (len(seen["preprocessing"]), len(seen["augmentation"])) == (7, 4)


def test_early_stop_says_why(tmp_path, capsys):
    result = run(tmp_path, epochs=50, events=[StopAtAccuracy(15.0)])
    assert result and len(lines(result)) < 50
    assert "stopped before its last epoch: test accuracy" in capsys.readouterr().out
    assert "reached" in read(result, "seeds.json")["0"]["stopped_by"]


def test_a_network_is_made_for_what_preprocessing_gives(tmp_path):
    resized = {"preprocessing": [d5.Resize((6, 4))], "augmentation": None, "epochs": 1}
    result = run(tmp_path, backend="reference", model="simple_cnn", model_kwargs=None, **resized)
    assert result["test_accuracy"].value is not None


def test_an_onnx_file_is_a_model(tmp_path):
    network = d5.networks.create("mlp", hidden=(8,), shape=(1, 8, 8))
    path = tmp_path / "net.onnx"
    network.to_onnx(path)
    assert run(tmp_path, model=str(path), model_kwargs=None, epochs=1).metrics[0].value > 0


def test_a_recipe_says_which_arrays_of_a_file_train_and_records_it(tmp_path, monkeypatch):
    network = d5.networks.create("mlp", hidden=(8,), shape=(1, 8, 8))
    network.to_onnx(tmp_path / "net.onnx")
    trained = []
    before = d5.Trainer.run
    monkeypatch.setattr(
        d5.Trainer,
        "run",
        lambda self, *a, **k: trained.append(self.executor.network.trainable()) or before(self, *a, **k),
    )
    result = run(tmp_path, model=str(tmp_path / "net.onnx"), model_kwargs={"trainable": "*bias"}, epochs=1)
    assert trained and trained[0] == [name for name in network.trainable() if name.endswith("bias")]
    assert "*bias" in json.dumps(read(result, "manifest.json")["resolved"]["recipe"]["model_kwargs"])


def test_nothing_is_warned_of_in_a_plain_run(tmp_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(tmp_path, epochs=1)
    assert not caught


def test_quality_that_is_not_a_number_stays_failed_after_a_resume(tmp_path):
    class Odd(d5.Metric):
        name, unit, direction, kind = "odd", "", "lower", "quality"

        def measure(self, statistics):
            return math.nan

    result = run(tmp_path, metrics=[(Odd(), 1.0)], epochs=1)
    assert result["odd"].verdict == "FAILED"
    (Path(result.path) / "summary.json").unlink()  # as if killed at the very end
    again = run(tmp_path, "--resume", metrics=[(Odd(), 1.0)], epochs=1)
    assert again["odd"].verdict == "FAILED" and again.path == result.path


def test_a_run_has_a_name_and_tags_that_stay(tmp_path):
    words = ["--name", "first try", "--tag", "old", "--tag", "small"]
    result = run(tmp_path, *words, "--repeat", "2", "--stop-after", "1", backend="reference")
    assert Record(Path(result.path)).titles() == {"name": "first try", "tags": ["old", "small"]}
    with pytest.raises(ResultsError, match="expected 'first try'"):
        run(tmp_path, "--resume", result.path, "--name", "second", backend="reference")
    run(tmp_path, "--resume", result.path, *words, backend="reference")
    page = (Path(result.path) / "report.html").read_text(encoding="utf-8")
    assert "first try: recipe" in page and page.count('<span class="tag">') == 2 and not verify(Path(result.path))
    with pytest.raises(RecipeError, match="on one line"):
        run(tmp_path, "--name", "a\nb", backend="reference")
