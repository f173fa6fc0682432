"""Scaling tables, ranks and the roofline: files, what they claim, and what the report shows of them."""

from __future__ import annotations

import json
import re

import pytest

from deep500.errors import InputError, ResultsError
from deep500.measure.statistics import Interval
from deep500.report.bounds import ranks_figure, roofline_figure, scaling_figures
from deep500.report.page import render
from deep500.report.plot import Axis, Plot
from deep500.results.ranks import RANKS, Rank, Ranks
from deep500.results.rules import FAIL, PASS, check
from deep500.results.scaling import PREDICTED, SCALING, Scaling, ScalingBase, ScalingBound, ScalingPoint
from tests.report.test_page import check_accessible
from tests.results.report_cases import HOSTILE, finished

BASE = ScalingBase("one process, batch 64", "parallel-1", 64, Interval(0.8, 0.79, 0.81, 40))


def seconds(value, n=40):
    return Interval(value, 0.98 * value, 1.02 * value, n)


def amdahl(p, serial=0.1):
    return seconds(0.8 * (serial + (1 - serial) / p))


STRONG = Scaling(
    BASE,
    (
        *(ScalingPoint(p, 64, "ring all-reduce", amdahl(p), quality=97.0, quality_low=96.5) for p in (1, 2, 4)),
        ScalingPoint(16, 64, "ring all-reduce", Interval(0.125, None, None, 1), PREDICTED),
        *(ScalingPoint(p, 64, "parameter server", amdahl(p, 0.3), quality=97.1) for p in (1, 2, 4)),
    ),
    "test_accuracy (%)",
    (ScalingBound("measured all-reduce", (2, 4), (0.01, 0.02)),),
)
WEAK = Scaling(BASE, tuple(ScalingPoint(p, 64 * p, "ring", seconds(0.8 * (1 + 0.05 * (p - 1)))) for p in (1, 2, 4)))
RANKED = Ranks(
    (Rank(0, seconds(0.10), 0.0, 0.0, 0.2, 1e6), Rank(1, seconds(0.13), 3e-6, 1.1e-6, 0.05, 1e6)),
    "window",
    "max",
    0.13,
    1e-5,
)


def test_files_come_back_as_they_were(tmp_path):
    assert Scaling.read(tmp_path) is None and Ranks.read(tmp_path) is None
    STRONG.write(tmp_path)
    RANKED.write(tmp_path)
    assert Scaling.read(tmp_path) == STRONG and Ranks.read(tmp_path) == RANKED
    entry = json.loads((tmp_path / SCALING).read_text())["entries"][1]
    assert entry["efficiency"]["value"] == pytest.approx(1 / 1.1) and entry["kind"] == "measured"


def test_efficiency_and_serial_share_are_those_of_the_closed_form():
    assert STRONG.mode == "strong" and STRONG.serial_share("ring all-reduce") == pytest.approx(0.1)
    assert STRONG.serial_share("parameter server") == pytest.approx(0.3)
    assert WEAK.mode == "weak" and WEAK.efficiency(WEAK.entries[2]).median == pytest.approx(1 / 1.15)
    four = STRONG.efficiency(STRONG.entries[2])
    assert four.median == pytest.approx(1 / (4 * 0.1 + 0.9))
    assert four.low == pytest.approx(0.79 / (4 * 0.8 * 0.325 * 1.02))
    assert STRONG.efficiency(STRONG.entries[3]).low is None
    assert (
        Scaling(ScalingBase("eight", "other", 64, seconds(0.8), 8), STRONG.entries).serial_share("ring all-reduce")
        is None
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": "deep500-scaling-9"}, "got schema: 'deep500-scaling-9'"),
        ({"entries": [{"ranks": 2}]}, r"got entries\[0\]: no global_batch"),
        ({"base": None}, "got base: None; expected an object"),
        ({"bounds": [{"name": "x", "ranks": [], "seconds": []}]}, "bound 'x'"),
    ],
)
def test_a_file_that_is_none_of_ours_is_one_error(change, words, tmp_path):
    STRONG.write(tmp_path)
    content = json.loads((tmp_path / SCALING).read_text())
    (tmp_path / SCALING).write_text(json.dumps({**content, **change}))
    with pytest.raises(ResultsError, match=words):
        Scaling.read(tmp_path)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (Scaling(BASE, (ScalingPoint(0, 64, "x", seconds(1.0)),)), "0 ranks"),
        (Scaling(BASE, (ScalingPoint(2, 64, "x", seconds(0.0)),)), "0.0 s"),
        (Scaling(ScalingBase("b", "best", 64, seconds(1.0)), ()), "base 'best'"),
        (Scaling(BASE, (ScalingPoint(2, 64, "x", seconds(1.0), "guessed"),)), "kind 'guessed'"),
    ],
)
def test_what_cannot_be_is_not_written(bad, words, tmp_path):
    with pytest.raises(ResultsError, match=words):
        bad.write(tmp_path)
    assert not (tmp_path / SCALING).exists()


def test_ranks_of_another_version_are_one_error(tmp_path):
    (tmp_path / RANKS).write_text('{"schema": "deep500-ranks-2"}')
    with pytest.raises(ResultsError, match="got schema: 'deep500-ranks-2'; expected 'deep500-ranks-1'"):
        Ranks.read(tmp_path)
    (tmp_path / RANKS).write_text('{"schema": "deep500-ranks-1", "ranks": [{"rank": 0}]}')
    with pytest.raises(ResultsError, match="got no sync"):
        Ranks.read(tmp_path)


