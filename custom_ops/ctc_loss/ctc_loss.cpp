// Connectionist temporal classification (Graves et al. 2006, section 4.1): -log of the probability that the frames say the
// labels, over all alignments. A transcript with blanks between its labels and around them has 2 S + 1 places;
// alpha[frame][place] is the log-probability of all ways there. Places that cannot be reached have NEVER, which is finite,
// so that no derivative is infinity minus infinity.
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "deep500/deep500.h"

template <typename T>
struct ctc_loss : deep500::CustomOperator {
  static constexpr T NEVER = T(-1e30);
  std::size_t frames, items, classes, most, places;

  ctc_loss(const deep500::tensor_t &log_p, const deep500::tensor_t &labels)
      : frames(log_p.sizes[0]), items(log_p.sizes[1]), classes(log_p.sizes[2]), most(labels.sizes[1]),
        places(2 * most + 1) {}

  // All alphas. Kept until the gradient has used them: Enzyme need not save what is not overwritten.
  std::size_t scratch() const { return items * (frames + 1) * places; }

  void forward(const T *__restrict__ log_p, const int64_t *__restrict__ labels, const int64_t *__restrict__ input_length,
               const int64_t *__restrict__ label_length, T *__restrict__ loss, T *__restrict__ alpha) {
    T total = T(0);
    for (std::size_t item = 0; item < items; ++item) {
      const int64_t *own = labels + item * most;
      const int64_t length = label_length[item], heard = input_length[item];
      check(own, item, length, heard);
      T *rows = alpha + item * (frames + 1) * places;
      align(log_p + item * classes, own, std::size_t(length), std::size_t(heard), rows);
      const T *last = rows + std::size_t(heard) * places + 2 * length;
      const T value = -(length > 0 ? both(last[0], last[-1]) : last[0]);
      const bool possible = value < T(1e29);
      const T impossible = ZERO_INFINITY ? T(0) : T(INFINITY);
      if (REDUCTION == 0)
        loss[item] = possible ? value : impossible;
      else
        total += (possible ? value : impossible) / (REDUCTION == 2 ? T(items) * T(length > 0 ? length : 1) : T(1));
    }
    if (REDUCTION != 0) loss[0] = total;
  }

 private:
  // Row 0 is before the first frame: at the first place, from which place 0 and place 1 are reached.
  void align(const T *__restrict__ log_p, const int64_t *__restrict__ own, std::size_t length, std::size_t heard,
             T *__restrict__ rows) const {
    const std::size_t used = 2 * length + 1;
    for (std::size_t place = 0; place < used; ++place) rows[place] = place == 0 ? T(0) : NEVER;
    for (std::size_t frame = 0; frame < heard; ++frame) {
      const T *before = rows + frame * places, *says = log_p + frame * items * classes;
      T *now = rows + (frame + 1) * places;
      for (std::size_t place = 0; place < used; ++place) {
        const bool label = place % 2 == 1;
        const bool skip = label && place > 2 && own[place / 2] != own[place / 2 - 1];
        const T one = place > 0 ? before[place - 1] : NEVER, two = skip ? before[place - 2] : NEVER;
        now[place] = all(before[place], one, two) + says[label ? own[place / 2] : BLANK];
      }
    }
  }

  static T both(T a, T b) {
    const T top = a > b ? a : b;
    return top + std::log(std::exp(a - top) + std::exp(b - top));
  }

  static T all(T a, T b, T c) {
    const T high = a > b ? a : b, top = high > c ? high : c;
    return top + std::log(std::exp(a - top) + std::exp(b - top) + std::exp(c - top));
  }

  void check(const int64_t *own, std::size_t item, int64_t length, int64_t heard) const {
    if (length < 0 || length > int64_t(most)) refuse(item, "label_length", length, 0, int64_t(most));
    if (heard < 0 || heard > int64_t(frames)) refuse(item, "input_length", heard, 0, int64_t(frames));
    for (int64_t i = 0; i < length; ++i)
      if (own[i] < 0 || own[i] >= int64_t(classes)) refuse(item, "label", own[i], 0, int64_t(classes) - 1);
  }

  [[noreturn]] static void refuse(std::size_t item, const char *what, int64_t got, int64_t least, int64_t greatest) {
    throw std::invalid_argument("item " + std::to_string(item) + ": got " + what + " " + std::to_string(got) +
                                "; expected " + std::to_string(least) + " to " + std::to_string(greatest));
  }
};

D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new ctc_loss<D500_DTYPE>(in[0], in[1]);
}
D500_REGISTER_OP(ctc_loss<D500_DTYPE>);
