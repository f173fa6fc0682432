"""What an operator may tell of itself so that its derived gradient is faster: surrogates, and that it writes once."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import CompileError, EnzymeError
from deep500.operators.enzyme import pipeline
from deep500.operators.enzyme.engine import find_engine
from tests.operators.enzyme.test_operators import compiled
from tests.operators.enzyme.test_operators import pytestmark as pytestmark

SOURCE = """
#include "deep500/blas.h"
#include "deep500/deep500.h"
#include "deep500/math.h"
template <typename T> struct soft : deep500::CustomOperator {
  std::size_t n;
  explicit soft(std::size_t n) : n(n) {}
  MEMBERS
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new soft<D500_DTYPE>(in[0].size());
}
D500_REGISTER_OP(soft<D500_DTYPE>);
"""
FORWARD = "void forward(const T *x, T *y) { for (std::size_t i = 0; i < n; ++i) y[i] = d5::softplus(x[i]); }"
SURROGATE = """
  void surrogate(const T *x, const T *known, T *y) {
    for (std::size_t i = 0; i < n; ++i) y[i] = (T(1) - d5::exp(-known[i])) * x[i];
  }"""
PARTS = """
  std::size_t scratch() const { return 1; }
  std::size_t parts() const { return n; }
  void forward(const T *x, T *y, T *room) { for (std::size_t i = 0; i < n; ++i) part(i, x, y, room); }
  void part(std::size_t i, const T *x, T *y, T *room) const { room[0] = x[i]; y[i] = d5::softplus(room[0]); }"""
SURROGATE_PART = """
  void surrogate_part(std::size_t i, const T *x, const T *known, T *y, T *room) const {
    room[0] = (T(1) - d5::exp(-known[i])) * x[i];
    y[i] = room[0];
  }"""
KINDS = {
    "whole": FORWARD + SURROGATE,
    "parts": PARTS + SURROGATE_PART,
    "blocks": "static constexpr bool elementwise = true;" + FORWARD + SURROGATE,
}


def built(members: str, check: bool = True) -> d5.operators.cpp.CompiledOp:
    return compiled("soft", SOURCE.replace("MEMBERS", members), ["float64"], ["float64"], check=check)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_of_forward_and_made_of_its_results(kind: str) -> None:
    op = built(KINDS[kind])
    x, dy = np.random.default_rng(0).standard_normal((2, 150))  # two blocks, and a rest
    y, slope = op(x), 1 / (1 + np.exp(-x))
    (dx,) = op.run_backward([dy], [x], [y])
    np.testing.assert_allclose(dx, dy * slope, rtol=1e-13)
    (moved,) = op.run_backward([dy], [x], [y + 1])
    np.testing.assert_allclose(moved, dy * (1 - np.exp(-1 - y)), rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_forward_itself_is_differentiated_along_directions_and_twice(kind: str) -> None:
    op = built(KINDS[kind])
    x, dy, v = np.random.default_rng(1).standard_normal((3, 70))
    slope = 1 / (1 + np.exp(-x))
    (change,) = op.jvp([x], [v])[1]
    np.testing.assert_allclose(change, slope * v, rtol=1e-13)
    (twice,) = op.hvp([dy], [x], [v])
    np.testing.assert_allclose(twice, dy * slope * (1 - slope) * v, rtol=1e-12, atol=1e-15)


def test_another_functions_gradient_is_refused() -> None:
    with pytest.raises(EnzymeError, match=r"not that of forward[\s\S]*a surrogate is derived in place of forward"):
        built(FORWARD + SURROGATE.replace("T(1) -", "T(1) +"))


def test_a_surrogate_in_the_wrong_form_is_named() -> None:
    with pytest.raises(CompileError, match=r"expected surrogate_part\(number, ...\) beside parts\(\)"):
        built(PARTS + SURROGATE.replace("T *y)", "T *y, T *)"))


def test_results_are_asked_for() -> None:
    op = built(KINDS["whole"])
    x, dy, dx = np.ones((3, 4))
    library = ctypes.CDLL(str(op.path))
    library.d500_instance.restype, library.d500_error.restype = ctypes.c_void_p, ctypes.c_char_p
    instance = ctypes.c_void_p(library.d500_instance(ctypes.c_void_p(op.sizes([(4,)]).ctypes.data)))
    pointers = [(ctypes.c_void_p * 1)(a if a is None else a.ctypes.data) for a in (dy, x, None, dx)]
    assert library.d500_backward(instance, *pointers) != 0
    assert b"null pointer for output 0" in library.d500_error()


ONCE = "static constexpr bool writes_once = true;"
DOUBLED = """
  std::size_t parts() const { return n; }
  void forward(const T *x, T *y) { for (std::size_t i = 0; i < n; ++i) part(i, x, y); }
  void part(std::size_t i, const T *x, T *y) const { y[i] = x[i] * x[i]; }"""
TWICE = """
  void forward(const T *x, T *y) {
    for (std::size_t k = 0; k < 2; ++k)
      for (std::size_t i = k; i < n; ++i) y[i - k] = (T(1) + T(k)) * x[i] * x[i];
  }"""
PRODUCT = """
  void forward(const T *x, T *y) {
    const T one[1] = {T(1)};
    d5::product(d5::plain, d5::plain, n, 1, 1, T(3), x, 1, one, 1, T(0), y, 1);
  }"""


SQUARE = """
  void forward(const T *x, T *y) { d5::product(d5::plain, d5::plain, n, n, n, T(1), x, n, x, n, T(0), y, n); }"""


def test_products_keep_the_name_by_which_their_gradient_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy for constant arguments has another, and the gradient of what is inside, which may be nothing."""
    seen: list[str] = []
    monkeypatch.setenv("DEEP500_ENZYME", str(find_engine().path))
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path))  # where no library is: it is built now
    monkeypatch.setattr(pipeline, "inline_functions", lambda ir: seen.append(ir) or ir)
    built(SQUARE, check=False)
    assert "call void @cblas_dgemm(" in seen[0] and "diffecblas" not in seen[0] and ".specialized" not in seen[0]


def test_a_gradient_of_outputs_that_are_written_once_is_left_as_it_was() -> None:
    op = built(ONCE + DOUBLED)
    x, dy = np.random.default_rng(2).standard_normal((2, 40))
    kept = dy.copy()
    for _ in range(2):  # it is the caller's own array that is read
        np.testing.assert_allclose(op.run_backward([dy], [x], [op(x)])[0], 2 * x * dy, rtol=1e-14)
        assert (dy == kept).all()


def test_a_promise_that_is_not_kept_is_refused() -> None:
    built(TWICE)
    with pytest.raises(EnzymeError, match=r"not that of forward[\s\S]*writes_once = true promises"):
        built(ONCE + TWICE)


def test_the_promise_of_an_operator_whose_gradient_is_written_to_changes_nothing() -> None:
    op = built(ONCE + PRODUCT)
    x, dy = np.random.default_rng(3).standard_normal((2, 12))
    kept = dy.copy()
    np.testing.assert_allclose(op.run_backward([dy], [x], [op(x)])[0], 3 * dy, rtol=1e-14)
    assert (dy == kept).all()
