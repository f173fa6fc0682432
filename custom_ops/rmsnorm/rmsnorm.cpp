// RMS normalisation of rows (Zhang and Sennrich, arXiv 1910.07467): y = x / sqrt(mean(x^2) + EPSILON) * weight.
#include <cmath>

#include "deep500/deep500.h"

template <typename T>
struct rmsnorm : deep500::CustomOperator {
  std::size_t rows, width;

  rmsnorm(const deep500::tensor_t &x, const deep500::tensor_t &weight)
      : rows(weight.size() ? x.size() / weight.size() : 0), width(weight.size()) {}

  void forward(const T *__restrict__ x, const T *__restrict__ weight, T *__restrict__ y) {
    for (std::size_t row = 0; row < rows; ++row) {
      const T *in = x + row * width;
      T *out = y + row * width;
      const T inverse = T(1) / std::sqrt(mean_square(in) + T(EPSILON));
      for (std::size_t i = 0; i < width; ++i) out[i] = in[i] * inverse * weight[i];
    }
  }

 private:
  // Eight sums side by side: one sum has an order that a compiler must keep, and so cannot be vector code.
  T mean_square(const T *__restrict__ x) const {
    T part[8] = {};
    std::size_t i = 0;
    for (; i + 8 <= width; i += 8)
      for (int lane = 0; lane < 8; ++lane) part[lane] += x[i + lane] * x[i + lane];
    T total = T(0);
    for (; i < width; ++i) total += x[i] * x[i];
    for (int lane = 0; lane < 8; ++lane) total += part[lane];
    return total / T(width);
  }
};

D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new rmsnorm<D500_DTYPE>(in[0], in[1]);
}
D500_REGISTER_OP(rmsnorm<D500_DTYPE>);
