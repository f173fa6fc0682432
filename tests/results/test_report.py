"""The report: self-contained, escaped, labelled wherever a number stands, verdict before everything else."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from deep500.metrics import TestAccuracy, TestLoss
from deep500.results import Circumstances, Record, judge, overall, write_report
from deep500.results.report import columns, curve_svg, format_number

LABELS = ["stand-in data", "open division"]
HOSTILE = "<script>alert('x')</script>"


def half(**more):
    return {"name": "digits", "length": 3, "stand_in": True, "provenance": HOSTILE, "digest": "0" * 64, **more}


@pytest.fixture
def record(tmp_path):
    manifest = {
        "resolved": {"recipe": {"model": HOSTILE}}, "division": "open", "opened": ["epochs=1"], "seeds": [0, 1],
        "recipe_file": HOSTILE, "recipe_sha256": None, "argv": ["--open"], "warnings": [HOSTILE],
        "device": {"asked": None, "used": "cpu:0"}, "data": {"train": half(), "validation": half()},
        "environment": {"cpu": None}, "resumed": [{"at": "now"}],
    }  # fmt: skip
    made = Record.create(tmp_path, "job & co", manifest)
    for seed in (0, 1):
        for epoch in (1, 2):
            line = {"train_loss": 1.0 / epoch, "test_accuracy": 50.0 * epoch, "test_loss": None, "complete": True}
            made.add_epoch(seed, epoch, line, {"arrays": {}, "values": {}})
    return made


def finish(record, labels=LABELS):
    about = Circumstances(stand_in=True)
    metrics = [judge(TestAccuracy(), 93.0, [91.0, 95.5], about), judge(TestLoss(), None, [None, None], about)]
    record.write_summary({"verdict": overall(metrics), "labels": labels, "metrics": [m.as_dict() for m in metrics]})
    return write_report(record).read_text(encoding="utf-8")


class Balance(HTMLParser):
    """Raises on tags that are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.loads += [str(v) for k, v in attrs if k in ("src", "href", "xlink:href") and not str(v).startswith("#")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_well_formed_escaped_and_loads_nothing(record):
    page = finish(record)
    parser = Balance()
    parser.feed(page)
    assert parser.open == [] and parser.loads == []
    assert "<script" not in page and page.count("&lt;script&gt;") >= 4 and "job &amp; co" in page
    assert "url(http" not in page and "@import" not in page


def test_labels_stand_wherever_numbers_do(record):
    page = finish(record)
    for heading in re.findall(r"<h2>(\w+)(.*?)</h2>", page):
        assert heading[0] == "Environment" or "stand-in data" in heading[1]
    rows = [row for row in re.findall(r"<tr><td>.*?</tr>", page, flags=re.DOTALL) if "test_" in row]
    assert len(rows) == 2 and all("stand-in data" in row and "open division" in row for row in rows)
    assert page.count("stand-in data") > page.count("open division") > 6
    assert "stand-in data" not in finish(record, labels=[]).partition("What was run")[0].replace("(stand-in data)", "")


def test_order_and_content(record):
    page = finish(record)
    places = [
        page.index(text) for text in ("UNJUDGED (stand-in data)", "<h2>Metrics", "<svg", "What was run", "Environment<")
    ]
    assert places == sorted(places)
    assert "93.25 %" in page and "(median of 2)" in page and "91 to 95.5 %" in page and "at least 93 %" in page
    assert "not measured" in page and "resumed" in page and "ran on cpu:0" in page and "asked for the default" in page


def test_unfinished_run_has_a_report_that_says_so(record):
    page = write_report(record).read_text(encoding="utf-8")
    assert "<h1>UNFINISHED</h1>" in page


def test_curve_is_the_same_every_time_and_carries_its_label(record):
    one, other = (curve_svg(record.epochs(), "stand-in data") for _ in range(2))
    assert one == other and one.startswith("<svg") and "stand-in data" in one
    assert one.count(">train loss<") == 1 and ">test accuracy<" in one


def test_a_column_that_was_never_measured_is_left_out(record):
    assert columns(record.epochs()) == ["seed", "epoch", "test_accuracy", "train_loss"]


@pytest.mark.parametrize(("value", "text"), [(None, "not measured"), (0, "0"), (12345, "12345"), (97.4567, "97.46"),
                                             (float("nan"), "nan"), (1e-7, "1e-07")])  # fmt: skip
def test_numbers(value, text):
    assert format_number(value) == text
