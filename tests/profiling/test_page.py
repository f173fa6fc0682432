"""The page of a profile: all time is drawn once, every node stands on it, and it loads nothing."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest

from deep500.frameworks.reference import from_model
from deep500.networks import add_loss, create
from deep500.profiling import profile_network, write_page
from deep500.profiling.page import bars, drawing, icicle
from tests.report.test_page import check_accessible


@pytest.fixture(scope="module")
def profile():
    network = add_loss(create("lenet"))
    inputs = {"input": np.ones((2, 3, 32, 32), np.float32), "label": np.zeros(2, np.int64)}
    return profile_network(network, inputs, {"reference": from_model}, steps=1)


def test_pieces_lie_within_those_around_them_and_all_time_is_drawn(profile):
    (part,) = profile.frameworks
    step = icicle(part, [row.name for row in profile.rows])
    assert step.seconds == pytest.approx(sum(c.seconds for c in part.cells.values()) + sum(part.outside.values()))
    rows = bars(step)
    assert [bar.name for bar in rows[1]] == ["forward", "backward", "no node"]
    for row in rows[:3]:
        assert sum(bar.width for bar in row) == pytest.approx(100)
    for row in rows:
        ends = [(bar.left, bar.left + bar.width) for bar in row]
        assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(ends))


def test_the_drawing_has_every_node_and_what_it_reads(profile):
    drawn = drawing(profile)
    assert len(drawn.dots) == len(profile.rows) == len(drawn.cells)
    assert len(drawn.edges) == sum(len(row.reads) for row in profile.rows) > len(profile.rows) / 2


def test_the_page_names_all_nodes_and_loads_nothing(profile, tmp_path):
    page = write_page(profile, tmp_path / "profile.html").read_text(encoding="utf-8")
    check_accessible(page)
    assert all(row.name in page for row in profile.rows)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', page)
