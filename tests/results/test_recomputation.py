"""Checkpointing in results: the file, memory over time, what the report and the page of its own show of it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from deep500.errors import ResultsError
from deep500.measure.statistics import Interval
from deep500.networks import add_loss, create
from deep500.report.claims import derive
from deep500.report.page import render
from deep500.report.recomputation import choice_row, front_figure, memory_figure, write_page
from deep500.results.recomputation import RECOMPUTATION, Choice, RecomputationRecord, record_of
from deep500.results.record import Record
from deep500.transformations.recomputation import (
    CheckpointingPlan,
    NetworkRegions,
    find_regions,
    plan_network,
    planned_step,
)
from deep500.transformations.recomputation.counting import memory_curve, peak_bytes
from deep500.transformations.recomputation.profiler import HEADINGS
from deep500.transformations.recomputation.region_tree import locations, simulate
from deep500.transformations.workshop.recomputation.chosen_plans import plan_of, regions_named
from tests.report.test_page import check_accessible
from tests.report.test_plot import read_back
from tests.results.report_cases import HOSTILE, finished

NETWORK = add_loss(create("mixed_resnet", width=4, blocks=(2, 2, 2, 2), shape=(3, 16, 16)))


@cache
def regions() -> NetworkRegions:
    """Those of the network, found when a test asks: two processes of tests import this file, and most tests ask not."""
    return find_regions(NETWORK, batch=16)


@cache
def half() -> CheckpointingPlan:
    """A plan with half of the memory."""
    return plan_network(NETWORK, 0.5, batch=16, regions=regions())


def measured() -> RecomputationRecord:
    """The plan and three rivals, with made-up measurements."""
    record = record_of(regions(), half(), "pytorch")
    base, planned = record.choices
    taken = Interval(0.01, 0.0098, 0.0102, 8)
    choices = [
        replace(base, measured_peak=base.predicted_peak, measured_time=taken, ratio=Interval(1, None, None, 1)),
        replace(planned, measured_peak=planned.predicted_peak - 100, ratio=Interval(1.2, 1.1, 1.3, 8)),
        Choice("sqrt(n)", "sqrt(n)", 3, planned.predicted_peak, planned.predicted_time, note="nothing ran"),
        Choice(HOSTILE, "torch", measured_peak=half().budget, measured_time=taken, ratio=Interval(1.4, 1.3, 1.5, 8)),
    ]
    return replace(record, choices=tuple(choices), kept=(("drop", "random numbers"),))


def test_the_file_comes_back_as_it_was(tmp_path: Path) -> None:
    assert RecomputationRecord.read(tmp_path) is None
    record = measured()
    record.write(tmp_path)
    assert RecomputationRecord.read(tmp_path) == record
    content = json.loads((tmp_path / RECOMPUTATION).read_text())
    assert content["choices"][1]["measured_time"] is None, "not measured is null, never 0"
    for change, message in (
        ({"schema": "other"}, "got schema: 'other'"),
        ({"batch": None}, "got batch: None"),
        ({"more": 1}, "got more: 1; expected no field of this name"),
        ({"kept": [["a"]]}, "expected a list of 2 values"),
        ({"curves": [{"label": "x"}]}, "got curves.0.: no at"),
        ({"curves": []}, "got 0 curves"),
        ({"profile": {"lines": []}}, "got profile: no peak"),
    ):
        (tmp_path / RECOMPUTATION).write_text(json.dumps({**content, **change}))
        with pytest.raises(ResultsError, match=message):
            RecomputationRecord.read(tmp_path)
    (tmp_path / "checkpointing.json").write_text("{}")
    with pytest.raises(ResultsError, match=r"of an older layout; expected recomputation\.json: run it again$"):
        RecomputationRecord.read(tmp_path)


def test_memory_over_time_is_what_the_graph_holds() -> None:
    """Highest where the planner counts it; as long as the step, and longer by what runs again."""
    without, planned = memory_curve(regions()), memory_curve(regions(), planned_step(NETWORK, half())[1])
    assert without.peak == peak_bytes(regions().step.network) and planned.peak == half().predicted_peak <= half().budget
    assert without.at[-1] == pytest.approx(regions().root.step_time)
    assert planned.at[-1] == pytest.approx(half().predicted_time)
    assert without.turn == pytest.approx(regions().root.total_time) == pytest.approx(planned.turn)
    assert all(np.diff(curve.at).min() >= 0 and min(curve.held) > 0 for curve in (without, planned))


def test_the_plot_shows_the_curve() -> None:
    record = record_of(regions(), half())
    x, y = read_back(str(memory_figure(record).plot))
    _, curve = record.curves[0]
    assert max(y) == pytest.approx(curve.peak / 1e6, rel=1e-3) and max(x) == pytest.approx(curve.at[-1] / 1e6, rel=1e-3)
    assert front_figure(record) is None, "nothing to compare with"
    figure = front_figure(measured())
    assert figure is not None and figure.claims[0]["n"] == 8 and figure.claims[0]["kind"] == "scatter"
    x, y = read_back(str(figure.plot))
    planned = record.choices[1]
    assert x[0] == pytest.approx(100 * planned.predicted_peak / record.choices[0].predicted_peak, rel=1e-3)
    assert y[0] == pytest.approx(planned.predicted_time / record.choices[0].predicted_time, rel=1e-3)


def test_cells_say_what_was_not_measured() -> None:
    record = measured()
    rows = [choice_row(choice, record.choices[0], record.time_unit) for choice in record.choices]
    assert rows[0][2] == rows[0][3] and rows[0][2].endswith("(100 %)") and rows[0][4] == "+0.00 %"
    assert rows[1][6] == "1.200 [1.100, 1.300]" and rows[1][7] == "not measured" and rows[1][4].startswith("-")
    assert rows[2][3] == rows[2][6] == "not measured" and rows[2][8] == "nothing ran"
    assert rows[3][2] == rows[3][5] == "not predicted" and rows[3][1] == "" and rows[3][7] == "10 ms"


def test_the_report_has_the_section(tmp_path: Path) -> None:
    run = finished(tmp_path)
    assert 'id="recomputation"' not in render(Record.open(run.path))
    record = measured()
    record.write(run.path)
    page = render(Record.open(run.path))
    check_accessible(page)
    assert page.count('id="recomputation"') == 1 and 'href="#recomputation"' in page
    assert HOSTILE not in page and "drop (random numbers)" in page
    section = unescape(page[page.index('id="recomputation"') : page.index('id="costs"')])
    for group in {line.group for line in record.profile.lines}:
        assert section.count(HEADINGS[group].capitalize()) == 1
    for line in record.profile.lines:
        assert f"<td>{line.place}</td>" in section
    again = {row.name for row in record.regions if row.again}
    assert section.count("runs it again") == len(again) and again >= {region.name for region in half().regions}
    depths = re.findall(r'padding-left: ([\d.]+)rem">([^<]*)<', section)
    assert [(name, float(space)) for space, name in depths] == [
        (r.name, round(1.1 * r.depth, 1)) for r in record.regions
    ]
    claims = [claim for claim in derive(Record.open(run.path)) if claim["type"] == "plot"]
    assert {"When is how much memory held?", "What does less memory cost?"} <= {claim["question"] for claim in claims}


def test_rows_count_how_often_regions_run_again() -> None:
    """By hand: a group and a region in it; the region runs again twice."""
    group = next(region for region in regions().root.children if len(region.children) > 1)
    inner, other = group.children[:2]
    plan = plan_of(NETWORK, 16, regions(), regions_named(regions(), [group.name, inner.name]), "by hand")
    rows = {row.name: row for row in record_of(regions(), plan).regions}
    assert (rows[group.name].again, rows[inner.name].again, rows[other.name].again) == (1, 2, 1)
    assert rows["network"].again == rows[regions().root.children[0].name].again == 0
    assert rows[inner.name].innermost and not rows[group.name].innermost


def test_the_profile_is_of_everything_checkpointed() -> None:
    report = record_of(regions(), half()).profile
    outcome = simulate(regions().root, locations(regions().root))
    assert (report.peak, report.step) == outcome[:2] and len(report.lines) == len(locations(regions().root))


def test_a_page_of_its_own(tmp_path: Path) -> None:
    path = write_page(
        tmp_path / "page.html", HOSTILE, ["two cores"], {"one": measured(), HOSTILE: record_of(regions(), half())}
    )
    page = path.read_text(encoding="utf-8")
    check_accessible(page)
    assert HOSTILE not in page and page.count('<svg class="plot"') == 3 and "two cores" in page
    assert not re.search(r'(?:src|href)="(?!#|data:)', page), "it loads nothing"
