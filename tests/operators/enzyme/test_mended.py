"""Programs whose gradient was wrong without a message: each is right now, or refused by its line."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import CompileError
from deep500.operators.enzyme.members import kept_in_members, mixed_pointers
from tests.operators.enzyme.test_battery import EIGHTH_ORDER
from tests.operators.enzyme_mended import HEADERS, MENDED, Mended
from tests.operators.enzyme_sources import elementwise
from tests.operators.enzyme_units import needs_engine

STEP = 1e-2
CASES = [
    pytest.param(
        row, check, id=f"{row.name}{'' if check else ' unchecked'}", marks=[] if row.quick else pytest.mark.long
    )
    for row in MENDED
    for check in row.checks
]


@needs_engine
@pytest.mark.parametrize(("row", "check"), CASES)
def test_programs_are_right_or_refused_by_their_line(row: Mended, check: bool) -> None:
    """Against differences of the eighth order, at 1, 5 and 33 elements; forward mode against the gradient."""
    source = elementwise(row.name, "\n" + row.body, HEADERS + row.before, row.members)
    described = [d5.TensorDescriptor("float64", ("N",))]

    def build() -> d5.operators.cpp.CompiledOp:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of slopes at exactly 0
            return d5.compile_custom_cppop_inline(
                row.name, source, described, described, gradient="enzyme", check=check, openmp=row.openmp
            )

    if row.refused:
        with pytest.raises(CompileError) as caught:
            build()
        assert re.search(row.refused, str(caught.value)), str(caught.value)
        return
    op = build()
    for n in (1, 5, 33):
        random = np.random.default_rng(n)
        x, dy = random.permutation(np.linspace(-1.45, 1.55, n)), random.standard_normal(n)  # steps change no order
        expected = np.array(
            [
                sum(c * (dy * (op(x + STEP * k * e) - op(x - STEP * k * e))).sum() for k, c in EIGHTH_ORDER)
                for e in np.eye(n)
            ]
        )
        (got,) = op.run_backward([dy], [x], [op(x)])
        np.testing.assert_allclose(got, expected / STEP, rtol=1e-10, atol=1e-10)
        if op.signature["jvp"]:
            v = random.standard_normal(n)
            (moved,) = op.jvp([x], [v])[1]
            np.testing.assert_allclose((dy * moved).sum(), (got * v).sum(), rtol=1e-9, atol=1e-9)


def test_an_object_in_a_closure_is_followed_to_where_it_is_used() -> None:
    """Captured beside another pointer, at an offset of its own: only what goes through the object is kept in it."""
    ir = """
@table = internal constant { [1 x ptr] } { [1 x ptr] [ptr @invoked] }
define void @g() {
  call void @__enzyme_autodiff(ptr @d500_primal)
}
define void @d500_primal(ptr %0, ptr %1) {
  %3 = alloca [24 x i8]
  store ptr @table, ptr %3
  %4 = getelementptr inbounds i8, ptr %3, i64 8
  %5 = ptrtoint ptr %0 to i64
  store i64 %5, ptr %4
  %6 = getelementptr inbounds i8, ptr %3, i64 16
  store ptr %1, ptr %6
  %7 = getelementptr inbounds i8, ptr %0, i64 24
  %8 = load double, ptr %7
}
define void @invoked(ptr %0, ptr %1) {
  %3 = getelementptr inbounds i8, ptr %0, i64 OFFSET
  %4 = load ptr, ptr %3
  %5 = load double, ptr %1
  %6 = getelementptr inbounds i8, ptr %4, i64 24
  store double %5, ptr %6
}
"""
    assert kept_in_members(ir.replace("OFFSET", "8")) == ["  store double %5, ptr %6"]
    assert kept_in_members(ir.replace("OFFSET", "16")) == []


def test_a_pointer_to_an_input_in_the_object_is_as_good_as_what_it_points_to() -> None:
    """If what is there is read through it; a choice or a step beside is another pointer to it."""
    ir = """
