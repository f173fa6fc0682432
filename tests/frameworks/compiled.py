"""Compiled operators that the tests of several backends share; built once into the per-user cache."""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import MissingEngine

MIX = """
#include "deep500/deep500.h"
#include <stdexcept>
typedef D500_DTYPE T;
struct mix : deep500::CustomOperator {
  std::size_t rows, columns;
  mix(std::size_t n, std::size_t m) : rows(n), columns(m) {
    if (n == 13) throw std::runtime_error("thirteen rows");
  }
  int forward(const T *x, const T *w, const int64_t *k, T *y, T *z, int64_t *at) {
    for (std::size_t i = 0; i < rows; ++i) {
      z[i] = 0;
      for (std::size_t j = i * columns; j < (i + 1) * columns; ++j) {
        if (x[j] == 777) return 3;
        y[j] = x[j] * x[j] * x[j] * w[j] + k[i];
        z[i] += x[j] * w[j];
      }
    }
    at[0] = reinterpret_cast<int64_t>(x);
    return 0;
  }
  void backward(const T *dy, const T *dz, const int64_t *, const T *x, const T *w, const int64_t *,
                const T *, const T *, const int64_t *, T *dx, T *dw, int64_t *) {
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t j = i * columns; j < (i + 1) * columns; ++j) {
        dx[j] = 3 * x[j] * x[j] * w[j] * dy[j] + w[j] * dz[i];
        dw[j] = x[j] * x[j] * x[j] * dy[j] + x[j] * dz[i];
      }
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new mix(in[0].sizes[0], in[0].sizes[1]);
}
D500_REGISTER_OP(mix);
"""

SOFTSIGN = """
#include "deep500/deep500.h"
struct softsign : deep500::CustomOperator {
  typedef D500_DTYPE T;
  std::size_t length;
  explicit softsign(std::size_t n) : length(n) {}
  void forward(const T *x, T *y) {
    for (std::size_t i = 0; i < length; ++i) y[i] = x[i] / (1 + (x[i] < 0 ? 0 - x[i] : 0 + x[i]));
  }
  void backward(const T *dy, const T *x, const T *, T *dx) {
    for (std::size_t i = 0; i < length; ++i) {
      const T d = 1 + (x[i] < 0 ? 0 - x[i] : 0 + x[i]);
      dx[i] = dy[i] / (d * d);
    }
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new softsign(in[0].size());
}
D500_REGISTER_OP(softsign);
"""

PAIR = """
#include "deep500/deep500.h"
struct pair : deep500::CustomOperator {
  std::size_t length;
  explicit pair(std::size_t n) : length(n) {}
  void forward(const double *x, const double *w, double *y) {
    for (std::size_t i = 0; i < length; ++i) y[i] = x[i] * x[i] * x[i] * w[i];
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new pair(in[0].size());
}
D500_REGISTER_OP(pair);
"""

INPUTS = [d5.tensordesc(("N", "M"), "float64")] * 2 + [d5.tensordesc(("N",), "int64")]
OUTPUTS = [d5.tensordesc(("N", "M"), "float64"), d5.tensordesc(("N",), "float64"), d5.tensordesc((1,), "int64")]


@lru_cache
def mix(isolate: bool = False) -> d5.operators.CompiledOp:
    """(x, w, k) -> x**3 w + k, the rows' sums of x w, the address of x. Refuses 13 rows and the number 777."""
    return d5.compile_custom_cppop_inline("mix", MIX, INPUTS, OUTPUTS, isolate=isolate)


class PythonMix(d5.CustomPythonOp):
    """The same with NumPy, but for the address."""

    def forward(self, inputs):
        x, w, k = inputs
        if (x == 777).any():
            raise ZeroDivisionError("777")
        return [x**3 * w + k[:, None], (x * w).sum(1), np.zeros(1, np.int64)]

    def backward(self, grads, fwd_inputs, fwd_outputs):
        (dy, dz, _), (x, w, _) = grads, fwd_inputs
        dz = dz[:, None]
        return [3 * x * x * w * dy + w * dz, x**3 * dy + x * dz, None]


class Product(d5.CustomPythonOp):
    """x^3 w and x rounded, with all derivatives that operators have whose gradient Enzyme made."""

    signature: ClassVar = {"jvp": True, "hvp": True}

    def forward(self, inputs):
        return [inputs[0] ** 3 * inputs[1], np.rint(inputs[0]).astype("int64")]

    def backward(self, grads, fwd_inputs, fwd_outputs):
        x, w = fwd_inputs
        return [3 * x**2 * w * grads[0], x**3 * grads[0]]

    def jvp(self, inputs, tangents):
        (x, w), (v, u) = inputs, tangents
        return self.forward(inputs), [3 * x**2 * w * v + x**3 * u, np.zeros(x.shape, "int64")]

    def hvp(self, grads, inputs, tangents):
        (x, w), (v, u) = inputs, tangents
        return [grads[0] * (6 * x * w * v + 3 * x**2 * u), grads[0] * 3 * x**2 * v]


@lru_cache
def softsign(dtype: str = "float32") -> d5.operators.CompiledOp:
    """ONNX's Softsign."""
    any_shape = [d5.TensorDescriptor(dtype, None)]
    return d5.compile_custom_cppop_inline("softsign", SOFTSIGN, any_shape, any_shape)


@lru_cache
def pair() -> d5.operators.CompiledOp:
    """(x, w) -> x**3 w with all derivatives; skips the test where there is no Enzyme."""
    vector = d5.tensordesc(("N",), "float64")
    try:
        return d5.compile_custom_cppop_inline("pair", PAIR, [vector, vector], [vector], gradient="enzyme")
    except MissingEngine as error:
        pytest.skip(f"no Enzyme: {error}")


@d5.register_op("TestCompiledSoftsign")
def compiled_softsign(inputs):
    """Softsign of the input's dtype as a node."""
    return softsign(inputs[0].dtype)


@d5.register_op("TestCompiledMix")
def compiled_mix(inputs):
    """Mix as a node."""
    return mix()


def values(rows: int = 4, columns: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs of mix."""
    rng = np.random.default_rng(rows)
    shape = (rows, columns)
    return rng.normal(size=shape), rng.normal(size=shape), rng.integers(0, 5, rows)
