"""Nests of loops that are left in several places ask a function whether to; all else of the text stays."""

from __future__ import annotations

import pytest

from deep500.operators.enzyme.exits import exits_kept

CALL = "define void @g() {\n  call void @__enzyme_autodiff(ptr @f)\n}\n"
NEST = """define void @f(i64 %0) {
  br label %"the loop"

"the loop":                                       ; preds = %5, %0
  br label %3

3:                                                ; preds = %3, %"the loop"
  br i1 %c, label %3, label %4

4:                                                ; preds = %3
  br i1 %"a b", label %9, label %5

5:                                                ; preds = %4
  switch i64 %j, label %"the loop" [
    i64 33, label %9
  ]

9:                                                ; preds = %5, %4
  ret void
}
"""
ASKED = """  %d5.exit.0 = call i1 @d5_asked_i1(i1 %"a b")
  br i1 %d5.exit.0, label %9, label %5"""
SWITCHED = """  %d5.exit.1 = call i64 @d5_asked_i64(i64 %j)
  switch i64 %d5.exit.1, label %"the loop" ["""
# fmt: off
OTHERS = {  # what is changed in the text, so that nothing is asked
    "left once": ("label %9, label %5", "label %5, label %5"),
    "left by an error": ("  ret void", "  unreachable"),
    "nothing inside": ("label %3, label %4", "label %4, label %4"),
    "no loop": ('i64 %j, label %"the loop"', "i64 %j, label %9"),
    "not differentiated": ("@f(", "@other("),
}
# fmt: on


def test_conditions_of_exits_go_through_a_function() -> None:
    """Quoted names, jumps of several lines."""
    changed = exits_kept(CALL + NEST)
    assert ASKED in changed and SWITCHED in changed and changed.count(" = call i") == 2
    assert changed.count("define weak hidden i") == 2 and "  br i1 %c, label %3, label %4" in changed


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    old, new = OTHERS[name]
    assert NEST.count(old) == 1
    text = CALL + NEST.replace(old, new)
    assert exits_kept(text) == text


def test_a_loop_that_is_left_from_two_depths_is_left_in_several_places() -> None:
    """A goto from the inner loop out of both, beside the end of the outer one."""
    jump = "switch i64 %k, label %3 [\n    i64 1, label %4\n    i64 2, label %9\n  ]"
    text = NEST.replace("br i1 %c, label %3, label %4", jump).replace("label %9, label %5", "label %5, label %5")
    changed = exits_kept(CALL + text)
    assert "  switch i64 %d5.exit.0, label %3 [" in changed and SWITCHED in changed and "@d5_asked_i1" not in changed
