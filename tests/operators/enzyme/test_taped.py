"""The tape of ``deep500/taped.h``: its derivatives, and that it finds a gradient that is wrong, with its line."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import EnzymeError
from deep500.operators.cpp.commands import Job
from deep500.operators.cpp.spec import BuildSpec
from deep500.operators.enzyme.build import Build
from deep500.operators.enzyme.coverage import lined
from deep500.operators.enzyme.probed import EnzymeTape
from tests.operators.enzyme.test_battery import EIGHTH_ORDER
from tests.operators.enzyme_sources import elementwise
from tests.operators.enzyme_units import needs_engine

OF_ONE = [
    *("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "cbrt", "sin", "cos", "tan", "sinh", "cosh"),
    *("tanh", "asin", "acos", "atan", "fabs", "abs", "erf", "erfc"),
]
OTHERS = [
    *("std::pow(v, T(2.5))", "std::pow(T(2), v)", "std::pow(v, 3)", "std::hypot(v, w)", "std::atan2(v, w)", "v / w"),
    *("std::fma(v, w, v)", "std::max(v, w) - std::fmin(v, w)", "-v * w + 2 * v - 1 / w", "d5::gelu(v)", "d5::tanh(v)"),
    *("d5::softplus(v)", "v < w ? v * v : w", "d5::dot(n, x, x)"),
]
STEP = 1e-3


@needs_engine
def test_derivatives_of_a_tape_are_those_of_its_functions(tmp_path: Path) -> None:
    """One function for each element, of it and of the next: against differences of the eighth order."""
    functions = [f"std::{name}(v)" for name in OF_ONE] + OTHERS
    cases = "\n".join(f"case {i}: y[i] = {text}; break;" for i, text in enumerate(functions))
    body = f"for (std::size_t i = 0; i < n; ++i) {{ const T v = x[i], w = x[(i + 1) % n]; switch (i) {{ {cases} }} }}"
    (tmp_path / "own.cpp").write_text(elementwise("own", body, '#include "deep500/blas.h"'))
    spec = BuildSpec("own", None, str(tmp_path / "own.cpp"), ("float64",), ("float64",), gradient="enzyme")
    library = Build(Job(spec, None, tmp_path, "own.cpp", tmp_path / "own.so", False, [], list))._taped()  # type: ignore[arg-type]
    tape, n = EnzymeTape(str(library)), len(functions)
    tape.library.open([[n]], [[n]])
    x = np.random.default_rng(0).uniform(0.3, 0.9, n)
    for i, text in enumerate(functions):
        seed = np.eye(n)[i]
        tape.forward([x], [0])
        got = tape.gradient([seed])
        for at in {i, (i + 1) % n}:
            e = STEP * np.eye(n)[at]
            values = [
                c * (tape.forward([x + k * e], [])[0][i] - tape.forward([x - k * e], [])[0][i]) for k, c in EIGHTH_ORDER
            ]
            np.testing.assert_allclose(got[at], sum(values) / STEP, rtol=1e-9, atol=1e-9, err_msg=text)


def test_the_line_is_stored_before_every_call_of_the_users_file() -> None:
    """Where the location of an invoke stands on the next line, too; calls in headers leave it as it is."""
    ir = """
define void @f() {
  %1 = invoke double @g(double 1.0)
          to label %2 unwind label %3, !dbg !3
  call void @h(), !dbg !4
}
!0 = !DIFile(filename: "own.cpp", directory: "/")
!1 = distinct !DISubprogram(name: "f", file: !0)
!2 = distinct !DISubprogram(name: "g", file: !5)
!3 = !DILocation(line: 4, column: 9, scope: !1)
!4 = !DILocation(line: 7, scope: !2)
!5 = !DIFile(filename: "vector", directory: "/")
"""
    store = "  store i32 4, ptr @d500_line\n"
    assert lined(ir, Path("own.cpp")) == ir.replace("  %1 = invoke", f"{store}  %1 = invoke")


WRONG = """
template <class T> __attribute__((noinline)) T square(T x) {
  return x * x; }
static double square_augmented(double x) { return x * x; }
static double square_gradient(double x, double seed) { return x * seed; }
void *__enzyme_register_gradient_square[] __attribute__((used)) = {
  (void *)square<double>, (void *)square_augmented, (void *)square_gradient};
"""


@pytest.mark.long
@needs_engine
def test_the_line_that_makes_a_gradient_wrong_is_named() -> None:
    """The gradient of one function has half its size, which others use, too."""
    body = "for (std::size_t i = 0; i < n; ++i) {\nT s = std::sin(x[i]);\nT q = square(x[i]);\ny[i] = q * s; }"
    described = [d5.TensorDescriptor("float64", ("N",))]
    with pytest.raises(EnzymeError) as caught:
        d5.compile_custom_cppop_inline(
            "blamed", elementwise("blamed", "\n" + body, WRONG), described, described, gradient="enzyme"
        )
    assert re.findall(r"^line \d+: (.*)$", str(caught.value), re.MULTILINE) == ["return x * x; }"]
