"""The report: self-contained, escaped, labelled wherever a number stands, verdict and rules before everything else."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from deep500.measure.plan import Plan, Target
from deep500.measure.quantiles import quantile
from deep500.metrics import TestAccuracy, TestLoss
from deep500.pages.rendering import TEMPLATES, format_number, format_time
from deep500.report.curves import columns
from deep500.report.page import headline_line, metric_row, rerun, write_report
from deep500.results import Circumstances, Record, judge, overall
from deep500.results.files import read_json, to_json
from deep500.results.quiet import BUSY
from deep500.results.stats import plan_to_json
from deep500.results.verify import write_stats
from tests.results.report_cases import HOSTILE, finished, manifest

LABELS = ["stand-in data", "open division"]


def half(**more):
    return {"name": "digits", "length": 3, "stand_in": True, "provenance": HOSTILE, "digest": "0" * 64, **more}


@pytest.fixture
def record(tmp_path):
    made = Record.create(
        tmp_path,
        "job & co",
        manifest(
            2,
            resolved={"recipe": {"model": HOSTILE}},
            division="open",
            opened=["epochs=1"],
            recipe_file=HOSTILE,
            recipe_sha256=None,
            argv=["--open"],
            warnings=[HOSTILE],
            data={"train": half(), "validation": half()},
            environment={"cpu": None},
            resumed=[{"at": "now"}],
        ),
    )
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


class Page(HTMLParser):
    """Raises on tags that are not closed in order; keeps what matters to those who do not see the page."""

    def __init__(self, text):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.headings: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "link", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def loads(self):
        """Addresses that a browser would fetch or follow, other than places within the page."""
        addresses = [
            value for _, attrs in self.tags for key, value in attrs.items() if key in ("src", "href", "xlink:href")
        ]
        return [value for value in addresses if not value.startswith("#") and value != "data:,"]


def check_accessible(text):
    """Landmarks, one h1, no level of headings left out, table heads with a scope, figures with words, unique ids."""
    page = Page(text)
    assert page.open == [] and page.loads == []
    assert len(page.all("main")) == len(page.all("header")) == len(page.all("footer")) == 1
    assert all("aria-label" in nav for nav in page.all("nav")) and page.all("html") == [{"lang": "en"}]
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(page.headings, page.headings[1:], strict=False))
    assert all(cell.get("scope") in ("row", "col", "rowgroup") for cell in page.all("th"))
    plots = [svg for svg in page.all("svg") if svg.get("class") == "plot"]
    assert len(plots) == len(page.all("figure")) == len(page.all("figcaption"))
    assert all(svg["role"] == "img" and len(svg["aria-label"]) > 30 for svg in plots)
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    links = [link["href"][1:] for link in page.all("a")]
    assert len(ids) == len(set(ids)) and set(links) <= set(ids)
    return page


def test_page_is_well_formed_escaped_and_loads_nothing(record):
    text = finish(record)
    page = check_accessible(text)
    assert len(page.all("script")) == 1 and "&lt;script&gt;" in text and "job &amp; co" in text
    assert text.count("&lt;script&gt;") >= 4 and "<script>alert" not in text
    assert "url(" not in text and "@import" not in text and "default-src 'none'" in text


@pytest.mark.parametrize("where", ["recipe", "metric", "label", "axis", "series"])
def test_hostile_names_are_text_wherever_they_stand(record, where):
    finish(record)
    summary = record.summary()
    if where == "recipe":
        record.write_manifest({**record.manifest(), "recipe": HOSTILE})
    elif where in ("metric", "label"):
        part = {"metrics": [{**summary["metrics"][0], "name": HOSTILE, "unit": HOSTILE}]}
        record.write_summary({**summary, **(part if where == "metric" else {"labels": [HOSTILE]})})
    elif where == "axis":
        line = {"train_loss": 1.0, f"{HOSTILE}_loss": 2.0, HOSTILE: 3.0}
        record.add_epoch(0, 3, line, {"arrays": {}, "values": {}})
    else:
        record.write_manifest({**record.manifest(), "series": {HOSTILE: {"meaning": HOSTILE}}})
    text = write_report(record).read_text(encoding="utf-8")
    assert "<script>alert" not in text and text.count("<script>") == 1 and "&lt;script&gt;" in text
    check_accessible(text)


def test_a_label_stands_once_in_a_section_and_only_where_it_applies(record, tmp_path):
    page = (finished(tmp_path, labels=[*LABELS, BUSY]).path / "report.html").read_text(encoding="utf-8")
    marks = re.findall(r'<span class="label">(.*?)</span>', page)
    assert [mark for mark in marks if mark != "warning"][:3] == [*LABELS, BUSY]
    assert marks.count(BUSY) == 1
    sections = re.findall(r"<section id=.*?(?=<section id=|</main>)", page, re.DOTALL)
    assert all(section.count('<span class="label">open division</span>') <= 1 for section in sections)
    labelled = [
        section[13:].partition('"')[0] for section in sections if '<span class="label">open division' in section
    ]
    assert {"curves", "results", "times", "costs"} <= set(labelled) and not {"setup", "again"} & set(labelled)
    assert re.search(rf"<b>step</b> median[^\n]*{BUSY}", page) and not re.search(rf"accuracy</b>[^\n]*{BUSY}", page)
    unlabelled = finish(record, labels=[]).replace("(stand-in data)", "")
    assert unlabelled.count("stand-in data") == 2  # beside the two halves of the data


def test_order_and_content(record):
    page = finish(record)
    order = (
        "UNJUDGED (stand-in data)",
        'id="curves"',
        "<svg",
        'id="results"',
        'id="costs"',
        'id="setup"',
        'id="again"',
        'id="environment"',
    )
    assert [page.index(text) for text in order] == sorted(page.index(text) for text in order)
    assert "93.25 %" in page and "observation: median of 2, 91 to 95.5<" in page and "91, 95.5" in page
    assert "at least 93 %" in page and "resumed 1 time" in page
    assert "not measured" in page and "ran on cpu:0" in page and "asked for the default" in page


def test_broken_rules_come_first_and_say_what_to_do(tmp_path):
    text = finished(tmp_path).path.joinpath("report.html").read_text(encoding="utf-8")
    page = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    assert page.index("R9 is broken") < page.index('<div class="rules">') < page.index('id="setup"')
    assert "record it with full_environment()" in page and "1 rule broken" in page and "without what they need" in page
    rules = read_json(tmp_path / "job" / next((tmp_path / "job").iterdir()).name / "rules.json")["rules"].values()
    for status, words in (("pass", "hold"), ("not applicable", "not applicable")):
        assert f"{sum(rule['status'] == status for rule in rules)} {words}</li>" in page


def test_every_time_has_unit_interval_and_worth_or_is_an_observation(tmp_path):
    record = finished(tmp_path, samples=400, series=("step", "epoch"), seeds=1)
    text = (record.path / "report.html").read_text(encoding="utf-8")
    rows = re.findall(r"<tr><th scope=.row.>(?:step|epoch)</th>.*?</tr>", text, flags=re.DOTALL)
    assert len(rows) == 6
    for row in rows:
        assert re.search(r"\d (ns|µs|ms|s)<", row) and 'data-head="n_eff" class="n">' in row
        assert ("% CI" in row) != (">none: " in row and ">observation" in row)
    assert sum("observation" in row for row in rows) == 2  # 400 samples have no interval of the 99th percentile
    one_seed = re.search(r"<tr><th scope=.row.>test_accuracy</th>.*?</tr>", text, flags=re.DOTALL)
    assert one_seed and "observation: one seed" in one_seed[0]


def test_interval_of_a_metric_is_the_exact_one_of_its_median(tmp_path):
    values = [93.0, 91.5, 94.0, 92.0, 95.0, 93.5, 90.0, 96.0]
    row = metric_row(judge(TestAccuracy(), 93.0, values, Circumstances()).as_dict())
    estimate = quantile(values, independent=True)
    assert row["interval"] == (estimate.low, estimate.high) == (90.0, 96.0) and row["n"] == 8
    assert metric_row(judge(TestAccuracy(), 93.0, values[:5], Circumstances()).as_dict())["interval"] is None
    assert metric_row(judge(TestAccuracy(), 93.0, [*values, None], Circumstances()).as_dict())["interval"] is None


def test_what_it_cost_to_tune_is_told(tmp_path):
    record = finished(tmp_path)
    record.write_summary({**record.summary(), "tuning": {"runs": 3, "finished": 2, "seconds": 75.0}})
    costs = write_report(record).read_text(encoding="utf-8").partition('id="costs"')[2]
    assert "3 runs of this recipe in the ledger when it ended, this one included: 75 s of training in all" in costs


def test_a_metric_that_combines_seeds_in_its_own_way_says_how(tmp_path):
    """Time to accuracy counts misses (Kaplan and Meier): the remark stands beside the value, and its own interval."""
    record = finished(tmp_path, seeds=3)
    reached = {
        **record.summary()["metrics"][0],
        "name": "time_to_accuracy_97",
        "unit": "s",
        "value": 12.0,
        "low": 10.0,
        "high": None,
        "values": [12.0, None, 10.0],
        "remark": "2 of 3 runs reached it; 95 % interval (Kaplan-Meier)",
        "standing": "result",
    }
    missed = {
        **reached,
        "name": "energy",
        "unit": "J",
        "value": None,
        "low": None,
        "remark": "no RAPL counter",
        "details": [{"watts": None}],
    }
    record.write_summary({**record.summary(), "metrics": [reached, missed]})
    text = write_report(record).read_text(encoding="utf-8")
    row = re.search(r"<tr><th scope=.row.>time_to_accuracy_97</th>.*?</tr>", text, flags=re.DOTALL)[0]
    assert "[10, never] s" in row and "2 of 3 runs reached it; 95 % interval (Kaplan-Meier)" in row
    row = re.search(r"<tr><th scope=.row.>energy</th>.*?</tr>", text, flags=re.DOTALL)[0]
    assert "not measured" in row and "no RAPL counter" in row and "What is behind energy" in text
    costs = text[text.index('id="costs"') :].partition("</section>")[0]
    assert "no RAPL counter" in costs


def test_parts_bounds_and_energy_are_shown_only_where_they_were_measured(tmp_path):
    plain = (finished(tmp_path / "plain").path / "report.html").read_text(encoding="utf-8")
    costs = plain[plain.index('id="costs"') :]
    line = "not measured</th><td>breakdown; bounds, roofline; scaling; tuning; energy; carbon; cost</td>"
    assert line in costs.partition("</section>")[0] and "Where did the time go?" not in plain
    timed = (finished(tmp_path / "timed", series=("step", "epoch")).path / "report.html").read_text(encoding="utf-8")
    assert "Where did the time go?" in timed and "rest of epochs" in timed
    claims = [
        {"type": "breakdown", "parts": {"forward": 2.0, "backward": 3.0}, "wall": 5.0},
        {"type": "rate", "name": "matmul", "flops": 2e9, "bound": 8e9},
    ]
    full = (finished(tmp_path / "full", claims=claims).path / "report.html").read_text(encoding="utf-8")
    assert "backward 3" in full and "matmul 25" in full and "What share of its bound does each reach?" in full
    left = full[full.index('id="costs"') :].partition("</section>")[0].partition("not measured</th><td>")[2]
    assert left.startswith("scaling; tuning; energy; carbon; cost</td>"), left


def test_unfinished_run_has_a_report_that_says_so(record):
    assert "UNFINISHED</h1>" in write_report(record).read_text(encoding="utf-8")


def test_it_is_the_same_every_time(tmp_path):
    record = finished(tmp_path)
    first = (record.path / "report.html").read_bytes()
    assert write_report(record).read_bytes() == first


def test_a_column_that_was_never_measured_is_left_out(record):
    assert columns(record.epochs()) == ["seed", "epoch", "test_accuracy", "train_loss"]


def test_the_command_to_run_it_again_survives_a_shell():
    lines = rerun({"recipe_file": "my recipe.py", "argv": ["--repeat", "2"], "environment": {"git": {"commit": "abc"}}})
    assert lines == ["git checkout abc", "deep500 run 'my recipe.py' --repeat 2"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "not measured"), (0, "0"), (12345, "12345"), (97.4567, "97.46"), (float("nan"), "nan"), (1e-7, "1e-07")],
)
def test_numbers(value, text):
    assert format_number(value) == text


@pytest.mark.parametrize(("value", "text"), [(0.0021, "2.1 ms"), (3.0, "3 s"), (4.56e-7, "456 ns"), (0.0, "0 s")])
def test_times(value, text):
    assert format_time(value) == text


def luminance(colour):
    """Relative luminance of #rgb or #rrggbb (WCAG 2.2)."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", [0, 1, 2], ids=["light", "dark", "print"])
