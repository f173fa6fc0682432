"""A run that failed is exported with what its seeds came to before, in every format, and with every table's columns."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

from deep500.errors import ResultsError
from deep500.metrics import TestAccuracy, TestLoss, VarianceOverSeeds
from deep500.recipe.plan import _facts
from deep500.results import Record
from deep500.results.export import COLUMNS, FORMATS, export
from deep500.results.finished import read_finished
from deep500.results.query import query
from tests.results.report_cases import durations, finished, manifest

JUDGED = ((TestAccuracy(), 80.0), (TestLoss(), None), (VarianceOverSeeds(TestAccuracy()), 1.0))
CLOCK = {"began": 1000.0, "wall_seconds": 2.0, "steps": 3}


def folder(base, epochs, labels=("busy machine",), status="failed", **more):
    """Three seeds, of which epochs were trained: two are a whole seed."""
    facts = [{**_facts(metric), "target": target} for metric, target in JUDGED]
    about = {"resolved": {"recipe": {"batch_size": 32}, "metrics": facts}, **more}
    record = Record.create(base, "job", manifest(3, series={}, **about))
    for seed, count in enumerate(epochs):
        for epoch in range(1, count + 1):
            line = {"test_accuracy": 80.0 + epoch, "test_loss": 0.5, "test_samples": 9, "test_seconds": 0.5}
            line |= {"train_seconds": 1.5, "clock": CLOCK}
            record.add_epoch(seed, epoch, line, {"arrays": {}, "values": {}})
        if count == 2:
            record.finish_seed(seed, {"test_accuracy": 82.0, "test_loss": 0.5, "variance_of_test_accuracy": 82.0}, None)
    if status is not None:
        ended = {"verdict": "FAILED", "labels": list(labels), "metrics": [], "error": "got loss nan"}
        record.write_summary({**ended, "finished": "2026-11-28T00:00:00+00:00", "status": status})
    return record


def entries(file):
    return [json.loads(line.removeprefix(":::MLLOG ")) for line in file.read_text().splitlines()]


def test_a_seed_that_was_trained_before_another_failed_has_its_values(tmp_path):
    record = folder(tmp_path / "runs", [2, 1])
    run = read_finished(record.path)
    assert run.seeds == [0, 1] and [run.is_whole(seed) for seed in run.seeds] == [True, False]
    accuracy, loss, variance = run.metrics
    assert [(s.value, s.verdict) for s in accuracy.seeds] == [(82.0, "PASSED"), (None, "FAILED")]
    assert accuracy.sentence == "not measured (the run failed) [busy machine]: FAILED (the run failed)"
    assert [s.value for s in loss.seeds] == [0.5, None] and loss.verdict == "UNJUDGED" and not variance.seeds
    first, second = map(entries, export(record.path, "mllog", tmp_path / "log"))
    assert [log[-1]["metadata"]["status"] for log in (first, second)] == ["success", "aborted"]
    assert [sum(line["key"] == "eval_accuracy" for line in log) for log in (first, second)] == [2, 1]
    whole, cut = export(record.path, "mlflow", tmp_path / "flow")
    assert [json.loads((place / "meta.yaml").read_text())["status"] for place in (whole, cut)] == [3, 4]
    assert (whole / "metrics" / "final test_accuracy in percent").read_text().split()[1:] == ["82.0", "2"]
    assert not [*(cut / "metrics").glob("final *")]
    sql = "SELECT seed, value, verdict FROM metrics WHERE metric = 'test_accuracy'"
    assert query(tmp_path / "runs", sql)[1] == [(0, 82.0, "PASSED"), (1, None, "FAILED")]


@pytest.mark.parametrize("epochs", [[2, 0], [0], [1]])
@pytest.mark.parametrize("to", FORMATS)
def test_a_failed_run_is_exported_in_every_format(to, epochs, tmp_path):
    if to == "tensorboard" and importlib.util.find_spec("tensorboardX") is None:
        pytest.skip("pip install 'deep500[tensorboard]'")
    record = folder(tmp_path / "runs", epochs)
    files = export(record.path, to, tmp_path / "out")
    if to == "csv":
        headers = {file.stem: file.read_text().splitlines()[0].split(",") for file in files}
        assert headers.keys() == COLUMNS.keys()
        assert all({*COLUMNS[name], "labels"} <= {*header} for name, header in headers.items())
    elif to == "mllog":
        assert len(files) == len(epochs) and all(line["time_ms"] > 0 for file in files for line in entries(file))
    else:
        assert len(files) == len(epochs)
    assert query(tmp_path / "runs", "SELECT metric, low FROM over_seeds")[1] == [(m.name, None) for m, _ in JUDGED]
    assert query(tmp_path / "runs", "SELECT series, low FROM estimates")[1] == []


def test_an_unfinished_run_names_the_way_on(tmp_path):
    record = folder(tmp_path / "runs", [2], status=None)
    for to in FORMATS:
        with pytest.raises(ResultsError, match=r"got an unfinished run; .*--resume"):
            export(record.path, to, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_mlperfs_log_has_the_evaluations_of_any_task_and_of_the_test_data(tmp_path):
    task = {"name": "regression", "qualities": [{"name": "r2", "unit": "", "direction": "higher"}], "sample": "sample"}
    record = finished(tmp_path / "runs", samples=20, seeds=1, task=task)
    lines = [{"seed": 0, "epoch": n, "test_r2": 0.1 * n, "test_loss": 1.0, "test_samples": 3} for n in (1, 2)]
    (record.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    record.finish_seed(0, {"test_accuracy": 93.0}, None, final={"test_r2": 0.25, "test_loss": 2.0})
    (file,) = export(record.path, "mllog", tmp_path)
    got = [
        (line["key"], line["value"], line["metadata"]["data"], line["metadata"].get("metric"))
        for line in entries(file)
        if line["key"] in ("eval_accuracy", "eval_r2", "eval_loss")
    ][3:]
    assert got == [
        ("eval_accuracy", 0.2, "validation", "r2"),
        ("eval_loss", 1.0, "validation", None),
        ("eval_r2", 0.2, "validation", None),
        ("eval_accuracy", 0.25, "test", "r2"),
        ("eval_loss", 2.0, "test", None),
        ("eval_r2", 0.25, "test", None),
    ]


def test_names_that_mlflow_writes_alike_stay_apart(tmp_path):
    resolved = {"recipe": {"top/err": 1.5, "top_err": 2.5, "top%err": 3.5}}
    record = finished(tmp_path / "runs", samples=20, seeds=1, resolved=resolved)
    (place,) = export(record.path, "mlflow", tmp_path / "out")
    files = {file.name: file.read_text() for file in (place / "params").iterdir()}
    assert sorted(files.values()) == ["1.5", "2.5", "3.5"] and files["recipe.top_err"] == "2.5"


def test_samples_of_a_seed_say_that_it_began(tmp_path):
    record = folder(tmp_path / "runs", [2])
    taken = durations(np.random.default_rng(0), 5)
    record.samples.append("step", 2, taken.cumsum(), taken)
    assert read_finished(record.path).seeds == [0, 2]
