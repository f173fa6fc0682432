"""Gradients of operators of the kinds that users write: right, or refused in words that say what to do."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

from deep500.errors import CompileError, EnzymeError
from deep500.operators.cpp.commands import LINK
from deep500.operators.enzyme.build import CONTAINERS, EAGER
from deep500.operators.enzyme.pipeline import BuildOptions, compile_library
from deep500.operators.enzyme.wrapper import SORTING
from tests.operators.enzyme_battery import ENTRY, ROWS, Row
from tests.operators.enzyme_units import needs_engine

INCLUDE = Path(__file__).resolve().parents[3] / "deep500" / "operators" / "include"
EIGHTH_ORDER = ((1, 4 / 5), (2, -1 / 5), (3, 4 / 105), (4, -1 / 280))


pytestmark = [needs_engine, pytest.mark.slow]


class Built:
    """A row's library."""

    def __init__(self, row: Row, folder: Path) -> None:
        source, library = folder / "row.cpp", folder / "row.so"
        source.write_text(CONTAINERS + row.unit(SORTING + ENTRY), encoding="utf-8")
        ways = ((), EAGER) if "sort(" in row.body else (EAGER, ())  # as operators are built
        options = BuildOptions(turn=True, back=LINK[1:])
        try:
            compile_library(source, library, [f"-I{INCLUDE}", *ways[0]], options)
        except EnzymeError:
            compile_library(source, library, [f"-I{INCLUDE}", *ways[1]], options)
        self.library = ctypes.CDLL(str(library))

    def value(self, x: np.ndarray) -> np.ndarray:
        """Forward."""
        y = np.full(x.size, 7.0)
        self.library.value(ctypes.c_size_t(x.size), *_places(x, y))
        return y

    def gradient(self, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
        """Of <dy, forward>."""
        dx, y, used_up = np.zeros(x.size), np.full(x.size, 7.0), dy.copy()
        self.library.gradient(ctypes.c_size_t(x.size), *_places(x, dx, y, used_up))
        return dx

    def differences(self, x: np.ndarray, dy: np.ndarray) -> np.ndarray:
        """The same by central differences of the eighth order."""
        h = 1e-3
        steps = [[(h * k * e, c / h) for k, c in EIGHTH_ORDER] for e in np.eye(x.size)]
        return np.array([sum(c * (dy * (self.value(x + d) - self.value(x - d))).sum() for d, c in s) for s in steps])


def _places(*arrays: np.ndarray) -> list[ctypes.c_void_p]:
    return [ctypes.c_void_p(array.ctypes.data) for array in arrays]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_gradient_is_right_or_refused(row: Row, tmp_path: Path) -> None:
    """At 1, 5, 12 and 33 elements, twice each; no two elements are closer than the differences reach."""
    if row.refused:
        with pytest.raises(CompileError) as caught:
            Built(row, tmp_path)
        assert re.search(row.refused, str(caught.value)), str(caught.value)
        return
    built = Built(row, tmp_path)
    for n in (1, 5, 12, 33):
        random = np.random.default_rng(n)
        x = random.permutation(np.linspace(-1.5, 1.7, n) + random.uniform(-0.03, 0.03, n))
        dy = random.standard_normal(n)
        expected = built.differences(x, dy)
        for _ in range(2):
            np.testing.assert_allclose(built.gradient(x, dy), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