def test_contrast_is_what_wcag_asks_for(scheme):
    """4.5 for text (level AA), 3 for the marks of plots."""
    style = (TEMPLATES / "report.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--([\w-]+): (#\w+)", re.findall(r":root \{(.*?)\}", style, re.DOTALL)[scheme]))

    def contrast(first, second):
        low, high = sorted(luminance(colours[name]) for name in (first, second))
        return (high + 0.05) / (low + 0.05)

    texts = [
        ("ink", "paper"),
        ("ink", "card"),
        ("soft", "paper"),
        ("soft", "card"),
        ("link", "paper"),
        ("soft", "bad-paper"),
        *((word, paper) for word in ("good", "bad", "open") for paper in ("paper", "card", f"{word}-paper")),
    ]
    assert min(contrast(*pair) for pair in texts) >= 4.5
    assert min(contrast(f"c{number}", "paper") for number in range(8)) >= 3


def spread_out(base, seeds, level):
    """A finished run whose seeds differ by 20 %; ``level`` is that of the median's interval."""
    record = finished(base, seeds=0, samples=0)
    manifest = record.manifest()
    manifest["series"]["step"]["plan"] = plan_to_json(Plan(targets=(Target(0.5, level),)))
    (record.path / "manifest.json").write_text(to_json(manifest))
    rng = np.random.default_rng(0)
    for seed in range(seeds):
        times = (2e6 * (1 + 0.2 * seed) * (1 + 0.01 * rng.standard_normal(120))).astype(np.int64)
        record.samples.append("step", seed, np.cumsum(times), times)
    write_stats(record.path)
    return record


