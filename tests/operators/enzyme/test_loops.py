"""Loops are turned only where no iteration can tell: on LLVM's text form, one reason to refuse after the other."""

from __future__ import annotations

import pytest

from deep500.operators.enzyme.ir import compared_numbers, split, typed_copies
from deep500.operators.enzyme.loops import PROMISE, guard_zeros, once, spare_gradients, turn_loops

LOOP = """define internal fastcc void @d500_reverse(ptr noundef %op, ptr noalias noundef %x, ptr noalias noundef %dx, ptr noalias %dy, i64 %n) {
entry:
  br label %down

down:                                             ; preds = %down, %entry
  %in = phi i64 [ %iv, %down ], [ %n, %entry ]
  %iv = add i64 %in, -1
  %pdy = getelementptr inbounds double, ptr %dy, i64 %iv
  %g = load double, ptr %pdy, align 8, !tbaa !1
  store double 0.000000e+00, ptr %pdy, align 8, !tbaa !1
  %px = getelementptr inbounds nuw double, ptr %x, i64 %iv
  %v = load double, ptr %px, align 8
  %e = tail call double @llvm.exp.f64(double %v)
  %m = fmul double %g, %e
  %pdx = getelementptr inbounds double, ptr %dx, i64 %iv
  %old = load double, ptr %pdx, align 8
  %new = fadd double %old, %m
  store double %new, ptr %pdx, align 8
  %done = icmp eq i64 %iv, 0
  br i1 %done, label %exit, label %down

exit:                                             ; preds = %down
  ret void
}
"""  # noqa: E501


def test_an_elementwise_loop_is_turned() -> None:
    """From 0 up to n, also within another one."""
    turned = turn_loops(LOOP)
    assert "%iv = phi i64 [ %iv.up, %down ], [ 0, %entry ]" in turned and "add i64 %in, -1" not in turned
    assert "%iv.up = add nuw i64 %iv, 1\n  %done = icmp eq i64 %iv.up, %n" in turned
    assert turned.count("store ") == 2
    around = LOOP.replace("  ret void\n", "  br i1 %more, label %entry, label %end\n\nend:\n  ret void\n")
    assert "%iv.up" in turn_loops(around)


# fmt: off
REASONS = {
    "a pointer that may be another's": ("ptr noalias noundef %dx", "ptr noundef %dx"),
    "a neighbour": ("%px = getelementptr inbounds nuw double, ptr %x, i64 %iv",
                    "%px = getelementptr inbounds nuw double, ptr %x, i64 %in"),
    "a sum": ("  %iv = add i64 %in, -1\n",
              "  %s = phi double [ 0.0, %entry ], [ %new, %down ]\n  %iv = add i64 %in, -1\n"),
    "a call": ("@llvm.exp.f64(", "@unknown("),
    "a store to one place": ("ptr %pdx, align 8\n  %done", "ptr %dx, align 8\n  %done"),
    "two widths": ("%pdx = getelementptr inbounds double,", "%pdx = getelementptr inbounds float,"),
    "another step": ("%iv = add i64 %in, -1", "%iv = add i64 %in, -2"),
    "volatile": ("%v = load double", "%v = load volatile double"),
}
# fmt: on


@pytest.mark.parametrize("reason", REASONS)
def test_other_loops_are_left_alone(reason: str) -> None:
    """Whatever an iteration could tell."""
    old, new = REASONS[reason]
    assert LOOP.count(old) == 1
    text = LOOP.replace(old, new)
    assert turn_loops(text) == text


PROMISED = f"@{PROMISE} = hidden global i32 1, align 4\n" + LOOP.replace("ptr noalias %dy", "ptr noalias align 8 %dy")


def test_a_promise_spares_the_gradients_of_outputs() -> None:
    """Stores of zero go, also behind several offsets, and the wrapper is told."""
    deep = PROMISED.replace("ptr %dy, i64 %iv", "ptr %row, i64 %iv").replace(
        "entry:\n", "entry:\n  %row = getelementptr inbounds double, ptr %dy, i64 %n\n"
    )
    for text in (PROMISED, deep):
        spared = spare_gradients(text)
        assert "global i32 0, align 4" in spared and "store double 0.0" not in spared and spared.count("store ") == 1
        assert spare_gradients(text.replace("global i32 1", "global i32 2")).count("store ") == 2


@pytest.mark.parametrize(
    "use",
    [
        "  call void @cblas_dlascl(ptr %pdy)\n",
        "  store double %m, ptr %pdy, align 8\n",
        "  store ptr %pdy, ptr %x, align 8\n",
        "  %other = select i1 %done, ptr %pdy, ptr %x\n",
        "  %other = getelementptr double, ptr %dy, i32 1\n  store double 0.0, ptr %other, align 8\n",
    ],
)
def test_a_gradient_of_which_more_is_made_is_not_spared(use: str) -> None:
    """Then the wrapper must go on to copy it."""
    text = PROMISED.replace("  %done =", f"{use}  %done =")
    assert use in text and spare_gradients(text) == text


