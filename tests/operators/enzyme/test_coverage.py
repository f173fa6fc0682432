"""The count of blocks: which lines of forward the check of a build ran, and that it goes where they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import EnzymeError
from deep500.operators.enzyme.coverage import counted
from deep500.operators.enzyme.probe import WIDER, EnzymeProbe
from tests.operators.enzyme_sources import WRONG_SQUARE, elementwise
from tests.operators.enzyme_units import needs_engine

IR = """
@table = constant [1 x ptr] [ptr @"quo\\22ted"]
define i32 @d500_forward(ptr %0) personality ptr @p {
  %2 = load ptr, ptr @table, !dbg !6
  invoke void @helper()
          to label %3 unwind label %handler, !dbg !6

3:                                                ; preds = %1
  %4 = phi i32 [ 0, %1 ]
  store i32 %4, ptr @table, !dbg !7
  %5 = add i32 %4, 1, !dbg !6
  br label %7, !dbg !8

7:                                                ; preds = %3
  store i32 1, ptr @table
  ret i32 %5, !dbg !8

handler:                                          ; preds = %1
  %6 = landingpad { ptr, i32 }
          cleanup, !dbg !7
  ret i32 1
}
define void @helper() {
  unreachable, !dbg !7
}
define void @"quo\\22ted"() {
  call void @helper(), !dbg !8
  ret void
}
define void @apart() {
  ret void, !dbg !8
}
!3 = !DIFile(filename: "own.cpp", directory: "/")
!4 = distinct !DISubprogram(name: "f", file: !3)
!5 = distinct !DISubprogram(name: "g", file: !9)
!6 = !DILocation(line: 4, column: 9, scope: !4)
!7 = !DILocation(line: 7, scope: !5, inlinedAt: !10)
!8 = !DILocation(line: 2, scope: !4)
!9 = !DIFile(filename: "vector", directory: "/")
!10 = distinct !DILocation(line: 5, scope: !4)
"""


def test_blocks_of_what_forward_reaches_are_counted_without_those_of_exceptions() -> None:
    """By name and through tables, after what must stand first; a line of a header is that of the user who calls it.

    A block has all its lines; one that neither stores nor calls, or for a clean-up only, has none to name.
    """
    text, places = counted(IR, Path("own.cpp"))
    assert places == [{(4, 9)}, {(5, 0), (4, 9), (2, 0)}, set(), {(2, 0)}]
    stores = re.findall(
        r"^(.*)\n  store i8 1, ptr getelementptr \(i8, ptr @d500_blocks, i64 (\d)\)\n", text, re.MULTILINE
    )
    assert [before for before, _ in stores] == [
        "define i32 @d500_forward(ptr %0) personality ptr @p {",
        "  %4 = phi i32 [ 0, %1 ]",
        "7:                                                ; preds = %3",
        'define void @"quo\\22ted"() {',
    ]
    assert sorted(int(number) for _, number in stores) == [0, 1, 2, 3] and "[4 x i8]" in text


EACH = "for (std::size_t i = 0; i < n; ++i) "
WRONG = WRONG_SQUARE.replace("WRONG", "true")
# fmt: off
HIDDEN = {  # a wrong gradient, in a place where the usual draws do not come
    "at_a_size": f"{EACH}if (n == 77)\ny[i] = square(x[i]); else y[i] = x[i];",
    "in_order": "bool up = n > 3; for (std::size_t i = 1; i < n; ++i) up = up && x[i] >= x[i - 1];\n"
                f"if (up) {EACH}y[i] = square(x[i]); else {EACH}y[i] = x[i];",
    "at_a_size_and_value": f"{EACH}if (n == 40 && x[i] < -20)\ny[i] = square(x[i]); else y[i] = x[i];",
}
# fmt: on


def _built(name: str, statement: str) -> d5.operators.cpp.CompiledOp:
    described = [d5.TensorDescriptor("float64", ("N",))]
    source = elementwise(name, "\n" + statement, WRONG)
    return d5.compile_custom_cppop_inline(name, source, described, described, gradient="enzyme")


@needs_engine
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "in_order" else pytest.mark.long) for name in HIDDEN]
)
def test_gradients_are_judged_where_the_usual_draws_do_not_come(name: str) -> None:
    with pytest.raises(EnzymeError, match="not that of forward"):
        _built(name, HIDDEN[name])


@needs_engine
def test_lines_that_no_draw_reached_are_named() -> None:
    """No size of the check is that large: the wrong gradient there is not seen, and that is said."""
    new = f"// {np.random.default_rng().integers(1 << 60)}\n"  # what is built already says nothing
    statement = f"{new}{EACH}y[i] = x[i];\nif (n > 100000) y[4] = square(x[4]);\n"
    with pytest.warns(
        UserWarning,
        match=r"not judged where the check never came.*\n(?:.*\n)*?line \d+: if \(n > 100000\) y\[4\] = square",
    ):
        _built("never", statement)


class _Attention:
    """Attention with large inputs as a probe's reference, whose gradient by the first is exact."""

    def forward(self, x: list[np.ndarray]) -> list[np.ndarray]:
        q, k, v = x
        scores = q @ k.T / np.sqrt(q.shape[1])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        self.weights = weights / weights.sum(axis=1, keepdims=True)
        return [self.weights @ v]

    def backward(self, dy: list[np.ndarray], x: list[np.ndarray]) -> np.ndarray:
        self.forward(x)
        by_weights = dy[0] @ x[2].T
        by_scores = self.weights * (by_weights - (self.weights * by_weights).sum(axis=1, keepdims=True))
        return by_scores @ x[1] / np.sqrt(x[0].shape[1])


