"""Numbers that loops hand on and use in each round have the gradients of the rounds; other loops are left alone."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

from deep500.operators.enzyme.pipeline import BuildOptions, compile_library
from deep500.operators.enzyme.rounds import round_by_round
from tests.operators.enzyme.test_battery import EIGHTH_ORDER
from tests.operators.enzyme_units import ENTRY, HEAD, needs_engine

EACH = "for (long i = 0; i < n; ++i) "
# fmt: off
BODIES = {
    "largest": f"double m = x[0]; {EACH}{{ m = x[i] > m ? x[i] : m; y[i] = m * m; }}",
    "largest_by_pointer": f"const double *m = x; {EACH}{{ if (x[i] > *m) m = x + i; y[i] = *m * *m; }}",
    "least_of_a_product": f"double m = x[0]; {EACH}{{ double v = x[i] * c[i]; m = v < m ? v : m; y[i] = m * x[i]; }}",
    "last_that_is_large": f"double v = x[0]; {EACH}{{ if (x[i] > c[i]) v = x[i] * x[i]; y[i] = v * x[i]; }}",
    "quotient": f"double q = c[0]; {EACH}{{ q /= x[i]; y[i] = q * q; }}",
    "quotient_of_an_input": f"double q = x[0] * x[0]; {EACH}{{ q /= x[i]; y[i] = q * x[i]; }}",
    "largest_behind_the_loop": f"double m = x[0]; {EACH}m = x[i] > m ? x[i] : m; {EACH}y[i] = m * x[i];",
    "quotient_behind_the_loop": f"double q = x[0]; {EACH}q /= x[i]; {EACH}y[i] = q * x[i];",
    "in_an_inner_loop":
        f"double m, s = 0; {EACH}{{ m = x[i]; for (long j = 0; j <= i; ++j) {{ double v = x[j] * x[i];"
        " m = v > m ? v : m; s += m; } y[i] = s * m; }",
    "behind_an_inner_loop":
        f"{EACH}{{ double m = x[i]; for (long j = 0; j < n; ++j) {{ double v = x[j] * x[i]; m = v > m ? v : m; }}"
        " y[i] = m * m; }",
    "pointer_in_a_struct":
        f"struct {{ const double *at; long i; }} m{{x, 0}}; {EACH}{{ if (x[i] > *m.at) {{ m.at = x + i; m.i = i; }}"
        " y[i] = *m.at * c[m.i]; }",
    "pointers_in_an_array":
        f"const double *m[2] = {{x, x}}; {EACH}{{ if (x[i] > *m[i % 2]) m[i % 2] = x + i; y[i] = *m[0] * *m[1]; }}",
    "pointer_into_two_arrays":
        f"double t[16]; {EACH}t[i] = x[i] * x[i]; const double *m = x; {EACH}{{"
        " const double *p = i % 3 ? x + i : t + i; if (*p > *m) m = p; y[i] = *m * x[i]; }",
    "pointer_that_goes_on":
        f"const double *p = x; {EACH}{{ y[i] = *p * x[i]; if (p + 1 < x + n && p[1] > c[i]) ++p; }}",
    "pointer_to_a_pointer":
        f"const double *a = x, *b = x; {EACH}{{ const double **m = x[i] > c[i] ? &a : &b; *m = x + i;"
        " y[i] = *a * *b; }",
}
# fmt: on


@needs_engine
def test_gradients_are_those_of_what_each_round_uses(tmp_path: Path) -> None:
    """Without a check of the build, at 1, 2 and 9 numbers that lie apart; against differences of the eighth order."""
    declared, mark, entry = ENTRY.partition('extern "C"')
    value = f"{mark}{HEAD.removeprefix('static')} {{ f(x, c, y, n); }}".replace("f(const", "value(const") + "\n"
    text = declared
    for name, body in BODIES.items():
        one = f"{HEAD} {{\n{body}\n}}\n{mark}{entry}{value}"
        text += re.sub(r"\b(f|gradient|value)\b", rf"\1_{name}", one)
    unit = tmp_path / "unit.cpp"
    unit.write_text(text)
    compile_library(unit, tmp_path / "unit.so", [], BuildOptions())
    library = ctypes.CDLL(str(tmp_path / "unit.so"))

    def call(name: str, *arrays: np.ndarray) -> None:
        library[name](*[ctypes.c_void_p(a.ctypes.data) for a in arrays], ctypes.c_long(arrays[0].size))

    for name in BODIES:
        for n in (1, 2, 9):
            rng = np.random.default_rng(n)
            x, c = rng.permutation(np.linspace(0.6, 1.7, n)), rng.permutation(np.linspace(0.65, 1.65, n))
            dy, y, dx, used_up = rng.standard_normal(n), np.zeros(n), np.zeros(n), np.zeros(n)
            expected = np.zeros(n)
            for i, e in enumerate(np.eye(n)):
                for k, weight in EIGHTH_ORDER:
                    for side in (1, -1):
                        call(f"value_{name}", x + side * k * 1e-3 * e, c, y)
                        expected[i] += side * weight * dy @ y / 1e-3
            used_up[:] = dy
            call(f"gradient_{name}", x, dx, c, y, used_up)
            np.testing.assert_allclose(dx, expected, 1e-9, 1e-9 * np.abs(expected).max(), err_msg=f"{name} {n}")


LOOP = """define void @f(ptr %x, double %first) {
  br label %"up here"

"up here":                                        ; preds = %9, %0
  %"so far" = phi fast double [ %first, %0 ], [ %m.2, %9 ], !dbg !4
  %i = phi i64 [ 0, %0 ], [ %j, %9 ]
  %p = getelementptr double, ptr %x, i64 %i
  %v = load double, ptr %p
  %c = fcmp ogt double %v, %"so far"
  %m.2 = select fast i1 %c, double %v, double %"so far", !dbg !5
  br i1 %c, label %8, label %9

8:                                                ; preds = %"up here"
  store double %m.2, ptr %p
  br label %9

9:                                                ; preds = %8, %"up here"
  %j = add i64 %i, 1
  switch i64 %j, label %"up here" [
    i64 33, label %end
  ]

end:                                              ; preds = %9
  %last = phi double [ %m.2, %9 ]
  store double %m.2, ptr %x
  ret void
}"""
STORE = "  store double %m.2, ptr %p\n"


def test_a_call_stands_between_a_choice_and_the_next_round() -> None:
    """Names in quotes, flags, debug information, a jump of several lines; the phi behind the loop stays."""
    changed = round_by_round(LOOP)
    assert '  %"so far" = phi fast double [ %first, %0 ], [ %d5.next.0, %9 ], !dbg !4\n' in changed
    assert "  %d5.next.0 = call double @d5_next_double(double %m.2)\n  switch i64 %j" in changed
    assert "  %last = phi double [ %m.2, %9 ]\n" in changed and changed.count("define weak hidden double @d5_next") == 1


# fmt: off
OTHERS = {  # what is used in the loop, or how the number is made -> how many calls there are then
    "nothing": (STORE, "", 0),
    "compared": (STORE, "  %q = fcmp olt double %m.2, 1.0\n", 0),
    "another name": (STORE, "  store double %m.20, ptr %p\n", 0),
    "chosen the other way": ('double %v, double %"so far"', 'double %"so far", double %v', 1),
    "divided": ('select fast i1 %c, double %v, double %"so far"', 'fdiv arcp double %"so far", %v', 1),
    "a divisor": ('select fast i1 %c, double %v, double %"so far"', 'fdiv arcp double %v, %"so far"', 0),
    "added": ('select fast i1 %c, double %v, double %"so far"', 'fadd double %"so far", %v', 0),
    "chosen from others": ('double %v, double %"so far"', "double %v, double 0.0", 0),
    "by a second phi": (STORE, "  %two = phi double [ %m.2, %\"up here\" ]\n", 1),
    "by a call": (STORE, "  invoke void @g(double %m.2)\n          to label %9 unwind label %end\n", 1),
}
# fmt: on


@pytest.mark.parametrize("name", OTHERS)
def test_the_call_is_there_only_where_the_loop_uses_what_it_hands_on(name: str) -> None:
    old, new, calls = OTHERS[name]
    assert LOOP.count(old) == 1
    assert round_by_round(LOOP.replace(old, new)).count("call double @d5_next_double") == calls


def test_each_type_has_its_function_and_other_text_is_left_alone() -> None:
    loops = LOOP + "\n" + LOOP.replace("@f(", '@"g h"(').replace("double", "float") + "\n!4 = !{}\n"
    changed = round_by_round(loops)
    assert "call float @d5_next_float(float %m.2)" in changed and "%d5.next.1" in changed
    assert changed.count("define weak") == 2
    plain = loops.replace(STORE, "").replace(STORE.replace("double", "float"), "")
    assert round_by_round(plain) == plain