def test_exports_get_modules_of_their_own() -> None:
    """What is not exported by a module is internal there; variables are defined once."""
    ir = (
        "@table = dso_local global [2 x double] [double 1.0, double 2.0], align 8\n"
        '@llvm.compiler.used = appending global [2 x ptr] [ptr @one, ptr @two], section "x"\n'
        "define dso_local void @one() #0 {\n  ret void\n}\n"
        "define dso_local void @two() {\n  ret void\n}\n"
    )
    rest, two = split(ir, ["two", "three"]).values()
    assert "define dso_local void @one()" in rest and "define internal void @two()" in rest
    assert "[1 x ptr] [ptr @one]" in rest and "@table = dso_local global [2 x double] [" in rest
    assert "define internal void @one()" in two and "define dso_local void @two()" in two
    assert "@table = external global [2 x double]\n" in two and "[1 x ptr] [ptr @two]" in two
    assert split(ir, ["three"]) == {"rest": ir}


def test_what_a_vector_s_own_product_adds_twice_is_added_once() -> None:
    """Twice the same call is one of the double; two different ones stay."""
    call = "  tail call void @cblas_saxpy(i32 %n, float %{0}, ptr %x, i32 1, ptr %y, i32 1)\n"
    assert once(call.format(3) * 2) == "  %d5.twice.0 = fmul float %3, 2.000000e+00\n" + call.format("d5.twice.0")
    different = call.format(3) + call.format(4)
    assert once(different) == different


def test_divisions_of_element_wise_gradients_are_guarded_in_every_block() -> None:
    """Such a function has one loop, whose rounds run forwards, then backwards; others have blocks of either kind."""
    text = "define void @d500_reverse{}(double %0) {{\n1:\n  %2 = fdiv double %1, %0\n}}"
    assert "select i1 %d5.first.0, double 0.0" in guard_zeros(text.format("_each"))
    assert guard_zeros(text.format("")) == text.format("")


def test_products_with_what_is_infinite_are_zero_where_the_other_factor_is() -> None:
    """As of exp(-x) in 1 / (1 + exp(-x)); what is computed once more of forward, and constants, stay as they are."""
    body = "  {0}%2 = fmul double %1, {1}\n"
    text = "define void @d500_reverse() {{\ninvert1:\n{0}}}".format
    guarded = guard_zeros(text(body.format("", "%0")))
    assert "%d5.second.0 = fcmp oeq double %0, 0.0" in guarded and "%2 = select i1 %d5.either.0, double 0.0" in guarded
    for same in (body.format("", "2.0"), body.format("", "%0").replace("%2 =", "%_unwrap2 =")):
        assert guard_zeros(text(same)) == text(same)


def test_numbers_that_only_functions_of_our_headers_compare_with_are_not_tried() -> None:
    compared = "define void @{0}() {{\n  %1 = fcmp ogt double %x, {1}\n  ret void\n}}\n".format
    call = "define void @g() {\n  call void @__enzyme_autodiff(ptr @f)\n  ret void\n}\n"
    functions = compared("f", "8.0") + compared("h", "9.0") + compared("d500_detail_exp", "700.0")
    assert compared_numbers(call + functions)[1] == [8.0, 9.0]


@pytest.mark.parametrize(
    ("kind", "access", "typed"),
    [
        ('%"own \\22array\\22"', "store double %v, ptr %4", "double"),
        ("[3 x [4 x float]]", "%5 = load float, ptr %4", "float"),
        ("%mixed", "store double %v, ptr %4", ""),
        ("{ double }", "%5 = load i64, ptr %4", ""),  # a union
        ("i64", "%5 = load double, ptr %4", ""),
        ("double, i64 %n", "%5 = load double, ptr %4", ""),
    ],
)
def test_copies_of_local_arrays_have_the_type_of_all_that_is_in_them(kind: str, access: str, typed: str) -> None:
    """std::array, and what has members of other types, or is read as such."""
    fill = "  call void @llvm.memset.p0.i64(ptr align 8 %1, i8 0, i64 32, i1 false)"
    copy = "  call void @llvm.memcpy.p0.p0.i64(ptr align 8 %2, ptr align 8 %1, i64 32, i1 false), !dbg !7"
    ir = f"""%"own \\22array\\22" = type {{ %own.part }}
%own.part = type {{ [4 x double] }}
%mixed = type {{ double, i32 }}
define void @g() {{
  call void @__enzyme_autodiff(ptr @d500_primal)
}}
define void @d500_primal(ptr %0) {{
  call void @f()
}}
define void @f() {{
  %1 = alloca {kind}, align 8
  %2 = call ptr @malloc(i64 32)
  %3 = getelementptr inbounds i8, ptr %1, i64 8
  %4 = getelementptr double, ptr %3, i64 %n
  {access}, align 8
{fill}
{copy}, !tbaa.struct !39
}}
"""
    changed = typed_copies(ir, "static void d500_primal(Op *op, const double *x0) {")
    assert (f"{copy}, !tbaa !9000" in changed) == bool(typed) and (f'!{{!"{typed}", ' in changed) == bool(typed)
    assert (f"{fill}, !tbaa !9000" in changed) == bool(typed) and (typed or changed == ir)
