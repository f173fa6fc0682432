// GELU in its tanh form (Hendrycks and Gimpel, arXiv 1606.08415), element by element; Enzyme derives the gradient.
#include "deep500/deep500.h"
#include "deep500/math.h"

template <typename T>
struct gelu : deep500::CustomOperator {
  static constexpr bool elementwise = true;
  std::size_t length;
  explicit gelu(std::size_t n) : length(n) {}

  void forward(const T *__restrict__ x, T *__restrict__ y) {
    for (std::size_t i = 0; i < length; ++i) y[i] = d5::gelu(x[i]);
  }
};

D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new gelu<D500_DTYPE>(in[0].size());
}
D500_REGISTER_OP(gelu<D500_DTYPE>);
