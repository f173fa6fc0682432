"""To add an operator to a backend is to write one file: CONTRIBUTING.md, "Adding things", as it is done."""

from __future__ import annotations

import runpy
from pathlib import Path

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
