// Scaled dot-product attention (Vaswani et al., arXiv 1706.03762, section 3.2.1): softmax(q k' / sqrt(E)) v, per head.
#include <cmath>

#include "deep500/blas.h"
#include "deep500/deep500.h"
#include "deep500/softmax.h"

// What Enzyme takes for a constant must be a call that it knows by name.
extern "C" __attribute__((noinline)) D500_DTYPE scores_share(D500_DTYPE total) { return 1 / total; }
__attribute__((used)) void *__enzyme_inactivefn_scores_share[] = {(void *)scores_share};

template <typename T>
struct scaled_dot_product : deep500::CustomOperator {
  static constexpr bool writes_once = true;
  static constexpr std::size_t BLOCK = 96;  // queries of a part: their scores stay in the second cache
  std::size_t heads, queries, keys, width, values, blocks;

  scaled_dot_product(const deep500::tensor_t &q, const deep500::tensor_t &k, const deep500::tensor_t &v)
      : heads(std::size_t(q.sizes[0]) * q.sizes[1]), queries(q.sizes[2]), keys(k.sizes[2]), width(q.sizes[3]),
        values(v.sizes[3]), blocks((queries + BLOCK - 1) / BLOCK) {}

  // Scores, their exponentials, and the sums of values that these weigh, of one part.
  std::size_t scratch() const { return BLOCK * (2 * keys + values); }
  std::size_t parts() const { return heads * blocks; }

  void forward(const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v, T *__restrict__ y,
               T *__restrict__ room) {
    for (std::size_t number = 0; number < parts(); ++number) part(number, q, k, v, y, room);
  }

  void part(std::size_t number, const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v,
            T *__restrict__ y, T *__restrict__ room) const {
    const std::size_t head = number / blocks, first = number % blocks * BLOCK, at = head * queries + first;
    const std::size_t rows = queries - first < BLOCK ? queries - first : BLOCK, seen = seen_by(first + rows);
    if (rows * keys == 0) return;
    T *weight = room + BLOCK * keys, *sum = weight + BLOCK * keys;
    weigh(first, rows, seen, q + at * width, k + head * keys * width, room, weight);
    d5::product(d5::plain, d5::plain, rows, values, seen, T(1), weight, seen, v + head * keys * values, values, T(0), sum,
                values);
    for (std::size_t row = 0; row < rows; ++row) {
      const T share = T(1) / total(weight + row * seen, seen);
      for (std::size_t i = 0; i < values; ++i) y[(at + row) * values + i] = sum[row * values + i] * share;
    }
  }

  // The same gradient without the second product: of sum / total, in terms of the quotient.
  void surrogate_part(std::size_t number, const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v,
                      const T *__restrict__ known, T *__restrict__ y, T *__restrict__ room) const {
    const std::size_t head = number / blocks, first = number % blocks * BLOCK, at = head * queries + first;
    const std::size_t rows = queries - first < BLOCK ? queries - first : BLOCK, seen = seen_by(first + rows);
    if (rows * keys == 0) return;
    T *weight = room + BLOCK * keys, *sum = weight + BLOCK * keys;
    weigh(first, rows, seen, q + at * width, k + head * keys * width, room, weight);
    d5::unread_product(d5::plain, d5::plain, rows, values, seen, T(1), weight, seen, v + head * keys * values, values, sum,
                       values);
    for (std::size_t row = 0; row < rows; ++row) {
      const T all = total(weight + row * seen, seen), share = scores_share(all);
      const T *made = known + (at + row) * values;
      for (std::size_t i = 0; i < values; ++i) y[(at + row) * values + i] = (sum[row * values + i] - made[i] * all) * share;
    }
  }

 private:
  std::size_t seen_by(std::size_t end) const { return CAUSAL && end < keys ? end : keys; }

  // The exponentials of the scores of some queries.
  void weigh(std::size_t first, std::size_t rows, std::size_t seen, const T *__restrict__ q, const T *__restrict__ k,
             T *__restrict__ score, T *__restrict__ weight) const {
    d5::product(d5::plain, d5::transposed, rows, seen, width, T(1) / std::sqrt(T(width)), q, width, k, width, T(0), score,
                seen);
    for (std::size_t row = 0; row < rows; ++row) {
      const std::size_t own = CAUSAL && first + row + 1 < seen ? first + row + 1 : seen;
      d5::exponentials(own, score + row * seen, weight + row * seen);
      if (CAUSAL)
        for (std::size_t key = own; key < seen; ++key) weight[row * seen + key] = T(0);
    }
  }

  // Sixteen sums side by side: one sum has an order that a compiler must keep, and so cannot be vector code.
  T total(const T *__restrict__ x, std::size_t n) const {
    T part[16] = {}, all = T(0);
    std::size_t i = 0;
    for (; i + 16 <= n; i += 16)
      for (int lane = 0; lane < 16; ++lane) part[lane] += x[i + lane];
    for (; i < n; ++i) all += x[i];
    for (int lane = 0; lane < 16; ++lane) all += part[lane];
    return all;
  }
};

D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new scaled_dot_product<D500_DTYPE>(in[0], in[1], in[2]);
}
D500_REGISTER_OP(scaled_dot_product<D500_DTYPE>);
