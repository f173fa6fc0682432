"""Memory is moved by way of a second place wherever Enzyme would derive it, and a free that is of either is seen."""

from __future__ import annotations

import re

import pytest

from deep500.operators.enzyme.memory import freed_by_choice, kinds_of_memory, may_be_chosen, moved_apart

IR = """define void @g() {
  call void @__enzyme_autodiff(ptr @"a name")
}
define void @"a name"(ptr %0, ptr %"to here", i64 %n) {
  tail call void @llvm.memmove.p0.p0.i64(ptr nonnull align 8 %0, ptr align 1 %"to here", i64 24, i1 false) #49, !dbg !4
  call void @llvm.memmove.p0.p0.i64(ptr %0, ptr %"to here", i64 %n, i1 false), !tbaa !7, !noalias !3
  call void @llvm.memmove.p0.p0.i64(ptr %0, ptr %"to here", i64 %n, i1 true)
  call void @llvm.memcpy.p0.p0.i64(ptr %0, ptr %"to here", i64 %n, i1 false)
  ret void
}
define void @beside(ptr %0, ptr %1, i64 %2) {
  call void @llvm.memmove.p0.p0.i64(ptr %0, ptr %1, i64 %2, i1 false)
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @free(ptr captures(none)) #3"""


def test_moves_are_two_copies_with_the_types_of_what_is_moved() -> None:
    """Quoted names, debug information and tags; volatile moves, copies and what Enzyme does not see stay."""
    changed = moved_apart(IR)
    assert '  call void @moved_apart(ptr %0, ptr %"to here", i64 24), !dbg !4\n' in changed
    assert '  call void @moved_apart.7(ptr %0, ptr %"to here", i64 %n)\n' in changed
    assert changed.count("i1 false), !tbaa !7\n") == 2 and changed.count("optnone") == 2
    assert changed.count("@llvm.memmove") == 2 and "i64 %n, i1 true)" in changed
    assert changed.count("declare ptr @malloc(i64)\n") == 1 and len(re.findall(r"^declare .*@free", changed, re.M)) == 1


def test_a_module_without_moves_stays() -> None:
    """Also one where only others move."""
    beside = re.sub(r"^ .*memmove.*to here.*\n", "", IR, flags=re.M)
    assert beside != IR and moved_apart(beside) == beside


CALL = "define void @g() {\n  call void @__enzyme_autodiff(ptr @f)\n}\n"
FREED = """define void @f(i64 %0) {
  %1 = tail call noalias ptr @malloc(i64 0) #3
  %"a b" = invoke noalias noundef nonnull ptr @_Znam(i64 noundef %0) #3
          to label %2 unwind label %9

2:
  %3 = phi ptr [ null, %5 ], [ %"a b", %1 ]
  %4 = select i1 %c, ptr %3, ptr %1
  %6 = freeze ptr %4
  tail call void @_ZdaPv(ptr noundef nonnull %6) #4
  ret void
}
"""
# fmt: off
CASES = {  # what is changed in the text -> whether Enzyme is to fill memory once
    "two places": (FREED, "", "", True),
    "none or one": (FREED, "ptr %3, ptr %1", "ptr %3, ptr null", False),
    "an argument": (FREED, "ptr %3, ptr %1", "ptr %3, ptr %0", True),
    "not allocated here": (FREED, "@_Znam(", "@other(", True),
    "nothing allocated here": (FREED.replace("@malloc(", "@other("), "@_Znam(", "@other(", False),
    "not given back": (FREED, "@_ZdaPv(", "@other(", False),
    "one by one": (FREED, "nonnull %6", "nonnull %1", False),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_a_pointer_to_one_of_several_places_is_followed_to_them(name: str) -> None:
    """Chains of choices and quoted names; what is not differentiated counts for nothing."""
    text, old, new, seen = CASES[name]
    assert not old or text.count(old) == 1
    assert freed_by_choice(CALL + (text.replace(old, new) if old else text)) == seen and not freed_by_choice(text)


READ = """define void @f(i64 %0) {
  %1 = tail call noalias ptr @malloc(i64 %0) #3
  %"a b" = invoke noalias noundef nonnull ptr @_Znam(i64 noundef %0) #3
          to label %2 unwind label %9

2:
  %3 = getelementptr inbounds nuw double, ptr %"a b", i64 1
  %4 = getelementptr double, ptr %1, i64 %0
  %5 = load double, ptr %3, align 8, !tbaa !7
  %6 = call double @norm(i64 %0, ptr noundef nonnull dereferenceable(8) %4)
  %7 = phi ptr [ null, %5 ], [ %"a b", %1 ]
  %8 = select i1 %c, ptr %7, ptr %1
  ret void
}
"""


@pytest.mark.parametrize(
    ("old", "new", "malloc", "operator"),
    [
        ("", "", False, False),
        ("%5 = load double, ptr %3", "%5 = load double, ptr %8", False, True),  # read by what is chosen alone
        ("@norm(i64 %0, ptr noundef nonnull dereferenceable(8) %4)", "@norm(i64 %0)", True, False),
        ("%6 = call double @norm(", "call void @llvm.lifetime.end.p0(", True, False),
        ("ptr %7, ptr %1", "ptr %7, ptr null", True, False),
        ("define void @f", "define void @other", True, True),
    ],
)
def test_new_memory_that_is_read_and_for_which_a_pointer_is_chosen_may_be_it(
    old: str, new: str, malloc: bool, operator: bool
) -> None:
    """Otherwise it stays new; ``malloc`` is always, so that another function stands for it."""
    changed = may_be_chosen(CALL + READ.replace(old, new))
    assert ("noalias ptr @malloc(" in changed) == malloc == ("declare noundef nonnull ptr @_Znwm" not in changed)
    assert ("invoke noalias noundef nonnull ptr @_Znam(" in changed) == operator
    assert may_be_chosen(changed) == changed


USED = """define void @f(ptr %0, i64 %n) {
  %1 = call noalias ptr @_Znwm(i64 %n)
  call void @llvm.memmove.p0.p0.i64(ptr nonnull align 8 %1, ptr align 8 %"a b", i64 %n, i1 false)
  %2 = phi ptr [ %1, %5 ], [ null, %6 ]
  %3 = getelementptr inbounds nuw i8, ptr %2, i64 %n
  %4 = getelementptr float, ptr %3, i64 1
  store float 0.000000e+00, ptr %4, align 4
  ret void
}
"""


@pytest.mark.parametrize(
    ("old", "new", "typed"),
    [
        ("", "", True),
        ("  ret void", "  %9 = load i32, ptr %1, align 4\n  ret void", False),
        ("  ret void", "  store ptr %0, ptr %2, align 4\n  ret void", False),
        ("i8, ptr %2, i64 %n", "i8, ptr %2, i64 4", False),  # a member, or an element: who knows
        ("i8, ptr %2, i64 %n", "%struct.own, ptr %2, i64 0, i32 1", False),
        ("store float 0.000000e+00", "store i32 0", False),
        ("[ null, %6 ]", "[ %0, %6 ]\n  %8 = load ptr, ptr %0", False),
    ],
)
def test_what_memory_is_used_for_is_known_where_nothing_else_is_done_with_it(old: str, new: str, typed: bool) -> None:
    """By pointers that are chosen, stepped, and copied from one to the other."""
    kinds = kinds_of_memory(USED.replace(old, new))
    assert {"%1", '%"a b"', "%2", "%3", "%4"} <= set(kinds) if typed else not kinds
    assert not typed or set(kinds.values()) == {"float"}
