"""Every metric is the same value with the same unit, interval and labels on console and page and in every export."""

from __future__ import annotations

import csv
import html
import importlib.util
import json
import os
import re
import struct

import pytest

from deep500.metrics import Metric, TestAccuracy, TimeToAccuracy, VarianceOverSeeds
from deep500.metrics.base import Combined
from deep500.pages.rendering import format_number
from deep500.recipe.console import metric_table
from deep500.recipe.plan import _facts
from deep500.report.page import write_report
from deep500.results import Circumstances, RecipeResult, SeedNotes, judge, overall
from deep500.results.export import COLUMNS, export
from deep500.results.outcomes import is_of_time
from deep500.results.query import query
from tests.metrics.test_metrics import METRICS, WATCHING
from tests.results.report_cases import finished

TABLE = {row[0].name: row[0] for row in (*METRICS, *WATCHING)}
SEEDS, LATE = 6, 1e6
CASES = {"quiet": ["stand-in data"], "busy": ["stand-in data", "busy machine"], "three seeds": []}


@pytest.fixture(autouse=True)
def hasty(monkeypatch):
    """Files need not outlive a power failure here."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def values_of(number, metric, seeds):
    """Other numbers for every metric and seed; one run in six misses a time."""
    values = [10.0 * (number + 2) + 1.37 * ((3 * seed) % 7) for seed in range(seeds)]
    return [*values[:-1], None] if metric.name.startswith("time_to") and seeds == SEEDS else values


@pytest.fixture(scope="module", params=CASES)
def run(request, tmp_path_factory):
    """A finished run that was judged by every metric of the table, and what each has come to."""
    seeds, labels = 3 if request.param == "three seeds" else SEEDS, CASES[request.param]
    busy = "busy machine" in labels
    facts = [{**_facts(metric), "target": 50.0} for metric in TABLE.values()]
    resolved = {"recipe": {"batch_size": 32}, "metrics": facts}
    record = finished(tmp_path_factory.mktemp("run"), samples=20, seeds=seeds, labels=labels, resolved=resolved)
    values = {name: values_of(number, metric, seeds) for number, (name, metric) in enumerate(TABLE.items())}
    about, notes = Circumstances(disturbed=busy), [SeedNotes(lasted=LATE)] * seeds
    results = [judge(metric, 50.0, values[name], about, notes) for name, metric in TABLE.items()]
    metrics = [result.as_dict() for result in results]
    record.write_summary({**record.summary(), "verdict": overall(results), "metrics": metrics})
    write_report(record)
    return record, RecipeResult(overall(results), results, str(record.path), labels=tuple(labels)), values, busy


def expected(metric, values, busy):
    """Value, and interval or None, by the rules of docs/measuring.md."""
    combined = metric.combine(values, [LATE] * len(values))
    if (busy and metric.kind in ("cost", "rate", "ratio") and metric.unit != "B") or len(values) < 6:
        return combined.value, None
    if combined.remark:
        return combined.value, None if combined.low is None else (combined.low, combined.high)
    return combined.value, (min(values), max(values))  # the exact 95 % interval of six


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def words_of(value, unit, ends):
    """How a text shows it."""
    interval = f" [{', '.join('never' if e is None else format_number(e) for e in ends)}]" if ends else ""
    return f"{format_number(value)} {unit}".rstrip() + interval


def check_text(text, metric, values, busy, labels=()):
    value, ends = expected(metric, values, busy)
    assert text.startswith(words_of(value, metric.unit, ends) + (", " if ends else " (observation: ")), text
    assert ("95 %" in text) == bool(ends) and all(label in text for label in labels)
    assert "median" not in text or not isinstance(metric, VarianceOverSeeds)


def test_tables_and_queries(run, tmp_path):
    record, result, values, busy = run
    files = export(record.path, "csv", tmp_path)
    for file in files:
        assert {row["labels"] for row in table(file)} == {"; ".join(result.labels)}, file.name
        declared = [*COLUMNS[file.stem], *([] if file.stem == "curve" else ["labels"])]
        assert [*table(file)[0]][: len(declared)] == declared, "what an empty table has, too"
    over, by_seed = {row["metric"]: row for row in table(tmp_path / "over_seeds.csv")}, {}
    for row in table(tmp_path / "metrics.csv"):
        by_seed.setdefault(row["metric"], []).append((row["unit"], float(row["value"]) if row["value"] else None))
    assert list(over) == list(TABLE)
    columns = ("metric", "unit", "value", "low", "high", "standing", "labels")
    _, rows = query(record.path.parent, f"SELECT {', '.join(columns)} FROM over_seeds")
    for name, unit, value, low, high, standing, labels in rows:
        got, (right, ends) = over[name], expected(TABLE[name], values[name], busy)
        assert (value, unit, standing) == (right, TABLE[name].unit, "result" if ends else "observation")
        assert (low, high) == (ends or (None, None)) and labels == "; ".join(result.labels)
        texts = ["" if each is None else str(each) for each in (value, low, high)]
        assert [got["value"], got["low"], got["high"], got["unit"], got["standing"]] == [*texts, unit, standing]
    right = {n: [(m.unit, value) for value in values[n]] for n, m in TABLE.items() if m.unit_of_seeds is None}
    _, rows = query(record.path.parent, "SELECT metric, unit, value FROM metrics")
    asked = {name: [row[1:] for row in rows if row[0] == name] for name in dict.fromkeys(row[0] for row in rows)}
    assert by_seed == asked == right


def test_mlflow(run, tmp_path):
    record, result, values, busy = run
    for number, folder in enumerate(export(record.path, "mlflow", tmp_path)):
        assert (folder / "tags" / "labels").read_text() == ", ".join(result.labels)
        shown = {path.name for path in (folder / "metrics").iterdir() if path.name.startswith("final ")}
        for name, metric in TABLE.items():
            check_text((folder / "tags" / f"{name} over seeds").read_text(), metric, values[name], busy, result.labels)
            unit = metric.unit.replace("%", "percent").replace("/", " per ")
            file = f"final {name}{f' in {unit}' if unit else ''}"
            if metric.unit_of_seeds is None and values[name][number] is not None:
                assert float((folder / "metrics" / file).read_text().split()[1]) == values[name][number]
                shown.remove(file)
        assert not shown, "what is over seeds has no value by seed"


@pytest.mark.skipif(importlib.util.find_spec("tensorboardX") is None, reason="pip install 'deep500[tensorboard]'")
def test_tensorboard(run, tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    record, result, values, busy = run
    for number, file in enumerate(export(record.path, "tensorboard", tmp_path)):
        assert all(f"[{label}]" in file.parent.name for label in result.labels)
        data, place, scalars, text = file.read_bytes(), 0, {}, ""
        while place < len(data):
            (size,) = struct.unpack_from("<Q", data, place)
            for value in Event.FromString(data[place + 12 : place + 12 + size]).summary.value:
                about = value.metadata.summary_description
                scalars[value.tag] = (value.simple_value, about.removeprefix("unit: "))
                text = value.tensor.string_val[0].decode() if value.tag.startswith("verdict") else text
            place += size + 16
        lines = dict(line.strip().split(": ", 1) for line in text.splitlines())
        for name, metric in TABLE.items():
            check_text(lines[name], metric, values[name], busy, result.labels)
            value = None if metric.unit_of_seeds is not None else values[name][number]
            got = scalars.get(f"metric/{name}")
            assert got == (None if value is None else (pytest.approx(value), metric.unit))


def test_mlperf(run, tmp_path):
    record, result, _, _ = run
    for file in export(record.path, "mllog", tmp_path):
        lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in file.read_text().splitlines()]
        assert all(line["metadata"].get("labels", []) == list(result.labels) for line in lines)


def test_console_and_notebook(run):
    _, result, values, busy = run
    _, *lines = metric_table(result.metrics, result.labels)
    for line, (name, metric) in zip(lines, TABLE.items(), strict=True):
        check_text(line.removeprefix(name).lstrip(), metric, values[name], busy, result.labels)
    cell = dict(re.findall(r"^(\w[\w.]*): (.*)$", html.unescape(re.sub("<[^>]*>", "\n", result._repr_html_())), re.M))
    for name, metric in TABLE.items():
        check_text(cell[name], metric, values[name], busy, result.labels)


def test_page(run):
    record, result, values, busy = run
    page = (record.path / "report.html").read_text()
    assert all(label in page for label in result.labels)
    section = page[page.index("<caption>Metrics: median over the seeds") :].partition("</table>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in section.split("<tr>")[2:]]
    texts = [[" ".join(html.unescape(re.sub("<[^>]*>", "", cell)).split()) for cell in row] for row in rows]
    for (name, shown, basis, _, _, by_seed), (entry, metric) in zip(texts, TABLE.items(), strict=True):
        value, ends = expected(metric, values[entry], busy)
        assert name == entry and shown == (words_of(value, metric.unit, ends) + f" {metric.unit}" * bool(ends)).rstrip()
        assert basis.startswith("observation: ") != bool(ends)
        numbers = ", ".join(map(format_number, values[entry]))
        assert by_seed == (f"{numbers} {metric.unit}".rstrip() if metric.unit_of_seeds is None else "over seeds only")


def test_what_follows_from_times_is_named():
    """The names that :func:`is_of_time` knows beside units are those of the table, by kind."""
    for metric in TABLE.values():
        assert is_of_time(metric) == (metric.kind in ("cost", "rate", "ratio") and metric.unit != "B"), metric.name


class Bootstrapped(Metric):
    """A user's metric, whose remark names its interval."""

    name, unit, direction, kind = "gap", "s", "lower", "cost"

    def measure(self, statistics):
        return 1.0

    def combine(self, values, lasted=()):
        return Combined(2.0, 1.0, 3.0, "99 % bootstrap interval")


def test_an_observation_does_not_name_an_interval():
    result = judge(Bootstrapped(), None, [2.0, 2.0], Circumstances())
    assert (result.standing, result.low, result.remark) == ("result", 1.0, "99 % bootstrap interval")
    result = judge(Bootstrapped(), None, [2.0, 2.0], Circumstances(disturbed=True))
    assert (result.standing, result.low, result.high, result.remark) == ("observation", None, None, "")
    times = judge(TimeToAccuracy(90), None, [float(n) for n in range(7)], Circumstances(disturbed=True))
    assert (times.standing, times.low, times.remark) == ("observation", None, "7 of 7 runs reached it")
    assert judge(TestAccuracy(), None, [float(n) for n in range(7)], Circumstances(disturbed=True)).standing == "result"
