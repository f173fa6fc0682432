"""Every page that the project writes, measured in a real browser: nothing is cut, too wide, or unreadable."""

from __future__ import annotations

import re

import pytest

from deep500.compare.report import render_runs
from deep500.networks import create
from deep500.report import recomputation
from deep500.report.claims import write_claims
from deep500.results.rules import write_rules
from deep500.scaling import page as scaling
from deep500.transformations.substitutions import optimize_network
from deep500.transformations.substitutions.report import page as optimized
from recipes.studies.graph_substitutions.page import write_page as study
from tests.results.browser import needs_browser, probe
from tests.results.report_cases import finished
from tests.results.test_recomputation import measured as planned
from tests.results.test_scaling import RANKED, STRONG, WEAK

GEOMETRY = """<script>
addEventListener("load", () => {
  const found = [], edge = document.documentElement.clientWidth;
  document.querySelectorAll("details").forEach((details) => { details.open = true; });
  const say = (what, element) => found.push(what + ": " + element.outerHTML.slice(0, 90));
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest(".wide, .scroll, pre, svg, .skip, .side")) continue;
    if (element.getBoundingClientRect().right > edge + 1) say("wider than the window", element);
  }
  for (const svg of document.querySelectorAll("svg")) {
    const card = (svg.closest("figure, .side > div") || svg).getBoundingClientRect();
    const texts = [...svg.querySelectorAll("text")].map((text) => [text, text.getBoundingClientRect()]);
    for (const [text, box] of texts) {
      if (!box.width) continue;
      const size = parseFloat(getComputedStyle(text).fontSize) * svg.getBoundingClientRect().width
        / (svg.viewBox.baseVal.width || svg.getBoundingClientRect().width);
      if (size < 7.5 || size > 19) say("text of " + size.toFixed(1) + " px", text);
      const inside = box.left >= card.left - 1 && box.right <= card.right + 1 && box.top >= card.top - 1;
      if (!svg.closest(".side") && !(inside && box.bottom <= card.bottom + 1)) say("text is cut", text);
    }
    texts.forEach(([text, a], place) => texts.slice(place + 1).forEach(([other, b]) => {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 2 && high > 0.4 * Math.min(a.height, b.height)) say("on " + other.textContent, text);
    }));
  }
  const texts = document.querySelectorAll("svg text").length;
  parent.postMessage(JSON.stringify({ found, texts, width: innerWidth }), "*");
});
</script>"""


def _run(folder):
    record = finished(folder / "runs", labels=["stand-in data"])
    STRONG.write(record.path)
    RANKED.write(record.path)
    planned().write(record.path)
    write_claims(record.path)
    write_rules(record.path)
    return record


def _report(folder):
    path = folder / "report.html"
    path.write_text(render_runs([_run(folder).path]), encoding="utf-8")
    return path


def _comparison(folder):
    path = folder / "comparison.html"
    rows = [{}, {"scale": 0.5}, {"scale": 0.7, "recipe": "longer-name"}, {"seeds": 2}]
    runs = [finished(folder / "runs", labels=["stand-in data"], **row) for row in rows]
    path.write_text(render_runs([run.path for run in runs]), encoding="utf-8")
    return path


def _scaling(folder):
    tables = [(STRONG, {("ring all-reduce", 1024): "not known"}), (WEAK, {})]
    return scaling.write_page(folder / "scaling.html", "Scaling of a recipe", ["what it is", "where it ran"], tables)


def _recomputation(folder):
    return recomputation.write_page(folder / "memory.html", "Recomputation", ["two cores"], {"lenet": planned()})


def _optimized(folder):
    path = folder / "optimized.html"
    path.write_text(optimized(optimize_network(create("nasrnn", hidden=8), measure=False)), encoding="utf-8")
    return path


def _study(folder):
    table = "\n".join("  ".join(f"{column:>12}" for column in range(14)) for _ in range(6))
    return study(folder / "study.html", "Substitutions", ["two cores"], {"E2": table})


PAGES = {
    "report": _report,
    "comparison": _comparison,
    "scaling": _scaling,
    "recomputation": _recomputation,
    "optimized": _optimized,
    "study": _study,
}


@needs_browser
@pytest.mark.parametrize("make", PAGES.values(), ids=PAGES)
def test_nothing_is_cut_or_unreadable(make, tmp_path):
    page = make(tmp_path)
    for width in (1400, 390):
        findings = probe(tmp_path, page, GEOMETRY, width)
        assert findings["found"] == [], f"{width} pixels"
        assert findings["texts"] or make is _study


def test_places_are_shared_where_intervals_overlap(tmp_path):
    """Six seeds of 93 to 93.5 thrice; two seeds have no interval, and no place."""
    text = _comparison(tmp_path).read_text(encoding="utf-8")
    board = text.partition('id="leaderboard"')[2].partition("</section>")[0]
    assert re.findall(r'data-head="place">(\w+)<', board) == ["1", "1", "1", "none"]
    assert "longer-name" in board and board.count("observation") >= 1
