"""How a network was divided: what is kept of a plan, and what the report draws of it."""

from __future__ import annotations

import pytest

from deep500.errors import ResultsError
from deep500.networks import add_loss, create
from deep500.report.division import division_view
from deep500.results.division import DIVISION, read_division, write_division
from deep500.transformations.parallel.planning import Wishes, parallelize


@pytest.fixture(scope="module")
def divided():
    network = add_loss(create("mlp", shape=(4,), hidden=(8,), classes=2))
    wishes = Wishes(pins={"fc1": "n", "fc2": "k"})
    plan = parallelize(network, 2, {"input": (4, 4), "label": (4,)}, wishes=wishes)
    return plan, plan.explain(network)


def test_what_is_drawn_is_the_plan(divided, tmp_path):
    plan, rows = divided
    assert read_division(tmp_path) is None and division_view(None) is None
    write_division(tmp_path, plan, rows)
    content = read_division(tmp_path)
    assert [node["strategy"] for node in content["nodes"]] == [row.strategy for row in rows]
    assert sum(node["nbytes"] for node in content["nodes"]) == plan.nbytes == content["nbytes"] > 0
    view = division_view(content)
    parts = sum(row.strategy not in ("", "replicate") for row in rows)
    assert view["sentence"].startswith(
        f"{parts} of {sum(bool(row.strategy) for row in rows)} nodes of a step divided among 2 ranks"
    )
    placement, traffic = (str(figure.plot) for figure in view["figures"])
    kinds = {row.shardings.split(",")[0] for row in rows if row.shardings} | {"R"}
    assert all(f">{kind}</text>" in placement for kind in kinds) and len(kinds) > 2
    senders = sum(node["nbytes"] > 0 for node in content["nodes"])
    assert view["figures"][1].claims[0]["n"] == senders and traffic.count("h0") == senders


def test_a_plan_that_sends_nothing_has_no_picture_of_it(divided, tmp_path):
    plan, rows = divided
    write_division(tmp_path, plan, [row._replace(nbytes=0) for row in rows])
    assert len(division_view(read_division(tmp_path))["figures"]) == 1


def test_what_is_no_division_is_refused(divided, tmp_path):
    write_division(tmp_path, *divided)
    text = (tmp_path / DIVISION).read_text()
    (tmp_path / DIVISION).write_text(text.replace('"strategy"', '"strategem"', 1))
    with pytest.raises(ResultsError, match="strateg"):
        read_division(tmp_path)
