"""Plots as SVG: values can be read back from the paths, ranges hold what is drawn, ticks are round."""

from __future__ import annotations

import json
import re
from html import unescape

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deep500.report.curves import bar_figure, curve_figures
from deep500.report.figures import series_figures
from deep500.report.plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, Plot
from deep500.results.samples import SampleStore
from deep500.results.stats import compute


def places(path):
    """Absolute places of relative moves, as a browser understands them, in hundredths of a pixel."""
    points, at, command = [], np.zeros(2, np.int64), "m"
    words = re.findall(r"[mlhvz]|-?\d+", path)
    while words:
        if words[0] in "mlhvz":
            command = words.pop(0)
        if command == "z":
            continue
        if command == "h":
            step = [int(words.pop(0)), 0]
        elif command == "v":
            step = [0, int(words.pop(0))]
        else:
            step = [int(words.pop(0)), int(words.pop(0))]
        at = at + step
        if command != "h" or step[0]:
            points.append(tuple(at.tolist()))
    return np.array(points)


def read_back(svg):
    """The values of the first path, through the facts that the page's script uses."""
    axes = json.loads(unescape(re.search(r'data-axes="(.*?)"', svg)[1]))
    at = places(re.search(r'<path class="c0 [^>]* d="([^"]*)"', svg)[1]) / 100
    shares = ((at[:, 0] - LEFT) / (WIDTH - LEFT - RIGHT), (HEIGHT - BOTTOM - at[:, 1]) / (HEIGHT - TOP - BOTTOM))
    ends = [axes[name][:3] for name in "xy"]
    return [
        low * (high / low) ** part if log else low + part * (high - low)
        for (low, high, log), part in zip(ends, shares, strict=True)
    ]


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("mark", ["points", "line"])
def test_values_can_be_read_back(log, mark):
    y = np.random.default_rng(0).lognormal(0, 2, 500)
    plot = Plot(Axis(0, 500, "sample", whole=True), Axis.around(y, "ms", log=log), "about")
    getattr(plot, mark)(np.arange(500), y)
    x, read = read_back(str(plot.markup()))
    assert np.array_equal(np.rint(x), np.arange(500))
    assert np.allclose(read, y, **({"rtol": 1e-3} if log else {"atol": 1e-4 * np.ptp(y)}))


@given(st.floats(-1e6, 1e6), st.floats(1e-9, 1e6))
def test_ticks_are_few_round_and_within(low, width):
    axis = Axis(low, low + width, "")
    if not axis.high > axis.low + 1e-9 * abs(low):
        return
    ticks = [value for value, _ in axis.ticks()]
    assert 2 <= len(ticks) <= 12 and min(ticks) >= low - 1e-6 * width and max(ticks) <= axis.high + 1e-6 * width


@given(st.floats(1e-9, 1e6), st.floats(1.5, 1e9))
def test_logarithmic_ticks(low, ratio):
    axis = Axis(low, low * ratio, "", log=True)
    ticks = [value for value, _ in axis.ticks()]
    assert 1 <= len(ticks) <= 12 and all(
        axis.low <= value * (1 + 1e-9) and value <= axis.high * (1 + 1e-9) for value in ticks
    )


def test_bars_begin_at_zero_and_are_as_long_as_their_values():
    svg = str(bar_figure({"a": 1.0, "b": 3.0, "c": 0.0}, "s", "Where?", "caption").plot)
    axes = json.loads(unescape(re.search(r'data-axes="(.*?)"', svg)[1]))
    bars = [tuple(map(float, bar)) for bar in re.findall(r'fill" x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', svg)]
    assert axes["x"][0] == 0 and len({begin for begin, _ in bars}) == 1
    assert bars[1][1] == pytest.approx(3 * bars[0][1], abs=0.2) and bars[2][1] <= 0.5


def test_warm_up_is_shaded_and_what_lies_above_is_counted(tmp_path):
    rng = np.random.default_rng(0)
    taken = (1e6 * rng.uniform(1, 1.2, 500)).astype(int)
    taken[:40] *= 3
    taken[[200, 300]] *= 50
    store = SampleStore(tmp_path)
    store.append("step", 0, np.cumsum(taken), taken)
    stat = compute(store, {})["series"]["step"]
    cut = stat["launches"][0]["cut"]["index"]
    figures = series_figures(store, "step", stat)
    assert len(figures) == 6 and all(figure.question.endswith("?") for figure in figures)
    over_time = str(figures[0].plot)
    shade = re.search(r'class="shade" x="([\d.]+)" y="\d+" width="([\d.]+)"', over_time)
    assert 38 <= cut <= 60 and shade and float(shade[1]) == LEFT
    assert float(shade[2]) == pytest.approx(cut / 500 * (WIDTH - LEFT - RIGHT), abs=0.1)
    assert ">2 above<" in over_time and f"{cut} of them warm-up" in over_time
    assert str(stat["n"]) in figures[1].caption and "99 %" in figures[1].caption


def epochs(seeds, low=1.0):
    return [{"seed": s, "epoch": e, "train_loss": (low + 0.1 * s) / e} for s in range(seeds) for e in (1, 2, 3)]


def test_bands_over_seeds():
    single, few, many = (curve_figures(epochs(n))[0] for n in (1, 3, 8))
    assert "observation" in single.caption and 'class="c0 band"' not in single.plot
    assert "smallest to largest" in few.caption and 'class="c0 band"' in few.plot
    assert "95 % interval of the median" in many.caption and many.plot.count("line thin") == 8
    assert curve_figures([{"seed": 0, "epoch": 1, "train_loss": None}]) == []


@pytest.mark.parametrize("values", [[5.0], [0.0, 0.0], [1e-12, 2e-12], [-3.0, 7.0], [1e9, 1e9 + 1]])
def test_axes_of_odd_ranges(values):
    axis = Axis.around(values, "")
    assert axis.low < min(values) <= max(values) < axis.high and len(axis.ticks()) >= 1


@pytest.mark.parametrize(
    ("launches", "taken"),
    [(25, [7]), (1, [5] * 30), (1, [0] * 30), (2, [1, 10**12] * 20), (1, [0, 10**6] * 20), (3, [10**6] * 20 + [10**7])],
)
def test_odd_samples_have_figures(tmp_path, launches, taken):
    """Many launches of one sample, constants, zeros, twelve orders of magnitude: no warning, no number that is none."""
    store = SampleStore(tmp_path)
    for launch in range(launches):
        store.append("step", launch, np.cumsum(taken), taken)
    stat = compute(store, {})["series"]["step"]
    figures = series_figures(store, "step", stat)
    assert len(figures) == (5 if launches == 25 else 6)
    for figure in figures:
        assert not re.search(r"nan|inf(?!o)", figure.plot.replace("information", "") + figure.caption)
