"""To add an operator to a backend is to write one file: CONTRIBUTING.md, "Adding things", as it is done."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deep500.frameworks.reference as d5ref
from deep500.frameworks.reference.operators import OPS
from deep500.networks import Network
from tests.tolerances import assert_close

KERNEL = """\
'''Sums along an axis.'''
import numpy as np
from deep500.frameworks.reference.operators import op

CALLED = []


@op("CumSum")
def cumulative_sum(x, axis, *, exclusive=0, reverse=0):
    CALLED.append(x.shape)
    assert not exclusive and not reverse
    return np.cumsum(x, int(axis))
"""


def network() -> Network:
    """y = cumsum(x) along the last axis."""
    net = Network("sums")
    net.add_input("x", ("N", 4))
    net.add_parameter("axis", np.asarray(1, np.int64), trainable=False)
    net.add_node("CumSum", ["x", "axis"], "y")
    net.add_output("y")
    return net


def test_a_file_with_a_kernel_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(OPS, ("", "CumSum"))
    (tmp_path / "sums.py").write_text(KERNEL, encoding="utf-8")
    called = runpy.run_path(str(tmp_path / "sums.py"))["CALLED"]
    x = np.arange(8, dtype="float32").reshape(2, 4)
    (y,) = d5ref.from_model(network()).inference({"x": x}).values()
    assert_close(y, np.cumsum(x, 1), "exact")
    assert called == [(2, 4)], "another kernel than the file's was used"


@pytest.mark.backend("pytorch")
def test_a_kernel_of_ones_own_serves_instead_of_the_built_in_lowering(monkeypatch: pytest.MonkeyPatch) -> None:
    pytorch = pytest.importorskip("deep500.frameworks.pytorch")
    from deep500.frameworks.pytorch.operators import table

    monkeypatch.setitem(table.OPS, ("", "Softmax"), table.OPS["", "Softmax"])  # put back afterwards
    net = Network("scores")
    net.add_input("x", ("N", 4))
    net.add_node("Softmax", "x", "y")
    net.add_output("y")
    x = np.arange(8, dtype="float32").reshape(2, 4)
    (before,) = pytorch.from_model(net).inference({"x": x}).values()
    table.op("Softmax")(own_softmax)
    (after,) = pytorch.from_model(net).inference({"x": x}).values()
    assert_close(after, 2 * before)
    assert float(before.sum()) == pytest.approx(2)


def own_softmax(x: Any, *, axis: int = -1) -> Any:
    return 2 * x.softmax(axis)