@pytest.mark.parametrize(
    ("seeds", "words", "standing"),
    [(6, "over 6 launches", "result"), (3, "within 3 launches", "observation"), (1, "within one launch", "result")],
)
def test_intervals_say_what_they_hold_over(tmp_path, seeds, words, standing):
    record = spread_out(tmp_path, seeds, 0.95)
    text = write_report(record).read_text(encoding="utf-8")
    row = re.search(r"<tr><th scope=.row.>step</th>.*?</tr>", text, flags=re.DOTALL)[0]
    head = re.search(r"<p><b>step</b>.*?</p>", text, flags=re.DOTALL)[0]
    line = headline_line(record.path)
    if standing == "observation":
        why = r"launches differ \(Kruskal-Wallis p [\d.e-]+\), 6 have an interval over launches"
        assert "% CI" not in row + head + line and ">observation" in row
        assert re.search(rf"ms without interval, n \d+, n_eff [\d.]+: observation \({why}\)$", line)
        assert re.search(rf"none: {why}<", row) and re.search(rf"observation \({why}\)", head)
        assert re.search(rf"the median is an observation, without interval: {why}", text)
        return
    missed = seeds == 6  # launches differ by 20 % of the first, 5 % are wanted
    called = standing + (", precision missed (" if missed else "")
    assert f'95 % CI <span class="keep">{words}</span>' in row and f">{standing}" in row
    assert f"95 % CI {words}: {called}" in head
    assert re.search(rf", 95 % CI {words}, n \d+, n_eff [\d.]+: {re.escape(called)}", line)
    assert missed == ("likely cause: launches differ" in line) and re.match(r"step median [\d.]+ ms \[", line)


def test_launches_too_short_to_be_told_apart_are_called_so(tmp_path):
    text = finished(tmp_path, samples=4, seeds=3).path.joinpath("report.html").read_text(encoding="utf-8")
    assert "an observation, without interval: launch 1: 4 samples of a time series, 50 are needed" in text
    text = finished(tmp_path, samples=400, seeds=1).path.joinpath("report.html").read_text(encoding="utf-8")
    assert "holds within one launch only." in text
