"""The profile as a table: groups in order, cumulative figures by simulation."""

from __future__ import annotations

import json

from deep500.transformations.recomputation.profiler import HEADINGS, profile_report
from deep500.transformations.recomputation.region_tree import locations, simulate
from tests.transformations.recomputation.trees import random_tree


def test_lines_follow_the_simulation_to_the_end() -> None:
    root = random_tree(5, 20)
    report = profile_report(root, locations(root))
    order = [line.group for line in report.lines]
    assert order == sorted(order, key=list(HEADINGS).index) and set(order) == set(HEADINGS)
    for count, line in enumerate(report.lines, 1):
        left = set(locations(root)) - {other.place for other in report.lines[:count]}
        assert (line.peak, line.step) == simulate(root, left)[:2]
    assert report.lines[-1].step == root.step_time
    alone = [line for line in report.lines if line.memory > 0]
    assert [line.time / line.memory for line in alone] == sorted((x.time / x.memory for x in alone), reverse=True)


def test_text_and_json() -> None:
    root = random_tree(5, 20)
    report = profile_report(root, locations(root), time_unit="FLOP")
    text = str(report)
    for heading in HEADINGS.values():
        assert text.count(heading + ":") == 1
    assert "saved [FLOP]" in text and text.count("\n") == 1 + len(HEADINGS) + len(report.lines)
    data = json.loads(json.dumps(report.data()))
    assert data["peak"] == report.peak and data["lines"][0]["place"] == report.lines[0].place
