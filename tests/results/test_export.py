"""Exports are read back by the tools they are for: MLPerf's checker, TensorFlow and TensorBoard, MLflow."""

from __future__ import annotations

import csv
import importlib.util
import json
import re
import sys
import time
from pathlib import Path

import pytest

from deep500 import cli
from deep500.errors import InputError, ResultsError, TrainingError
from deep500.metrics import TestAccuracy, TestLoss, TimeToAccuracy, VarianceOverSeeds
from deep500.recipe import run_recipe
from deep500.results.export import FORMATS, export
from deep500.results.query import query
from deep500.results.rules import NOT_APPLICABLE, check
from tests.recipes.common import quick
from tests.results.report_cases import HOSTILE, finished


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Two seeds of three epochs, 40 steps each, on stand-in data."""
    base = tmp_path_factory.mktemp("results")
    return finished(base, samples=40, seeds=2, series=("step", "epoch"), labels=["stand-in data"])


def needs(package):
    return pytest.mark.skipif(
        importlib.util.find_spec(package) is None, reason=f"{package} is not installed: pip install {package}"
    )


@pytest.mark.parametrize("to", FORMATS)
def test_what_cannot_be_exported_is_one_error(to, run, tmp_path):
    with pytest.raises(ResultsError, match="no such file"):
        export(tmp_path / "none", to, tmp_path / "out")
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="expected a writable folder"):
        export(run.path, to, tmp_path / "file" / "below")


def test_an_unknown_format_is_one_error(run, tmp_path):
    with pytest.raises(InputError, match="csv, mllog, tensorboard, mlflow"):
        export(run.path, "xml", tmp_path)


# -- MLPerf -----------------------------------------------------------------------------------------------------------
def test_mlperfs_log_follows_the_grammar_of_its_parser(run, tmp_path):
    """``:::MLLOG`` and one JSON object per line, whose time is a number and whose start and end alternate."""
    files = export(run.path, "mllog", tmp_path)
    assert [file.name for file in files] == ["result_0.txt", "result_1.txt"]
    for file in files:
        assert all(line.startswith(":::MLLOG {") for line in file.read_text().splitlines())
        entries = [json.loads(line.removeprefix(":::MLLOG ")) for line in file.read_text().splitlines()]
        assert all(set(e) == {"namespace", "time_ms", "event_type", "key", "value", "metadata"} for e in entries)
        assert all(isinstance(e["time_ms"], int) and {"file", "lineno"} <= e["metadata"].keys() for e in entries)
        keys = [entry["key"] for entry in entries]
        assert keys.count("run_start") == keys.count("run_stop") == keys.count("seed") == 1
        assert keys.count("epoch_start") == keys.count("eval_accuracy") == keys.count("eval_stop") == 3
        assert entries[keys.index("eval_accuracy")]["value"] == pytest.approx(0.91, abs=0.002)
        assert keys[-1] == "run_stop" and entries[-1]["metadata"]["status"] == "success"


@needs("mlperf_logging")
@pytest.mark.parametrize("rules", ["4.1.0", "6.1.0"])
def test_mlperfs_compliance_checker_objects_to_nothing_that_a_run_can_say(rules, run, tmp_path):
    sys.modules.pop("mlperf_logging", None)
    from mlperf_logging.compliance_checker import mlp_compliance
    from mlperf_logging.compliance_checker.mlp_parser import parse_file

    for file in export(run.path, "mllog", tmp_path):
        lines, errors = parse_file(str(file), rules)
        assert errors == [] and len(lines) == len(file.read_text().splitlines())
        checker = mlp_compliance.make_checker("training", rules, False, True)
        checker.configured_checks(
            lines, str(Path(mlp_compliance.__file__).parent / f"training_{rules}" / "common.yaml")
        )
        # names of benchmarks are MLPerf's own; submitters time the initialisation, before which no run may start
        assert {line.key for line in lines} & checker.overwritable.keys() <= {"submission_benchmark", "run_start"}
        assert checker.not_overwritable == []


def test_a_seed_that_misses_the_target_is_no_success(tmp_path):
    record = finished(tmp_path / "runs", samples=40, seeds=2)
    summary = record.summary()
    summary["metrics"][0]["values"][1] = 92.9
    record.write_summary(summary)
    ends = [
        json.loads(file.read_text().splitlines()[-1].removeprefix(":::MLLOG "))
        for file in export(record.path, "mllog", tmp_path)
    ]
    assert [end["metadata"]["status"] for end in ends] == ["success", "aborted"]
    (_, second) = export(record.path, "mlflow", tmp_path / "flow")
    assert (second / "tags" / "test_accuracy verdict").read_text() == "FAILED"
    export(record.path, "csv", tmp_path)
    words = [(row["verdict"], row["verdict_over_seeds"]) for row in table(tmp_path / "metrics.csv")]
    assert words == [("PASSED", "PASSED"), ("FAILED", "PASSED")]
    record.write_summary({**summary, "verdict": "UNJUDGED (stand-in data)"})
    (first, _) = export(record.path, "mllog", tmp_path)
    assert '"aborted"' in first.read_text().splitlines()[-1]


# -- TensorBoard ------------------------------------------------------------------------------------------------------
def test_tensorboard_without_its_package_names_the_extra(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    assert (
        cli.main(["publish", "export", str(run.path), "--to", "tensorboard", "-o", str(tmp_path)])
        == ResultsError.exit_code
    )
    assert "pip install 'deep500[tensorboard]'" in capsys.readouterr().err


def scalars(events, steps):
    """What a list of events holds: (tag, step) -> value."""
    return {(value.tag, event.step): steps(value) for event in events for value in event.summary.value}


@needs("tensorboardX")
@needs("tensorflow")
def test_tensorflow_reads_the_event_files(run, tmp_path):
    """TensorFlow's reader checks the records' checksums."""
    import tensorflow as tf

    files = export(run.path, "tensorboard", tmp_path)
    assert [file.parent.name for file in files] == ["seed-0 [stand-in data]", "seed-1 [stand-in data]"]
    records = tf.data.TFRecordDataset(str(files[1])).as_numpy_iterator()
    events = [tf.compat.v1.Event.FromString(record) for record in records]
    values = scalars(events, lambda value: value.simple_value)
    steps = run.samples.durations("step", 1)
    assert [values["seconds/step", i] for i in range(40)] == pytest.approx(steps.tolist(), rel=1e-6)
    assert values["epoch/test_accuracy", 2] == pytest.approx(92.1) and values["metric/test_accuracy", 0] > 93
    walls = [event.wall_time for event in events for value in event.summary.value if value.tag == "seconds/step"]
    assert walls[:40] == sorted(walls[:40]) and walls[39] - walls[0] == pytest.approx(steps[:39].sum(), rel=0.1)
    units = [v.metadata.summary_description for e in events for v in e.summary.value if v.tag == "metric/test_accuracy"]
    assert units == ["unit: %"]
    (text,) = [
        value.tensor.string_val[0]
        for event in events
        for value in event.summary.value
        if value.tag.startswith("verdict")
    ]
    assert b"PASSED" in text and b"test_accuracy: 93.05 %" in text


@needs("tensorboardX")
@needs("tensorboard")
def test_tensorboard_reads_the_event_files(run, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (_, file) = export(run.path, "tensorboard", tmp_path)
    events = EventAccumulator(str(file.parent)).Reload()
    assert len(events.Scalars("seconds/step")) == 40 and len(events.Histograms("distribution/step")) == 1
    assert [event.step for event in events.Scalars("epoch/train_loss")] == [1, 2, 3]


@needs("tensorboardX")
def test_hostile_labels_make_no_folders(tmp_path):
    record = finished(tmp_path / "runs", samples=40, seeds=1, labels=["../../up", HOSTILE])
    (file,) = export(record.path, "tensorboard", tmp_path / "out")
    assert file.parent.parent == tmp_path / "out" and "stand-in" not in file.parent.name


# -- MLflow -----------------------------------------------------------------------------------------------------------
def test_mlflows_store_has_one_file_per_value(run, tmp_path):
    folders = export(run.path, "mlflow", tmp_path)
    assert len(folders) == 2 and len({folder.parent for folder in folders}) == 1
    lines = (folders[1] / "metrics" / "train_loss").read_text().splitlines()
    assert [line.split()[1:] for line in lines] == [["1.1", "1"], ["0.55", "2"], ["0.3666666666666667", "3"]]
    assert (folders[0] / "params" / "recipe.batch_size").read_text() == "32"
    assert (folders[0] / "tags" / "labels").read_text() == "stand-in data"
    before = sorted(path for path in tmp_path.rglob("*"))
    assert export(run.path, "mlflow", tmp_path) == folders and sorted(tmp_path.rglob("*")) == before


@needs("mlflow")
def test_mlflow_reads_its_store(run, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    export(run.path, "mlflow", tmp_path)
    client = MlflowClient(tracking_uri=tmp_path.as_uri())
    experiment = client.get_experiment_by_name("job")
    runs = client.search_runs([experiment.experiment_id], "metrics.`final test_accuracy in percent` > 93.05")
    assert [row.data.tags["seed"] for row in runs] == ["1"] and runs[0].info.status == "FINISHED"
    assert "[stand-in data]" in runs[0].info.run_name and runs[0].data.params["recipe.batch_size"] == "32"
    history = client.get_metric_history(runs[0].info.run_id, "test_accuracy")
    assert [(point.step, point.value) for point in history] == [(1, 91.1), (2, 92.1), (3, 93.1)]
    assert (
        runs[0].data.tags["test_accuracy over seeds"]
        == "93.05 % (observation: median of 2, 93 to 93.1) [stand-in data]: PASSED"
    )


def test_hostile_names_stay_within_the_store(tmp_path):
    resolved = {"recipe": {"../../up": 1, "a/b": 2, HOSTILE: 3, "": 4}}
    record = finished(tmp_path / "runs", samples=40, seeds=1, resolved=resolved)
    (folder,) = export(record.path, "mlflow", tmp_path / "out")
    names = {path.name for path in (folder / "params").iterdir()}
    assert names == {"recipe..._.._up", "recipe.a_b", "recipe._script_alert__x____script_", "recipe."}


# -- clocks of a real run ---------------------------------------------------------------------------------------------
def test_times_are_unix_time_and_those_of_each_seed(tmp_path):
    """MLPerf's log and MLflow tell when each seed trained, by the run's own clock."""
    path = Path(
        run_recipe(*quick("reference", epochs=2), argv=["--repeat", "2", "--quiet", "--out", str(tmp_path)]).path
    )
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    for number, file in enumerate(export(path, "mllog", tmp_path / "mllog")):
        entries = [json.loads(line.removeprefix(":::MLLOG ")) for line in file.read_text().splitlines()]
        begins = [entry["time_ms"] for entry in entries if entry["key"] == "epoch_start"]
        assert begins == [round(1000 * line["clock"]["began"]) for line in lines if line["seed"] == number]
        times = [entry["time_ms"] for entry in entries]
        assert times == sorted(times) and abs(times[0] / 1000 - time.time()) < 600
    for number, run in enumerate(export(path, "mlflow", tmp_path / "mlflow")):
        about = json.loads((run / "meta.yaml").read_text())
        of_seed = [line["clock"] for line in lines if line["seed"] == number]
        ends = [round(1000 * (clock["began"] + clock["wall_seconds"])) for clock in of_seed]
        assert (about["start_time"], about["end_time"]) == (round(1000 * of_seed[0]["began"]), ends[-1])
        written = [line.split() for line in (run / "metrics" / "test_accuracy").read_text().splitlines()]
        assert [int(words[0]) for words in written] == ends


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_seed_is_the_same_seed_in_every_table_and_has_its_own_unit_and_verdict(tmp_path):
    """Tables are joined on it: what stands beside a seed is what the curve of that seed ended with."""
    metrics = [(TestAccuracy(), 0.0), (VarianceOverSeeds(TestAccuracy()), 1e9)]
    recipe = quick("reference", epochs=1, metrics=metrics)
    path = Path(run_recipe(*recipe, argv=["--repeat", "2", "--seed", "5", "--quiet", "--out", str(tmp_path)]).path)
    export(path, "csv", tmp_path)
    ends = {row["seed"]: row["test_accuracy"] for row in table(tmp_path / "curve.csv")}
    assert len({*ends.values()}) == 2 and {row["launch"] for row in table(tmp_path / "samples.csv")} == {"5", "6"}
    rows = table(tmp_path / "metrics.csv")
    assert [(row["seed"], row["value"], row["unit"]) for row in rows] == [(s, v, "%") for s, v in ends.items()]
    assert [(row["target"], row["verdict"]) for row in rows] == 2 * [("0.0", "PASSED")]
    joined = "SELECT count(*) FROM metrics m JOIN curve c USING (path, seed) WHERE m.value = c.test_accuracy"
    assert query(tmp_path, joined)[1] == [(2,)]
    (first, _), runs = export(path, "mllog", tmp_path / "log"), export(path, "mlflow", tmp_path / "flow")
    assert '"success"' in first.read_text() and [(run / "tags" / "seed").read_text() for run in runs] == ["5", "6"]
    assert [(run / "params" / "recipe.seed").read_text() for run in runs] == ["5", "6"]
    names = {file.name for run in runs for file in (run / "metrics").glob("final *")}
    assert names == {"final test_accuracy in percent"}
    page = (path / "report.html").read_text()
    assert page.count(" %²</td>") == 1 and "over seeds only" in page and not re.search(r"\d, [\d.]+ %²", page)


def test_what_is_called_test_and_is_of_the_validation_data_is_said_to_be(tmp_path, capsys):
    """With three splits the best epoch and the time to a quality are of the data that epochs are judged by."""
    metrics = [(metric, None) for metric in (TestAccuracy(), TestAccuracy(True), TestLoss(True), TimeToAccuracy(1.0))]
    recipe = quick("reference", validation_split=0.2, metrics=metrics)
    path = Path(run_recipe(*recipe, argv=["--out", str(tmp_path)]).path)
    export(path, "csv", tmp_path)
    curve, values = table(tmp_path / "curve.csv"), json.loads((path / "seeds.json").read_text())["0"]
    by_name = {row["metric"]: row for row in table(tmp_path / "metrics.csv")}
    best, last = by_name["best_test_accuracy"], by_name["test_accuracy"]
    assert (best["data"], best["value"]) == ("validation", max((row["test_accuracy"] for row in curve), key=float))
    assert (last["data"], float(last["value"])) == ("test", values["final"]["test_accuracy"])
    said = "best_test_accuracy, best_test_loss, time_to_accuracy_1 are of the validation data"
    page = (path / "report.html").read_text()
    assert said in page and said in capsys.readouterr().out and ">validation accuracy</th>" in page
    assert ">test accuracy</th>" not in page
    (run,) = export(path, "mlflow", tmp_path / "flow")
    assert said in (run / "tags" / "splits").read_text()


def test_the_curve_is_a_flat_table(tmp_path):
    path = Path(run_recipe(*quick("reference", epochs=2), argv=["--quiet", "--out", str(tmp_path)]).path)
    export(path, "csv", tmp_path / "csv")
    rows = table(tmp_path / "csv" / "curve.csv")
    assert not any(text.startswith(("{", "[")) for row in rows for text in row.values())
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [float(row["clock.wall_seconds"]) for row in rows] == [line["clock"]["wall_seconds"] for line in lines]
    assert float(rows[0]["load.seconds"]) == lines[0]["load"]["seconds"]


def test_the_tail_of_a_run_without_samples_is_not_asked_for(tmp_path):
    """A run that diverged in its first epoch has recorded no step."""
    changes = {"optimizer_kwargs": {"lr": 1e30}, "epochs": 2}
    with pytest.raises(TrainingError):
        run_recipe(*quick("reference", **changes), argv=["--quiet", "--out", str(tmp_path)])
    (path,) = tmp_path.glob("*/2*")
    finding = check(path)["R8"]
    assert finding.status == NOT_APPLICABLE and "no sample of step" in finding.reason
