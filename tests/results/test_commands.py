"""The commands on a real run's results: verify, check, report, export, query, env."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from deep500 import cli
from deep500.recipe import run_recipe
from tests.recipes.common import quick


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of the reference backend, two seeds."""
    out = tmp_path_factory.mktemp("results")
    return Path(run_recipe(*quick("reference"), argv=["--repeat", "2", "--quiet", "--out", str(out)]).path)


@pytest.fixture
def run(finished, tmp_path):
    copied = Path(shutil.copytree(finished, tmp_path / "results" / "job" / finished.name))
    shutil.copy(finished.parent / "ledger.jsonl", copied.parent)
    return copied


def test_verify(run, capsys):
    assert cli.main(["verify", str(run)]) == 0 and "statistics from samples" in capsys.readouterr().out
    (run / "metrics.jsonl").write_bytes((run / "metrics.jsonl").read_bytes()[:-2] + b"0\n")
    assert cli.main(["verify", str(run)]) == 1 and capsys.readouterr().out == "metrics.jsonl: altered\n"
    assert cli.main(["verify", str(run.parent)]) == 2


def test_check(run, capsys):
    assert cli.main(["publish", "check", str(run)]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert len(lines) == 27 and "observations only" in lines["R5"] and "as planned" in lines["F10"]
    assert cli.main(["publish", "check", "--list"]) == 0 and len(capsys.readouterr().out.splitlines()) == 27
    summary = json.loads((run / "summary.json").read_text())
    summary["metrics"][0]["standing"] = "result"
    (run / "summary.json").write_text(json.dumps(summary))
    assert cli.main(["publish", "check", str(run)]) == 1 and "no interval" in capsys.readouterr().out


def test_report_is_the_one_in_the_folder(run, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert cli.main(["report", str(run), "-o", str(page)]) == 0
    assert page.read_text() == (run / "report.html").read_text()
    text = page.read_text()
    assert all(f"<b>{rule}</b>" in text for rule in ("R1", "R12", "F1", "F12"))
    assert "median of" in text and "Does it hold steady?" in text and "observation" in text


def test_a_run_tells_what_all_runs_of_its_recipe_cost(run):
    tuning = json.loads((run / "summary.json").read_text())["tuning"]
    curve = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert tuning["runs"] == 1 and tuning["seconds"] == pytest.approx(sum(line["train_seconds"] for line in curve))


def test_export_to_csv(run, tmp_path, capsys):
    assert cli.main(["publish", "export", str(run), "--to", "csv", "-o", str(tmp_path / "out")]) == 0
    tables = {path.stem: list(csv.DictReader(path.read_text().splitlines())) for path in (tmp_path / "out").iterdir()}
    curve = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [float(row["train_loss"]) for row in tables["curve"]] == [line["train_loss"] for line in curve]
    steps = [row for row in tables["samples"] if row["series"] == "step"]
    estimate = next(row for row in tables["estimates"] if row["series"] == "step" and row["q"] == "0.5")
    assert len(steps) >= int(estimate["n"]) and {row["launch"] for row in steps} == {"0", "1"}
    assert tables["metrics"][0]["metric"] == "test_accuracy"


@pytest.mark.parametrize("to", ["mllog", "mlflow"])
def test_export_to_other_tools_names_what_it_wrote(to, run, tmp_path, capsys):
    assert cli.main(["publish", "export", str(run), "--to", to, "-o", str(tmp_path / "out")]) == 0
    written = capsys.readouterr().out.split()
    assert len(written) == 2 and all(Path(path).exists() for path in written)


def test_query(run, capsys):
    words = ["--out", str(run.parent.parent)]
    question = "SELECT recipe, max(test_accuracy) AS best FROM curve JOIN runs USING (path) GROUP BY recipe"
    assert cli.main(["query", question, *words]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head == "recipe\tbest" and float(row.split("\t")[1]) > 20
    assert cli.main(["query", "DROP TABLE runs", *words]) == 2
    assert "SELECT over the tables" in capsys.readouterr().err
    assert cli.main(["query", "SELECT 1", "--out", str(run / "samples")]) == 2


def test_env(capsys):
    assert cli.main(["tools", "env"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert len(printed["sha256"]) == 64 and printed["kernel"]["release"]
