"""The page of a review: what differs stands first, and the curves show the epoch in which an invented number is."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from deep500.compare.reproduction import Answer
from deep500.compare.review_page import curve_figures, page


def lines(values, seed=0):
    return [{"seed": seed, "epoch": n, "test_accuracy": value, "seconds": 1.0} for n, value in enumerate(values, 1)]


@given(st.lists(st.floats(0, 100), min_size=2, max_size=9), st.data())
def test_the_invented_epoch_is_named(values, data):
    place = data.draw(st.integers(0, len(values) - 1))
    forged = [value + (50.0 if n == place else 0.0) for n, value in enumerate(values)]
    (figure,) = curve_figures(lines(forged), lines(values))
    assert f"the first that differs is epoch {place + 1}" in figure.caption
    (figure,) = curve_figures(lines(values), lines(values[:place] + [1e300] * (place == 0)))
    assert f"the first that differs is epoch {place + 1}" in figure.caption
    (figure,) = curve_figures(lines(values), lines(values))
    assert "every epoch has the same number" in figure.caption


def test_what_differs_stands_first():
    answers = [Answer(True, "the seal"), Answer(False, "seed 3 parts in epoch 2: <b>"), Answer(None, "times")]
    text = page(answers, "a-run", [lines([90.0, 96.0]), lines([90.0, 45.0])])
    head = re.sub(r"<[^>]*>", " ", text.partition("<main")[2].partition("</section>")[0])
    assert "1 of 2 agree" in head and "It differs: seed 3 parts in epoch 2: &lt;b&gt;." in head
    assert text.index("What differs") < text.index("What agrees") < text.index("Seen, and not judged")
    assert "not run again" in page(answers[:1], "a-run")
