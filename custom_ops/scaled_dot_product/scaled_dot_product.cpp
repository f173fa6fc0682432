// Scaled dot-product attention (Vaswani et al., arXiv 1706.03762, section 3.2.1): softmax(q k' / sqrt(E)) v, per head.
#include <cmath>

#include "deep500/deep500.h"

template <typename T>
struct scaled_dot_product : deep500::CustomOperator {
  std::size_t heads, queries, keys, width, values;

  scaled_dot_product(const deep500::tensor_t &q, const deep500::tensor_t &k, const deep500::tensor_t &v)
      : heads(std::size_t(q.sizes[0]) * q.sizes[1]), queries(q.sizes[2]), keys(k.sizes[2]), width(q.sizes[3]),
        values(v.sizes[3]) {}

  // The weights of all queries. Kept until the gradient has used them: Enzyme need not save what is not overwritten.
  std::size_t scratch() const { return heads * queries * keys; }

  void forward(const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, T *__restrict__ y,
               T *__restrict__ weights) {
    const T scale = T(1) / std::sqrt(T(width));
    for (std::size_t head = 0; head < heads; ++head)
      for (std::size_t row = 0; row < queries; ++row) {
        const std::size_t query = head * queries + row;
        attend(q + query * width, k + head * keys * width, v + head * keys * values, y + query * values,
               weights + query * keys, CAUSAL ? (row + 1 < keys ? row + 1 : keys) : keys, scale);
      }
  }

 private:
  // One query: `seen` keys take part.
  void attend(const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, T *__restrict__ y,
              T *__restrict__ weight, std::size_t seen, T scale) const {
    T largest = -INFINITY, total = T(0);
    for (std::size_t key = 0; key < seen; ++key) {
      weight[key] = scale * dot(q, k + key * width);
      largest = weight[key] > largest ? weight[key] : largest;
    }
    for (std::size_t i = 0; i < values; ++i) y[i] = T(0);
    for (std::size_t key = 0; key < seen; ++key) total += std::exp(weight[key] - largest);
    for (std::size_t key = 0; key < seen; ++key) {
      const T share = std::exp(weight[key] - largest) / total;
      for (std::size_t i = 0; i < values; ++i) y[i] += share * v[key * values + i];
    }
  }

  // Eight sums side by side: one sum has an order that a compiler must keep, and so cannot be vector code.
  T dot(const T *__restrict__ a, const T *__restrict__ b) const {
    T part[8] = {}, total = T(0);
    std::size_t i = 0;
    for (; i + 8 <= width; i += 8)
      for (int lane = 0; lane < 8; ++lane) part[lane] += a[i + lane] * b[i + lane];
    for (; i < width; ++i) total += a[i] * b[i];
    for (int lane = 0; lane < 8; ++lane) total += part[lane];
    return total;
  }
};

D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new scaled_dot_product<D500_DTYPE>(in[0], in[1], in[2]);
}
D500_REGISTER_OP(scaled_dot_product<D500_DTYPE>);
