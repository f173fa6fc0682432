"""Well-known kernels and loops of OpenMP, in ``enzyme_kernels.cpp``: right at 1, 2 and 4 threads, or refused."""

from __future__ import annotations

import ctypes
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import CompileError
from tests.operators.enzyme_mended import HEADERS
from tests.operators.enzyme_sources import elementwise
from tests.operators.enzyme_units import needs_engine

BEFORE = """#include <numeric>
#include <vector>
template <class T> __attribute__((noinline)) T twice(T a, T b) { return a * b + std::sin(a); }
"""
TEXT = (Path(__file__).resolve().parents[1] / "enzyme_kernels.cpp").read_text(encoding="utf-8")
KERNELS = re.findall(r"^//// (\w+)( \[openmp\])?(?:: ([^\n]+))?\n(.*?)(?=^////|\Z)", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.long
@needs_engine
@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize(("name", "threads", "refused", "body"), KERNELS, ids=[kernel[0] for kernel in KERNELS])
def test_kernels_are_right_or_refused(name: str, threads: str, refused: str, body: str, check: bool) -> None:
    """Along a direction, at points where no two elements are equal; where a kink is beside it, at another."""
    before = HEADERS + BEFORE + ("#include <omp.h>\n" if threads else "")
    described = [d5.TensorDescriptor("float64", ("N",))]

    def build() -> d5.operators.cpp.CompiledOp:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return d5.compile_custom_cppop_inline(
                name,
                elementwise(name, "\n" + body, before),
                described,
                described,
                gradient="enzyme",
                check=check,
                openmp=bool(threads),
            )

    words = refused.removeprefix("checked: ")
    if refused and (check or words == refused):
        with pytest.raises(CompileError, match=words):
            build()
        return
    op, h = build(), 1e-6
    runtimes = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libiomp5" in line}
    for count in (1, 2, 4) if threads else (1,):
        for path in runtimes:
            ctypes.CDLL(path).omp_set_num_threads(count)
        for n in (1, 2, 5, 12, 33, 100):
            off = []
            for seed in range(3):
                random = np.random.default_rng([n, seed])
                x = random.permutation(np.linspace(-1.45, 1.55, n)) + 1e-3 * random.standard_normal(n)
                dy, v = random.standard_normal((2, n))
                (got,) = op.run_backward([dy], [x], [op(x)])
                change = (dy * (op(x + h * v) - op(x - h * v))).sum() / (2 * h)
                off.append(abs(change - (got * v).sum()) / (np.abs(got * v).sum() + 1e-3))
            assert min(off) < 1e-5, (name, count, n, off)
