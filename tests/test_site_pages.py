"""Pages of the built site in a real browser, on a desk and a phone, light and dark: nothing is cut, too wide or faint.

The site is what ``make docs`` leaves in ``docs/_build/html``; without it, or without a browser, this says so and skips.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.results.browser import needs_browser, probe

SITE = Path(__file__).resolve().parent.parent / "docs" / "_build" / "html"
PAGES = ("index.html", "tutorials/processes.html")
"""The start page, and a notebook with a picture, long lines and wide tables."""

FAINT = 3.0
"""Least contrast of letters and their ground: WCAG 2.2, 1.4.3, asks for it of large ones."""

GEOMETRY = """<script>
document.body.dataset.theme = "THEME";
addEventListener("load", () => setTimeout(() => {
  const found = [], edge = document.documentElement.clientWidth;
  const say = (what, element) => found.push(what + ": " + element.outerHTML.slice(0, 90));
  const parts = (color) => (color.match(/[0-9.]+/g) || [0, 0, 0, 0]).map(Number);
  const light = (color) => parts(color).slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const ground = (element) => {
    const color = getComputedStyle(element).backgroundColor, opaque = parts(color)[3];
    return opaque === undefined || opaque > 0.5 || !element.parentElement ? color : ground(element.parentElement);
  };
  let letters = 0;
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest(".toc-drawer, .sidebar-drawer, .skip-to-content, .visually-hidden, svg, script")) continue;
    const box = element.getBoundingClientRect(), style = getComputedStyle(element);
    if (!box.width || !box.height || style.visibility === "hidden") continue;
    const scrolls = element.parentElement.closest("pre, table, .highlight, .table-wrapper");
    if (!scrolls && box.right > edge + 1) say("wider than the window", element);
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (["hidden", "clip"].includes(style.overflowX) && own && element.scrollWidth > element.clientWidth + 1)
      say("text is cut", element);
    if (!own) continue;
    letters += 1;
    const [a, b] = [light(style.color), light(ground(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < FAINT) say("contrast " + ((a + 0.05) / (b + 0.05)).toFixed(1), element);
  }
  const size = (title) => parseFloat(getComputedStyle(title).fontSize), head = document.querySelector("article h1");
  for (const title of document.querySelectorAll("article h2"))
    if (size(title) >= size(head)) say("larger than the page's title", title);
  for (const image of document.querySelectorAll("article img")) if (!image.naturalWidth) say("no picture", image);
  parent.postMessage(JSON.stringify({ found, letters, width: innerWidth, ground: ground(document.body) }), "*");
}, 100));
</script>"""


@needs_browser
@pytest.mark.skipif(not SITE.is_dir(), reason="no site in docs/_build/html: make docs")
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_is_cut_or_faint(page: str, theme: str, tmp_path: Path) -> None:
    text = (SITE / page).read_text(encoding="utf-8")
    base = f'<head><base href="{(SITE / page).parent.as_uri()}/">'  # style sheets and pictures are beside the page
    copy = tmp_path / "page.html"
    copy.write_text(text.replace("<head>", base, 1), encoding="utf-8")
    script = GEOMETRY.replace("THEME", theme).replace("FAINT", str(FAINT))
    for width in (1400, 390):
        findings = probe(tmp_path, copy, script, width)
        assert findings["found"] == [], f"{width} pixels, {theme}"
        dark = sum(int(part) for part in findings["ground"].strip("rgb()").split(",")) < 384
        assert findings["letters"] > 20 and dark == (theme == "dark")
