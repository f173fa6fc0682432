"""The page of ``deep500 bits``: its first sentence is the verdict, and all that differs in the step is on it."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from deep500 import cli
from deep500.compare.bits import BitsVerdict, _judged
from deep500.compare.bits_page import PAGE, page
from deep500.networks import create
from tests.compare.test_bits import RECIPE, run


def test_two_models_that_part_leave_a_page(tmp_path, capsys):
    """One weight of the second layer is doubled: the first layer's value stays equal."""
    network = create("mlp", shape=(4,), hidden=(3,), classes=2)
    network.to_onnx(tmp_path / "a.onnx")
    weight = np.array(network.parameter("fc2.weight").value)
    weight[1, 2] *= 2
    network.set_parameter("fc2.weight", weight)
    network.to_onnx(tmp_path / "b.onnx")
    code = cli.main(["bits", str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx"), "--out", str(tmp_path / "made")])
    said = capsys.readouterr().out
    text = (tmp_path / "made" / PAGE).read_text("utf-8")
    assert code == 1 and str(tmp_path / "made" / PAGE) in said
    assert "They part: forward, value" in text and "a.onnx and b.onnx" in text
    assert re.search(r"<td[^>]*>forward, value &#39;[^&]*&#39; of node &#39;[^&]*fc2", text)


def test_two_runs_with_the_same_bits_leave_a_page(tmp_path, capsys):
    sides = [run(tmp_path, name, RECIPE) for name in ("one", "two")]
    assert cli.main(["bits", "--run", *sides, "--steps", "1", "--json", "-o", str(tmp_path / "made")]) == 0
    text = (tmp_path / "made" / PAGE).read_text("utf-8")
    assert "The same bits: 1 steps" in text and "Where they part" not in text
    assert PAGE in capsys.readouterr().err


@given(st.lists(st.sampled_from([0.0, -0.0, 1e-7, 2.0, float("inf"), float("nan")]), max_size=60))
def test_every_difference_is_a_row_or_counted(moved):
    """Of things in order, each that differs stands in the table, or is one of those beyond its end."""
    start = np.zeros(2, np.float32)
    pairs = [(f"thing {n}", None, start, np.full(2, far, np.float32)) for n, far in enumerate(moved)]
    parting, growth = _judged(pairs, 3)
    differ = [n for n, far in enumerate(moved) if str(far) != "0.0"]
    assert (None if parting is None else parting.where) == (f"thing {differ[0]}" if differ else None)
    text = page(BitsVerdict(parting, 3, "3 steps", [], growth), "two runs")
    rows = [int(n) for n in re.findall(r"<td[^>]*>thing (\d+)</td>", text.partition("What differs, in")[2])]
    assert rows == differ[:40] and (not differ or f"{len(moved) - len(differ)} of {len(moved)} things" in text)
