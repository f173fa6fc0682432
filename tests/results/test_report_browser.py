"""The report in a real browser, and at its largest: size, time, no request, no message, values under the keyboard."""

from __future__ import annotations

import http.server
import os
import re
import threading
import time

import pytest

from deep500.compare.report import render_runs
from deep500.report.claims import write_claims
from deep500.report.page import render
from deep500.results import Record
from deep500.results.rules import write_rules
from tests.results.browser import DARK, browse, needs_browser, probe
from tests.results.report_cases import HOSTILE, finished
from tests.results.test_recomputation import measured as planned
from tests.results.test_scaling import RANKED, STRONG

MOST_BYTES, MOST_SECONDS = 3_000_000, 20
SIZES = ("1280,2000", "390,1800")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where pages and the browser's own files go."""
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def page(folder):
    """A page of two runs, one with a scaling table, ranks and a plan for memory, the other with hostile names."""
    rate = {"type": "rate", "name": "gemm", "flops": 1.0, "bound": 2.0}
    runs = [
        finished(folder / "runs", labels=["stand-in data"], claims=[rate]),
        finished(folder / "runs", scale=0.5, resolved={"recipe": {HOSTILE: 1}}, labels=[HOSTILE]),
    ]
    STRONG.write(runs[0].path)
    RANKED.write(runs[0].path)
    planned().write(runs[0].path)
    write_claims(runs[0].path)
    write_rules(runs[0].path)
    path = folder / "page.html"
    path.write_text(render_runs([run.path for run in runs]), encoding="utf-8")
    return path


def test_fifty_series_of_ten_thousand_samples(tmp_path):
    record = finished(tmp_path, samples=10_000, seeds=1, series=[f"series-{n}" for n in range(50)])
    begin = time.process_time()
    text = render(Record.open(record.path))
    assert time.process_time() - begin < MOST_SECONDS
    assert len(text.encode("utf-8")) < MOST_BYTES and text.count('<svg class="plot"') == 50 * 6 + 2


@needs_browser
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_shows_without_a_message(folder, page, size, scheme):
    picture = folder / f"{scheme}-{size}.png"
    dark = [DARK] if scheme == "dark" else []
    _, messages = browse(folder, page.as_uri(), f"--window-size={size}", f"--screenshot={picture}", *dark)
    assert messages == []
    from PIL import Image

    with Image.open(picture) as image:
        assert image.size == tuple(map(int, size.split(",")))
        darkness = sum(image.convert("L").resize((40, 40)).tobytes()) / 1600
    assert darkness < 90 if scheme == "dark" else darkness > 200


@needs_browser
def test_a_message_would_be_seen(folder, page):
    broken = folder / "broken.html"
    broken.write_text(
        page.read_text(encoding="utf-8").replace('"use strict";', '"use strict"; missing();'), encoding="utf-8"
    )
    assert browse(folder, broken.as_uri(), "--dump-dom")[1]  # the policy refuses a script that was altered


@needs_browser
def test_it_asks_a_server_for_nothing_but_itself(folder, page):
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(page.parent))

        def do_GET(self):
            asked.append(self.path)
            super().do_GET()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _, messages = browse(
            folder,
            f"http://127.0.0.1:{server.server_port}/page.html",
            "--dump-dom",
            "--no-proxy-server",
            "--virtual-time-budget=2000",
        )
        server.shutdown()
    assert asked == ["/page.html"] and messages == []


PROBE = """<script>
addEventListener("load", () => {
  const texts = [];
  const svg = document.querySelector("details.series svg.plot");
  const edge = document.querySelector("main").getBoundingClientRect().right;
  const tooWide = () => [...document.querySelectorAll("main *")]
    .filter((element) => !element.closest(".wide, .scroll, svg") && element.getBoundingClientRect().right > edge + 1)
    .map((element) => element.outerHTML.slice(0, 80));
  document.querySelectorAll(".rules summary span").forEach((summary) => { summary.textContent = "✓ pass"; });
  const wide = tooWide();
  document.querySelectorAll("details").forEach((details) => { details.open = true; });
  for (const key of ["", "ArrowRight", "End", "Home"]) {
    if (!key) svg.focus(); else svg.dispatchEvent(new KeyboardEvent("keydown", { key }));
    texts.push(svg.parentElement.querySelector("output").textContent);
  }
  const ticks = () => [...svg.querySelectorAll(".ticks.y text")].map((text) => text.textContent);
  const button = svg.parentElement.querySelector("button"), before = ticks();
  button.click();
  svg.dispatchEvent(new KeyboardEvent("keydown", { key: "Home" }));
  texts.push(button.getAttribute("aria-pressed"), before.join(" "), ticks().join(" "));
  texts.push(svg.parentElement.querySelector("output").textContent);
  wide.push(...tooWide());
  parent.postMessage(JSON.stringify({ texts, wide, width: innerWidth }), "*");
});
</script>"""


@needs_browser
@pytest.mark.parametrize("width", [390, 700, 1280])
def test_nothing_is_wider_than_the_page(folder, page, width):
    """Not even where every rule is said to pass, which is the longest that a badge says."""
    assert probe(folder, page, PROBE, width)["wide"] == []


@needs_browser
def test_keyboard_tells_values_and_scale_can_be_switched(folder, page):
    findings = probe(folder, page, PROBE, 390)
    focus, second, last, first, pressed, linear, log, after = findings["texts"]
    samples = Record.open(sorted((folder / "runs" / "job").iterdir())[0]).samples
    assert focus == first and focus.startswith("sample: 0, ms: ")
    assert float(focus.partition("ms: ")[2]) == pytest.approx(1e3 * samples.durations("step", 0)[0], rel=2e-3)
    assert second != first and float(re.search(r"sample: ([\d.e+]+)", last)[1]) > 2000
    assert pressed == "true" and linear != log
    assert float(after.partition("ms: ")[2]) == pytest.approx(float(first.partition("ms: ")[2]), rel=2e-3)


@needs_browser
def test_it_can_be_printed(folder, page):
    paper = folder / "page.pdf"
    _, messages = browse(folder, page.as_uri(), f"--print-to-pdf={paper}", "--no-pdf-header-footer")
    assert messages == [] and paper.read_bytes().startswith(b"%PDF") and os.path.getsize(paper) > 50_000  # noqa: PTH202
