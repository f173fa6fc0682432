// One minus the mean over classes of F1, with probabilities for hits (as Zhang, Xue and Yang 2021 do, "SigmoidF1", without
// their sigmoid): 2 tp / (2 tp + fp + fn), counted over the batches of all ranks. Enzyme derives the gradient, through
// the sums over ranks.
#include <cstdint>

#include "deep500/communication.h"
#include "deep500/deep500.h"

template <typename T>
struct macro_f1 : deep500::CustomOperator {
  std::size_t items, classes;
  macro_f1(std::size_t n, std::size_t c) : items(n), classes(c) {}

  // Of every class: what is predicted of it, how often it is right, how often it occurs; here, then everywhere.
  std::size_t scratch() const { return 6 * classes; }

  void forward(const T *p, const int64_t *label, T *loss, T *counts) {
    T *const all = counts + 3 * classes;
    for (std::size_t k = 0; k < 3 * classes; ++k) counts[k] = 0;
    for (std::size_t i = 0; i < items; ++i) {
      for (std::size_t c = 0; c < classes; ++c) counts[c] += p[i * classes + c];
      counts[classes + label[i]] += p[i * classes + label[i]];
      counts[2 * classes + label[i]] += 1;
    }
    d5::allreduce_sum(counts, all, 3 * classes);
    T sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += 2 * all[classes + c] / (all[c] + all[2 * classes + c]);
    *loss = 1 - sum / classes;
  }
};

D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new macro_f1<D500_DTYPE>(in[0].sizes[0], in[0].sizes[1]);
}
D500_REGISTER_OP(macro_f1<D500_DTYPE>);