define void @g() {
  call void @__enzyme_autodiff(ptr @d500_primal)
}
define void @d500_primal(ptr %0, ptr %1) {
  %2 = getelementptr i8, ptr %0, i64 8
  %3 = getelementptr double, ptr %1, i64 1
  %4 = select i1 %c, ptr %3, ptr null
  store ptr %4, ptr %2
  call void @other(ptr %0)
}
define void @other(ptr %0) {
  %1 = getelementptr i8, ptr %0, i64 8
  %2 = load ptr, ptr %1
  %3 = load double, ptr %2
}
"""
    assert kept_in_members(ir) == ["  store ptr %4, ptr %2"]
    for old, new in (("load double, ptr %2", "load double, ptr @table"), ("ptr %3, ptr null", "ptr @table, ptr null")):
        assert ir.count(old) == 1 and kept_in_members(ir.replace(old, new)) == []


MIXED = {
    "chosen": ("{ const T *p = i % 2 ? x + i : w + i; y[i] = *p * *p; }", r"line \d+: for "),
    "kept": ("y[i] = rows[(i * i + i / 2) % 2][i] * x[i];", r"line \d+: const T \*rows"),
    "read": ("{ const T *p = i % 2 ? w : w + 1; y[i] = x[i] * p[i / 2]; }", ""),
}


@needs_engine
@pytest.mark.parametrize("name", MIXED)
def test_pointers_to_inactive_inputs_are_to_nothing_else(name: str) -> None:
    """Without the check: gradients would be added to the input itself, with the right numbers in the others."""
    statement, line = MIXED[name]
    body = f"\nconst T *rows[2] = {{x, w}};\nfor (std::size_t i = 0; i < n; ++i) {statement}"
    source = elementwise(f"mixed_{name}", body, HEADERS, "", "const T *x, const T *w, T *y")
    described = [d5.TensorDescriptor("float64", ("N",))]

    def build() -> d5.operators.cpp.CompiledOp:
        return d5.compile_custom_cppop_inline(
            f"mixed_{name}", source, described * 2, described, gradient="enzyme", check=False, inactive=[1]
        )

    if line:
        with pytest.raises(CompileError, match=rf"a pointer that may be to an inactive input(.|\n)*{line}"):
            build()
        return
    op, x, w = build(), np.linspace(1.0, 2.0, 5), np.linspace(0.5, 0.7, 5)
    got = op.run_backward([np.ones(5)], [x, w], [op(x, w)])[0]
    np.testing.assert_allclose(got, [w[1 - i % 2 + i // 2] for i in range(5)], rtol=1e-14)


def test_a_pointer_to_an_inactive_input_is_followed_through_calls_to_where_it_is_mixed() -> None:
    """By the parameter's number in each function that is differentiated; a choice among its own elements is none."""
    wrapper = (
        "static void d500_part(Op *op, std::size_t number, const T *__restrict__ x0, const int64_t *__restrict__ x1)"
        "__enzyme_autodiff<void>((void *)d500_part<Op>, D500_ZEROS enzyme_const, op, enzyme_const, part, "
        "enzyme_const, x0, enzyme_const, x1, enzyme_dup, x2, dx2);"
    )
    ir = """
define void @g() {
  call void @__enzyme_autodiff(ptr @d500_part)
}
define void @d500_part(ptr %0, i64 %1, ptr %2, ptr %3, ptr %4) {
  %5 = getelementptr double, ptr %2, i64 %1
  call void @inner(ptr %4, ptr %5)
}
define void @inner(ptr %0, ptr %1) {
  br label %2
2:
  %3 = phi ptr [ %1, %0 ], [ %4, %2 ]
  %4 = getelementptr double, ptr %3, i64 1
  br label %2
}
"""
    assert mixed_pointers(ir, wrapper) == []
    assert mixed_pointers(ir.replace("[ %4, %2 ]", "[ %0, %2 ]"), wrapper) == ["  %3 = phi ptr [ %1, %0 ], [ %0, %2 ]"]
    assert mixed_pointers(ir.replace("ptr %2, i64 %1", "ptr %3, i64 %1").replace("[ %4,", "[ %0,"), wrapper) == []
    kept = ir.replace("  br label %2\n}", "  store ptr %3, ptr %0\n}")
    assert mixed_pointers(kept, wrapper) == ["  store ptr %3, ptr %0"]
