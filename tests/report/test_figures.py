"""Figures show what their captions say: boxes without whiskers in them, the median of the tables, whose correlation."""

from __future__ import annotations

import json
import re
from html import unescape

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep500.report.figures import _violin, series_figures
from deep500.report.plot import Axis, Plot
from deep500.results.samples import SampleStore
from deep500.results.verify import write_stats
from tests.compare.test_runs import make


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Six launches of which one is long and slow: their median is not that of all samples."""
    folder = make(tmp_path_factory.mktemp("runs") / "a", launches=6, spread=0.3, n=60)
    more = np.random.default_rng(0).uniform(2e6, 2.1e6, 300).astype(np.int64)
    SampleStore(folder).append("step", 5, np.cumsum(more), more)
    write_stats(folder)
    return SampleStore(folder), json.loads((folder / "stats.json").read_text())["series"]["step"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1, 1e3), min_size=1, max_size=6), st.floats(1, 1e3))
def test_whiskers_leave_the_box(values, outlier):
    lines = []

    class Spy(Plot):
        def line(self, x, y, colour=0, kind="", stairs=False):
            lines.append((x, y))

    samples = np.array([*values, outlier])
    _violin(Spy(Axis(-1, 1, ""), Axis(0, 1e3, ""), ""), 0, samples, float(samples.max()))
    low, high = np.quantile(samples, [0.25, 0.75])
    below, above = (ends for at, ends in lines if len(at) == 2 and at[0] == at[1])
    assert below[0] <= below[1] == low and high == above[0] <= above[1]


def test_a_page_has_one_median(run):
    store, stat = run
    reported = next(estimate["value"] for estimate in stat["estimates"] if estimate["q"] == 0.5)
    together = np.median(np.concatenate([store.durations("step", launch) for _, launch in store.names()]))
    assert abs(together / reported - 1) > 0.1
    about = [re.search(r'aria-label="(.*?)"', figure.plot)[1] for figure in series_figures(store, "step", stat)]
    said = re.search(r"; median ([\d.]+) (\S+), over 6 launches", unescape(about[0]))
    assert said and float(said[1]) == pytest.approx(reported * {"ms": 1e3, "µs": 1e6}[said[2]], rel=1e-3)
    largest, times = (
        float(number) for number in re.search(r"is ([\d.]+) \S+, ([\d.]+) times the median", about[3]).groups()
    )
    assert largest / times == pytest.approx(float(said[1]), rel=0.01)


def test_the_correlation_is_said_to_be_that_of_being_above_the_median(run):
    store, stat = run
    cuts = {launch["launch"]: launch["cut"]["index"] for launch in stat["launches"]}
    samples = max((store.durations("step", launch)[cut:] for launch, cut in cuts.items()), key=len)
    figure = next(one for one in series_figures(store, "step", stat) if one.question == "Does a slow moment last?")
    above = samples > np.median(samples)
    by_hand = np.corrcoef(above[1:], above[:-1])[0, 1]
    assert float(re.search(r"([-\d.e]+) one apart", figure.plot)[1]) == pytest.approx(by_hand, abs=0.01)
    assert "above the median" in figure.caption and "above the median" in unescape(figure.plot)
