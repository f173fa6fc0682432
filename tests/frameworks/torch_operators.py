"""Operators that the tests of PyTorch's custom operators share."""

from __future__ import annotations

from typing import Any

import torch

import deep500 as d5
from deep500.tensors import TensorDescriptor

CUBE = """
#include "deep500/deep500.h"
template <typename T> struct cube : deep500::CustomOperator {
  int n;
  explicit cube(int count) : n(count) {}
  void forward(const T *x, T *y) { for (int i = 0; i < n; ++i) y[i] = x[i] * x[i] * x[i]; }
  void backward(const T *dy, const T *x, const T *, T *dx) {
    for (int i = 0; i < n; ++i) dx[i] = 3 * dy[i] * x[i] * x[i];
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  int n = 1;
  for (int d = 0; d < in[0].dims; ++d) n *= in[0].sizes[d];
  return new cube<D500_DTYPE>(n);
}
D500_REGISTER_OP(cube<D500_DTYPE>);
"""

# exponentials of the chosen elements, and where the first input lies in memory
CHOOSE = """
#include <cmath>
#include <stdexcept>
#include "deep500/deep500.h"
struct choose : deep500::CustomOperator {
  int n, m;
  choose(int rows, int columns) : n(rows), m(columns) {}
  double at(const double *x, const int64_t *which, int i) {
    if (which[i] < 0 || which[i] >= m) throw std::out_of_range("no such column");
    return x[i * m + which[i]];
  }
  void forward(const double *x, const int64_t *which, double *y, int64_t *place) {
    for (int i = 0; i < n; ++i) y[i] = std::exp(at(x, which, i));
    *place = reinterpret_cast<int64_t>(x);
  }
  void backward(const double *dy, const int64_t *, const double *, const int64_t *which, const double *y,
                const int64_t *, double *dx, int64_t *) {
    for (int i = 0; i < n * m; ++i) dx[i] = 0;
    for (int i = 0; i < n; ++i) dx[i * m + which[i]] = dy[i] * y[i];
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new choose(in[0].sizes[0], in[0].sizes[1]);
}
D500_REGISTER_OP(choose);
"""


class Cube(d5.CustomPythonOp):
    """The cube, in Python."""

    def forward(self, inputs: Any) -> Any:
        return inputs[0] ** 3

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return 3 * grads[0] * fwd_inputs[0] ** 2


class MulAdd(d5.CustomPythonOp):
    """Product and sum."""

    def forward(self, inputs: Any) -> Any:
        return [inputs[0] * inputs[1], inputs[0] + inputs[1]]

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return [grads[0] * fwd_inputs[1] + grads[1], grads[0] * fwd_inputs[0] + grads[1]]


class Marked(torch.Tensor):
    """A user's own class of tensors."""


def compile_cube(dtype: str, **options: Any) -> Any:
    any_shape = [TensorDescriptor(dtype, None)]
    return d5.compile_custom_cppop_inline("cube", CUBE, any_shape, any_shape, **options)


def random(*shape: int, grad: bool = True) -> Any:
    return torch.randn(shape, dtype=torch.float64, requires_grad=grad)