def _hardly_apart(rng: np.random.Generator, gap: float) -> list[np.ndarray]:
    """Queries for which two keys are the best, some with scores in the millions that lie ``gap`` apart."""
    q, k, v = (1500 * rng.normal(size=(24, 8)) for _ in range(3))
    away = k[1] - k[0]
    for row, along in enumerate(np.linspace(3, 4, 24)):
        missing = -gap * np.sqrt(8) - along * (k[1] @ k[1] - k[0] @ k[0])
        q[row] = along * (k[0] + k[1]) + missing / (away @ away) * away
    return [q, k, v]


@pytest.mark.parametrize("gap", [26, 28, 30])
def test_what_a_saturated_softmax_leaves_of_a_gradient_is_judged(gap):
    """It bends within steps of 1e-4 there. The right gradient passes, one of twice the size does not."""
    found = []
    for factor in (1.0, 2.0):
        for seed in range(6):
            rng = np.random.default_rng(seed)
            probe = object.__new__(EnzymeProbe)
            probe.x = _hardly_apart(rng, gap)
            probe.dy = [rng.normal(size=(24, 8))]
            probe.reference, probe.reference_dtype, probe.rng, probe.active = _Attention(), "float64", rng, [0]
            probe.wrong, probe.unclear, probe.zero = [], [], []
            probe.gradients = {0: factor * probe.reference.backward(probe.dy, probe.x)}
            probe.against_differences(0, WIDER)
            found.append((factor, bool(probe.wrong)))
    assert not any(wrong for factor, wrong in found if factor == 1) and sum(wrong for _, wrong in found) >= 3


class _Kinked:
    """Half of x |x|, whose gradient |x| has a kink at 0; its Hessian-vector product is off by a factor."""

    inputs, shapes = ("float64",), ([(6,)], [(6,)])

    def __init__(self, factor):
        self.factor = factor

    def backward(self, dy, x, active):
        return [dy[0] * np.abs(x[0])]

    def hvp(self, dy, x, v):
        return [self.factor * dy[0] * np.sign(x[0]) * v[0]]


@pytest.mark.parametrize(("factor", "wrong"), [(1.0, False), (1.001, True), (0.0, True)])
def test_second_derivatives_are_not_judged_across_a_kink(factor, wrong):
    """Differences of the first derivatives take from both sides of it; where there is none, what is off is seen."""
    probe = object.__new__(EnzymeProbe)
    probe.library = probe.reference = _Kinked(factor)
    probe.reference_dtype = probe.dtype = "float64"
    probe.rng, probe.active, probe.rough, probe.wrong = np.random.default_rng(0), [0], 1e-16, []
    probe.x, probe.dy = [np.array([3e-6, -1e-8, 0.7, -0.5, 2e-5, 1.0])], [np.linspace(0.5, 1.5, 6)]
    probe.gradients = probe.reference.backward(probe.dy, probe.x, [0])
    probe.check_hvp()
    assert bool(probe.wrong) == wrong


class _Doubled:
    """y[i] = sin(2^i x[i]), or sin x[i] where that is smooth; the gradient is off by a factor."""

    inputs = outputs = ("float64",)
    shapes = ([(60,)], [(60,)])
    signature: ClassVar = {"jvp": False, "hvp": False}

    def __init__(self, factor, smooth):
        self.grown, self.factor = 2.0 ** ((np.arange(60) - 5) * (not smooth)), factor

    def refill(self, fill, bits):
        pass

    def forward(self, x):
        return [np.sin(self.grown * x[0])]

    def backward(self, dy, x, active):
        return [self.factor * dy[0] * self.grown * np.cos(self.grown * x[0])]


@pytest.mark.parametrize(("factor", "smooth", "wrong"), [(1.0, False, False), (1.0, True, False), (1.01, True, True)])
def test_what_grows_without_end_is_not_judged_by_differences_at_larger_sizes(factor, smooth, wrong):
    """The last element has a slope of 1e16: no step is small enough. Where steps are, what is off is seen."""
    probe = object.__new__(EnzymeProbe)
    probe.library = probe.reference = _Doubled(factor, smooth)
    probe.reference_dtype = probe.dtype = "float64"
    probe.rng, probe.active, probe.rough, probe.wrong = np.random.default_rng(0), [0], 1e-16, []
    probe.zero, probe.unclear, probe.tape, probe.job = [], [], None, {}
    probe.x, probe.dy = [probe.rng.standard_normal(60)], [np.linspace(0.5, 1.5, 60)]
    probe.run_wide(("normal",))
    assert bool(probe.wrong) == wrong
