"""Pages in a real browser: what it says about them, and what a script finds within."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import time

import pytest

from tests.conftest import HANG

DARK = "--blink-settings=preferredColorScheme=0"
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--enable-logging=stderr",
    "--v=0",
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this machine")


def browse(folder, address, *options):
    """Run the browser once; returns what it printed and what it said."""
    profile = folder / f"profile-{time.monotonic_ns()}"
    done = subprocess.run(
        [str(BROWSER), *QUIET, f"--user-data-dir={profile}", *options, address],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


FRAME = """<!doctype html><title>frame</title><pre id="findings"></pre>
<iframe src="probe.html" width="WIDTH" height="1800"></iframe>
<script>addEventListener("message", (event) => { document.querySelector("pre").textContent = event.data; });</script>"""
"""A frame, since no window of the browser is narrower than 500 pixels."""


def probe(folder, page, script, width, *options):
    """What a script within the page found and posted to its parent as JSON, with ``width``, its window's.

    The page's policy is taken away, since it lets no script in but its own.
    """
    text = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page.read_text(encoding="utf-8"))
    (folder / "probe.html").write_text(text.replace("</body>", script + "</body>"), encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.replace("WIDTH", str(width)), encoding="utf-8")
    printed, messages = browse(
        folder, (folder / "frame.html").as_uri(), "--dump-dom", "--virtual-time-budget=5000", *options
    )
    assert messages == []
    findings = json.loads(html.unescape(re.search(r'<pre id="findings">(.*?)</pre>', printed, re.DOTALL)[1]))
    assert findings["width"] <= width
    return findings
