// RMS normalisation of rows (Zhang and Sennrich, arXiv 1910.07467): y = x / sqrt(mean(x^2) + EPSILON) * weight.
#include <cmath>

#include "deep500/blas.h"
#include "deep500/deep500.h"

template <typename T>
struct rmsnorm : deep500::CustomOperator {
  static constexpr bool writes_once = true;
  std::size_t rows, width;

  rmsnorm(const deep500::tensor_t &x, const deep500::tensor_t &weight)
      : rows(weight.size() ? x.size() / weight.size() : 0), width(weight.size()) {}

  std::size_t parts() const { return rows; }

  void forward(const T *__restrict__ x, const T *__restrict__ weight, T *__restrict__ y) {
    for (std::size_t row = 0; row < rows; ++row) part(row, x, weight, y);
  }

  void part(std::size_t row, const T *__restrict__ x, const T *__restrict__ weight, T *__restrict__ y) const {
    const T *in = x + row * width;
    T *out = y + row * width;
    const T inverse = T(1) / std::sqrt(d5::dot(width, in, in) / T(width) + T(EPSILON));
#pragma GCC unroll 1
    for (std::size_t i = 0; i < width; ++i) out[i] = in[i] * inverse * weight[i];
  }
};

D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new rmsnorm<D500_DTYPE>(in[0], in[1]);
}
D500_REGISTER_OP(rmsnorm<D500_DTYPE>);
