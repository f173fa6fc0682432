// Convolution, bias and softplus in one operator: y = log(1 + exp(conv(x, w) + b)); NCHW, padding PAD, step STRIDE.
#include "deep500/blas.h"
#include "deep500/deep500.h"
#include "deep500/math.h"

template <typename T>
struct softplus_conv : deep500::CustomOperator {
  static constexpr bool writes_once = true;
  long batch, channels, rows, columns, filters, height, width, out_rows, out_columns, most, strips;

  softplus_conv(const deep500::tensor_t &x, const deep500::tensor_t &w, const deep500::tensor_t &y)
      : batch(x.sizes[0]), channels(x.sizes[1]), rows(x.sizes[2]), columns(x.sizes[3]), filters(w.sizes[0]),
        height(w.sizes[2]), width(w.sizes[3]), out_rows(y.sizes[2]), out_columns(y.sizes[3]),
        most(out_columns < 256 ? 256 / (out_columns ? out_columns : 1) : 1),
        strips((out_rows + most - 1) / most) {}

  // A part is a strip of `most` rows of one image: the pixels under the filters as a matrix, and its product with them.
  std::size_t scratch() const { return std::size_t(channels * height * width + filters) * most * out_columns; }
  std::size_t parts() const { return std::size_t(batch) * strips; }

  void forward(const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ b, T *__restrict__ y,
               T *__restrict__ room) {
    for (std::size_t number = 0; number < parts(); ++number) part(number, x, w, b, y, room);
  }

  void part(std::size_t number, const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ b,
            T *__restrict__ y, T *__restrict__ room) const {
    const long image = long(number) / strips, top = long(number) % strips * most;
    const long size = taken(top) * out_columns, depth = channels * height * width;
    T *pixels = room, *z = room + depth * most * out_columns;
    unfold(x + image * channels * rows * columns, top, taken(top), pixels);
    d5::product(d5::plain, d5::plain, filters, size, depth, T(1), w, depth, pixels, size, T(0), z, size);
    for (long f = 0; f < filters; ++f) {
      T *out = y + ((image * filters + f) * out_rows + top) * out_columns;
      for (long i = 0; i < size; ++i) out[i] = d5::softplus(z[f * size + i] + b[f]);
    }
  }

  // The same gradient with the product left out, since the slope of softplus is 1 - exp(-y).
  void surrogate_part(std::size_t number, const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ b,
                      const T *__restrict__ known, T *__restrict__ y, T *__restrict__ room) const {
    const long image = long(number) / strips, top = long(number) % strips * most;
    const long size = taken(top) * out_columns, depth = channels * height * width;
    T *pixels = room, *z = room + depth * most * out_columns;
    unfold(x + image * channels * rows * columns, top, taken(top), pixels);
    d5::unread_product(d5::plain, d5::plain, filters, size, depth, T(1), w, depth, pixels, size, z, size);
    for (long f = 0; f < filters; ++f) {
      const long at = ((image * filters + f) * out_rows + top) * out_columns;
      const T *made = known + at;
      T *out = y + at;
      for (long i = 0; i < size; ++i) out[i] = (T(1) - d5::exp(-made[i])) * (z[f * size + i] + b[f]);
    }
  }

 private:
  long taken(long top) const { return out_rows - top < most ? out_rows - top : most; }

  // One row of the matrix for each channel and place in the filter. The innermost loops run along rows of x.
  void unfold(const T *__restrict__ x, long top, long taken, T *__restrict__ pixels) const {
    for (long c = 0; c < channels; ++c)
      for (long i = 0; i < height; ++i)
        for (long j = 0; j < width; ++j) {
          const long left = j < PAD ? (PAD - j + STRIDE - 1) / STRIDE : 0;  // the first column whose x exists
          const long right = columns + PAD - j <= 0 ? 0 : (columns + PAD - j - 1) / STRIDE + 1;
          const long end = right < out_columns ? right : out_columns, first = left < end ? left : end;
          for (long row = 0; row < taken; ++row) {
            const long from = (top + row) * STRIDE + i - PAD;
            const bool inside = from >= 0 && from < rows;
            const T *in = x + (c * rows + (inside ? from : 0)) * columns + j - PAD;
            T *out = pixels + (((c * height + i) * width + j) * taken + row) * out_columns;
            const long begin = inside ? first : 0, until = inside ? end : 0;
            if (PAD > 0)
              for (long column = 0; column < begin; ++column) out[column] = T(0);
#pragma GCC unroll 1
            for (long column = begin; column < until; ++column) out[column] = in[column * STRIDE];
            if (PAD > 0)
              for (long column = until; column < out_columns; ++column) out[column] = T(0);
          }
        }
  }
};

D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *out, int) {
  return new softplus_conv<D500_DTYPE>(in[0], in[1], out[0]);
}
D500_REGISTER_OP(softplus_conv<D500_DTYPE>);