def test_claims_make_the_rules_judge(tmp_path):
    """R1, R10, R11, F1 and F11 hold for the table above, and fail where its quality is taken away."""
    record = finished(tmp_path, claims=[*STRONG.claims(), *RANKED.claims()])
    findings = check(record.path)
    assert all(findings[rule].status == PASS for rule in ("R1", "R10", "R11", "F1", "F11"))
    assert {c["type"] for c in STRONG.claims()} == {"scaling", "speedup"}
    assert all(c["base"]["seconds"] == 0.8 for c in STRONG.claims() if c["type"] == "speedup")
    bare = finished(tmp_path / "bare", claims=WEAK.claims())
    assert check(bare.path)["F1"].status == FAIL and check(bare.path)["F11"].status == PASS


def places(svg, kind):
    """Where the paths of a kind begin, in hundredths of a pixel."""
    return [tuple(map(int, place)) for place in re.findall(rf'class="c\d {kind}"[^>]*d="m(-?\d+) (-?\d+)', svg)]


def test_points_lie_where_the_numbers_say():
    time, share = scaling_figures(STRONG)
    assert "10 % for ring all-reduce, 30 % for parameter server" in time.caption and "small: predicted" in time.caption
    assert "thick grey: measured all-reduce" in time.caption and "dashed: ideal" in share.caption
    plot = str(share.plot)
    low, high = json.loads(re.search(r'data-axes="(.*?)"', plot)[1].replace("&#34;", '"'))["y"][:2]
    ((_, top), *_) = places(plot, "dots")
    assert top == round(100 * (216 - (100 - low) / (high - low) * 204))  # one process is 100 % efficient
    assert plot.count('stroke-width="8"') == 2 and plot.count('stroke-width="4"') == 1
    assert [text for text in ("1", "2", "4", "16") if f">{text}<" in plot] == ["1", "2", "4", "16"]
    weak = scaling_figures(WEAK)[0]
    assert "weak scaling" in weak.caption and scaling_figures(None) == []


def test_the_roofline_is_bent_at_the_ridge():
    roofs = {"flops": 4e9, "bandwidth": 1e9}
    rate = {"type": "rate", "flops": 1e9, "counted_flops": 2e9, "seconds": 2.0, "bound": 2e9, "roofs": roofs}
    figure = roofline_figure([{**rate, "name": "training step", "bytes": 1e9}, {**rate, "flops": 2e9}])
    assert "training step 50% of its roof" in figure.caption and "1 GB/s" in figure.caption
    axes = json.loads(re.search(r'data-axes="(.*?)"', str(figure.plot))[1].replace("&#34;", '"'))
    assert axes["x"][2] == axes["y"][2] == 1 and axes["y"][3] == "GFLOP/s"  # both logarithmic
    bend = re.search(r'class="c7 line thick"[^>]*d="m\d+ \d+l(\d+) (-?\d+) (\d+) (-?\d+)', str(figure.plot))
    assert int(bend[2]) < 0 and int(bend[4]) == 0
    assert roofline_figure([rate]) is None  # bytes were not counted


def test_the_report_shows_them(tmp_path):
    record = finished(tmp_path, labels=["stand-in data"])
    STRONG.write(record.path)
    RANKED.write(record.path)
    text = render(record)
    check_accessible(text)
    part = text[text.index('id="parallel"') :].partition("</section>")[0]
    assert "relative to one process, batch 64 (one process of the parallel program)" in part and "[790, 810] ms" in part
    assert part.count("predicted") >= 2 and "Imbalance (slowest over mean, minus 1): 13 %" in part
    assert "3 µs ± 1.1 µs" in part and "a common window of time" in part and "Ranks differ" in part
    rows = re.findall(r"<tr>.*?</tr>", part, re.DOTALL)
    assert len(rows) == 1 + len(STRONG.entries) + 1 + 2
    assert "stand-in data" in part.partition("</h")[0]
    assert (
        "Do the processes take equally long?" in part and ranks_figure(Ranks((RANKED.ranks[0],), "none", "max")) is None
    )
    assert 'id="parallel"' not in render(finished(tmp_path / "alone"))


def test_hostile_schemes_are_text(tmp_path):
    record = finished(tmp_path)
    Scaling(
        ScalingBase(HOSTILE, "other", 64, seconds(1.0)), (ScalingPoint(2, 64, HOSTILE, seconds(0.6)),), HOSTILE
    ).write(record.path)
    assert "<script>alert" not in render(record)


def test_plots_refuse_what_rule_r12_forbids():
    names = ((0.0, "a"), (1.0, "b"))
    plot = Plot(Axis(-0.5, 1.5, "", labels=names), Axis(1, 2, "s"), "a plot for a test")
    with pytest.raises(InputError, match="to another category"):
        plot.line([0, 1], [1, 2])
    plot.line([0, 0], [1, 2])
    with pytest.raises(InputError, match="begin at 0"):
        Plot(Axis(1, 2, "s"), Axis(0, 1, "", labels=names), "a plot for a test").bar(0, 0, 2)
    with pytest.raises(InputError, match="begin at 0"):
        Plot(Axis(0, 2, "s"), Axis(0, 1, "", labels=names), "a plot for a test").bar(0, 1, 2)


def test_ranks_of_a_busy_machine_have_no_intervals(tmp_path, monkeypatch):
    record = finished(tmp_path, labels=["busy machine"])
    RANKED.write(record.path)

    def times():
        part = render(record).partition('id="parallel"')[2].partition("</section>")[0]
        return ["CI" in row for row in re.findall(r"<tr><th.*?</tr>", part, re.DOTALL)[1:]]

    assert any(times())
    monkeypatch.setattr("deep500.report.page.taints", lambda *_: True)
    assert times() and not any(times())
