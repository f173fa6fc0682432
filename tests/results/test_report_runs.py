"""Several runs on one page: the comparison with its plots, what differs, runs that cannot be compared, the command."""

from __future__ import annotations

import json
import re
import shutil
from html import unescape

import numpy as np
import pytest

from deep500 import cli
from deep500.compare.report import PAIRWISE, quantile_differences, render_runs
from deep500.compare.runs import compare_runs
from deep500.errors import ResultsError
from deep500.measure.launches import over_launches
from deep500.measure.quantiles import quantile
from deep500.report.plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH
from tests.report.test_page import check_accessible
from tests.report.test_plot import places
from tests.results.report_cases import HOSTILE, finished


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run, one that differs by its batch size and takes half the time, and one that is the same as the first."""
    base = tmp_path_factory.mktemp("runs")
    first = finished(base, labels=["stand-in data"], seeds=12)
    second = finished(base, scale=0.5, seeds=12, resolved={"recipe": {"batch_size": 64}})
    same = base / "job" / "same"
    shutil.copytree(first.path, same)
    return first.path, second.path, same


def test_verdict_differences_and_plots(runs):
    first, second, _ = runs
    page = render_runs([first, second])
    check_accessible(page)
    step = compare_runs(first, second).series[0]
    assert step.verdict == "faster" and f"is faster than {first.name} (step: time ratio {step.ratio.median:.3f}" in page
    assert page.index("What differs") < page.index("time ratio</th>") < page.index("Is it faster, and by how much?")
    assert re.search(r"batch_size</th><td.*?>32</td><td.*?>64</td>", page)
    row = re.search(r"<tr><th scope=.row.>step</th>.*?</tr>", page.partition("<article")[0], re.DOTALL)
    medians = r"[mµ]s</span> <span class=.soft.>99 % CI over 12 launches, n_eff \d"
    assert row and len(re.findall(medians, row[0])) == 2  # rule R1
    assert "different work" not in page
    plot = re.search(r'aria-label="difference of the quantiles of step: (.*?) at the median', page)
    assert plot and all(-60 < float(number) < -40 for number in re.findall(r"[-+][\d.]+(?= %)", plot[1]))
    comparison = page.partition("<article")[0]
    assert comparison.count("stand-in data") == 2  # the labels of either run stand in the table and above the pair
    assert page.count("<article") == 2 and page.count("How to run it again") == 2


def test_equal_runs_differ_in_nothing(runs):
    first, _, same = runs
    page = render_runs([first, same])
    assert "same and" in page and "are equivalent (step: time ratio 1.000" in page
    assert "Nothing: recipe, data and environment are the same." in page


def test_times_of_different_work_are_told_apart(runs, tmp_path):
    other = finished(tmp_path, samples_each=64).path
    page = render_runs([runs[0], other])
    assert re.search(r"One step is 32 samples in [^<]+ and 64 in [^<]+: their times are of different work", page)
    step = compare_runs(runs[0], other).series[0]
    change = f"{100 * (step.ratio.median - 1):+.3g} %"  # of a sample: half of what medians of the steps say
    assert f"step, by sample {change}" in page and f"{step.ratio.median:.3f}</span> by sample" in page
    assert step.ratio.median == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(("launches", "shared"), [(5, False), (6, False), (7, False), (8, True)])
def test_quantiles_are_those_of_the_tables(launches, shared):
    """With six launches tables have a median over launches, though the two intervals of a band need seven."""
    rng = np.random.default_rng(launches)
    sides = [[rng.uniform(1, 1.1, 60 + 40 * k) * (1 + k) for k in range(launches)] for _ in range(2)]
    sides[1][-1] = sides[1][-1] * 3
    a, b = (over_launches(side, shared=shared).estimate.value for side in sides)
    figure = quantile_differences("step", *sides, shared=shared)
    assert f"{100 * (b / a - 1):+.3g} % at the median" in unescape(figure.plot)


def test_three_runs_are_each_compared_with_the_first(runs):
    page = check_accessible(render_runs(list(runs)))
    assert page.headings.count(1) == 1 and len(page.all("article")) == 3
    sections = [section["id"] for section in page.all("section")]
    assert [name for name in sections if name.startswith("pair-")] == ["pair-1", "pair-2"]


def test_runs_that_cannot_be_compared_say_why(runs, tmp_path):
    first = runs[0]
    other = finished(tmp_path, recipe="another").path
    altered = shutil.copytree(first, tmp_path / "altered")
    (altered / "metrics.jsonl").write_bytes((altered / "metrics.jsonl").read_bytes().replace(b"91", b"99", 1))
    page = render_runs([first, other, altered])
    check_accessible(page)
    assert "expected two of one recipe" in page and "altered (metrics.jsonl: altered)" in page
    assert "is faster than" not in page


def test_hostile_names_are_text(runs, tmp_path):
    evil = finished(tmp_path, recipe="job", resolved={"recipe": {HOSTILE: HOSTILE}}, labels=[HOSTILE]).path
    page = render_runs([runs[0], evil])
    check_accessible(page)
    assert "<script>alert" not in page and page.count("<script>") == 1 and page.count("&lt;script&gt;") > 4


def test_command(runs, tmp_path, capsys):
    first, second, _ = runs
    page = tmp_path / "page.html"
    assert (
        cli.main(["report", str(first), str(second), "-o", str(page)]) == 0 and capsys.readouterr().out == f"{page}\n"
    )
    assert page.read_text(encoding="utf-8") == render_runs([first, second])
    assert cli.main(["report", str(first), "-o", str(page)]) == 0
    assert page.read_bytes() == (first / "report.html").read_bytes()
    assert cli.main(["report", str(tmp_path)]) == 2
    assert cli.main(["report", str(first), "-o", str(tmp_path / "absent" / "page.html")]) == 2
    assert "expected a writable folder" in capsys.readouterr().err


def test_the_same_run_twice_is_refused(runs):
    with pytest.raises(ResultsError, match="name each of them once"):
        render_runs([runs[0], runs[0]])


def test_quantiles_that_cross_are_said_to():
    """The same samples cross nowhere; with the quick half quicker and the slow half slower, they do."""
    noise = np.random.default_rng(0).uniform(1, 2, 2000)
    assert "do not cross" in quantile_differences("step", [noise], [noise]).caption
    spread = 1.5 + 2 * (noise - 1.5)
    figure = quantile_differences("step", [noise], [np.random.default_rng(1).permutation(spread)])
    assert "quantiles cross" in figure.caption and figure.plot.count(" band") == 1


def test_the_band_ends_where_intervals_end():
    """With 150 samples the outer quantiles have no interval: no band is drawn there, and none across a gap."""
    noise = np.random.default_rng(0).uniform(1, 2, 150)
    figure = quantile_differences("step", [noise], [noise[::-1]])
    band = re.search(r'class="c0 band"[^>]* d="([^"]*)"', figure.plot)
    at = places(band[1])[:, 0] / 100
    share = (at - LEFT) / (WIDTH - LEFT - RIGHT)
    assert band and 0.05 < share.min() < 0.3 and 0.7 < share.max() < 0.95


def test_the_band_is_what_both_intervals_allow_together():
    first = np.random.default_rng(0).uniform(1, 2, 400)
    second = np.random.default_rng(1).uniform(0.5, 1, 400)
    plot = quantile_differences("step", [first], [second]).plot
    low, high = json.loads(unescape(re.search(r'data-axes="(.*?)"', plot)[1]))["y"][:2]
    at = places(re.search(r'class="c0 band"[^>]* d="([^"]*)"', plot)[1])[:, 1] / 100
    ends = low + (HEIGHT - BOTTOM - at) / (HEIGHT - TOP - BOTTOM) * (
        high - low
    )  # lower ends, then upper ones backwards
    a, b = (quantile(values, 0.5, PAIRWISE) for values in (first, second))
    middle = len(ends) // 4  # all 19 quantiles have intervals: the tenth is the median
    assert len(ends) == 38 and ends[middle] == pytest.approx(100 * (b.low / a.high - 1), abs=0.05)
    assert ends[-1 - middle] == pytest.approx(100 * (b.high / a.low - 1), abs=0.05)


@pytest.mark.parametrize(
    ("launches", "differ", "words"),
    [
        (8, 0.3, "95 % intervals over 8 launches"),
        (3, 0.0, "95 % intervals within 3 launches"),
        (3, 0.3, "no band: no interval that could be trusted within 3 launches"),
    ],
)
def test_the_band_says_what_it_holds_over(launches, differ, words):
    rng = np.random.default_rng(0)
    sides = [
        [np.exp(differ * rng.standard_normal()) * rng.uniform(1, 1.1, 300) for _ in range(launches)] for _ in range(2)
    ]
    figure = quantile_differences("step", *sides)
    assert words in figure.caption and (" band" in figure.plot) is ("no band" not in words)
    if launches == 8:  # at least as wide as the launches are apart, which all samples together would not show
        low, high = json.loads(unescape(re.search(r'data-axes="(.*?)"', figure.plot)[1]))["y"][:2]
        assert high - low > 100 * 2 * differ
