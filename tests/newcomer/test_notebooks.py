"""What a notebook shows of objects: small, complete on a click, and nothing of it is taken for HTML."""

from __future__ import annotations

from deep500.networks import create
from deep500.results import RecipeResult


def test_a_network_is_a_line_that_opens() -> None:
    network = create("lenet")
    network.name = "<b>mine</b>"
    shown = network._repr_html_()
    assert shown.startswith("<details><summary>&lt;Network") and "conv2    Conv" in shown and "<b>" not in shown


def test_a_result_says_its_verdict_first() -> None:
    shown = RecipeResult("PASSED", [], report="a/report.html", labels=("busy machine",))._repr_html_()
    assert shown.startswith("<details open><summary>PASSED [busy machine]</summary>") and "a/report.html" in shown
