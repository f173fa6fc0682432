// Convolution, bias and softplus in one operator: y = log(1 + exp(conv(x, w) + b)); NCHW, padding PAD, step STRIDE.
#include "deep500/deep500.h"
#include "deep500/math.h"

template <typename T>
struct softplus_conv : deep500::CustomOperator {
  long batch, channels, rows, columns, filters, height, width, out_rows, out_columns;

  softplus_conv(const deep500::tensor_t &x, const deep500::tensor_t &w, const deep500::tensor_t &y)
      : batch(x.sizes[0]), channels(x.sizes[1]), rows(x.sizes[2]), columns(x.sizes[3]), filters(w.sizes[0]),
        height(w.sizes[2]), width(w.sizes[3]), out_rows(y.sizes[2]), out_columns(y.sizes[3]) {}

  // What softplus is applied to. Kept until the gradient has used it: Enzyme need not save what is not overwritten.
  std::size_t scratch() const { return std::size_t(batch) * filters * out_rows * out_columns; }

  void forward(const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ b, T *__restrict__ y,
               T *__restrict__ z) {
    for (long n = 0; n < batch; ++n)
      for (long f = 0; f < filters; ++f) {
        T *plane = z + (n * filters + f) * out_rows * out_columns;
        for (long i = 0; i < out_rows * out_columns; ++i) plane[i] = b[f];
        for (long c = 0; c < channels; ++c)
          correlate(x + (n * channels + c) * rows * columns, w + (f * channels + c) * height * width, plane);
      }
    const long size = batch * filters * out_rows * out_columns;
    for (long i = 0; i < size; ++i) y[i] = d5::softplus(z[i]);
  }

 private:
  // Adds one channel's part. The innermost loop runs along rows of x and z, so that it becomes vector code.
  void correlate(const T *__restrict__ x, const T *__restrict__ w, T *__restrict__ z) const {
    for (long i = 0; i < height; ++i)
      for (long j = 0; j < width; ++j) {
        const T factor = w[i * width + j];
        const long first = j < PAD ? (PAD - j + STRIDE - 1) / STRIDE : 0;  // the first column of z whose x exists
        const long last = columns + PAD - j <= 0 ? 0 : (columns + PAD - j - 1) / STRIDE + 1;
        const long end = last < out_columns ? last : out_columns;
        for (long row = 0; row < out_rows; ++row) {
          const long from = row * STRIDE + i - PAD;
          if (from < 0 || from >= rows) continue;
          const T *in = x + from * columns + j - PAD;
          T *out = z + row * out_columns;
          for (long column = first; column < end; ++column) out[column] += factor * in[column * STRIDE];
        }
      }
  }
};

D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *out, int) {
  return new softplus_conv<D500_DTYPE>(in[0], in[1], out[0]);
}
D500_REGISTER_OP(softplus_conv<D500_DTYPE>);
