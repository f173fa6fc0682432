// Mish, x tanh(softplus(x)) (Misra, arXiv 1908.08681), element by element; Enzyme derives the gradient.
#include "deep500/deep500.h"
#include "deep500/math.h"

template <typename T>
struct mish : deep500::CustomOperator {
  static constexpr bool elementwise = true;
  std::size_t length;
  explicit mish(std::size_t n) : length(n) {}

  // tanh(log(1 + e^x)) = (e^2x + 2 e^x) / (e^2x + 2 e^x + 2): one exponential instead of three functions. It is that of
  // -|x|, which is at most 1, so that nothing overflows, in the gradient neither: e^x = p / q, one of the two being 1.
  void forward(const T *__restrict__ x, T *__restrict__ y) {
    for (std::size_t i = 0; i < length; ++i) {
      const T e = d5::exp(-std::fabs(x[i])), p = x[i] < T(0) ? e : T(1), q = x[i] < T(0) ? T(1) : e;
      const T above = p * p + T(2) * e, share = T(1) / (above + T(2) * (q * q));
      y[i] = x[i] * (above * share);
    }
  }
};

D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new mish<D500_DTYPE>(in[0].size());
}
D500_REGISTER_OP(mish<D500_DTYPE>);
