"""Gradients of the shipped operators, written by hand: what Enzyme's are measured against.

Each is a ``backward`` for the class in ``custom_ops/<name>/<name>.cpp``, written for speed.
"""

from __future__ import annotations

BACKWARD = {
    "gelu": """
  void backward(const T *__restrict__ dy, const T *__restrict__ x, const T *, T *__restrict__ dx) {
    for (std::size_t i = 0; i < length; ++i) dx[i] = dy[i] * d5::gelu_gradient(x[i]);
  }
""",
    "mish": """
  void backward(const T *__restrict__ dy, const T *__restrict__ x, const T *, T *__restrict__ dx) {
    for (std::size_t i = 0; i < length; ++i) {
      const T e = d5::exp(-std::fabs(x[i]));
      const T above = x[i] > T(0) ? T(1) + T(2) * e : e * e + T(2) * e;
      const T rest = x[i] > T(0) ? T(2) * e * e : T(2);
      const T t = above / (above + rest), s = (x[i] > T(0) ? T(1) : e) / (T(1) + e);
      dx[i] = dy[i] * (t + x[i] * s * (T(1) - t * t));
    }
  }
""",
    "rmsnorm": """
  void backward(const T *__restrict__ dy, const T *__restrict__ x, const T *__restrict__ weight, const T *,
                T *__restrict__ dx, T *__restrict__ dw) {
    for (std::size_t i = 0; i < width; ++i) dw[i] = T(0);
    for (std::size_t row = 0; row < rows; ++row) {
      const T *in = x + row * width, *grad = dy + row * width;
      T *out = dx + row * width;
      const T inverse = T(1) / std::sqrt(d5::dot(width, in, in) / T(width) + T(EPSILON));
      T part[8] = {}, sum = T(0);
      std::size_t i = 0;
      for (; i + 8 <= width; i += 8)
        for (int lane = 0; lane < 8; ++lane) part[lane] += grad[i + lane] * weight[i + lane] * in[i + lane];
      for (; i < width; ++i) sum += grad[i] * weight[i] * in[i];
      for (int lane = 0; lane < 8; ++lane) sum += part[lane];
      const T factor = sum * inverse * inverse * inverse / T(width);
      for (i = 0; i < width; ++i) {
        out[i] = grad[i] * weight[i] * inverse - in[i] * factor;
        dw[i] += grad[i] * in[i] * inverse;
      }
    }
  }
""",
    "softplus_conv": """
  void backward(const T *__restrict__ dy, const T *__restrict__ x, const T *__restrict__ w,
                const T *, const T *__restrict__ y,
                T *__restrict__ dx, T *__restrict__ dw, T *__restrict__ db, T *__restrict__ room) {
    const long depth = channels * height * width;
    for (long i = 0; i < batch * channels * rows * columns; ++i) dx[i] = T(0);
    for (long i = 0; i < filters * depth; ++i) dw[i] = T(0);
    for (long f = 0; f < filters; ++f) db[f] = T(0);
    for (std::size_t number = 0; number < parts(); ++number) {
      const long image = long(number) / strips, top = long(number) % strips * most;
      const long taken = out_rows - top < most ? out_rows - top : most, size = taken * out_columns;
      T *pixels = room, *dz = room + depth * most * out_columns;
      unfold(x + image * channels * rows * columns, top, taken, pixels);
      for (long f = 0; f < filters; ++f) {
        const long at = ((image * filters + f) * out_rows + top) * out_columns;
        T part[16] = {}, sum = T(0);
        for (long i = 0; i < size; ++i) dz[f * size + i] = dy[at + i] * (T(1) - d5::exp(-y[at + i]));
        long i = 0;
        for (; i + 16 <= size; i += 16)
          for (int lane = 0; lane < 16; ++lane) part[lane] += dz[f * size + i + lane];
        for (; i < size; ++i) sum += dz[f * size + i];
        for (int lane = 0; lane < 16; ++lane) sum += part[lane];
        db[f] += sum;
      }
      d5::product(d5::plain, d5::transposed, filters, depth, size, T(1), dz, size, pixels, size, T(1), dw, depth);
      d5::product(d5::transposed, d5::plain, depth, size, filters, T(1), w, depth, dz, size, T(0), pixels, size);
      fold(pixels, top, taken, dx + image * channels * rows * columns);
    }
  }
  void fold(const T *__restrict__ pixels, long top, long taken, T *__restrict__ dx) const {
    for (long c = 0; c < channels; ++c)
      for (long i = 0; i < height; ++i)
        for (long j = 0; j < width; ++j) {
          const long first = j < PAD ? (PAD - j + STRIDE - 1) / STRIDE : 0;
          const long last = columns + PAD - j <= 0 ? 0 : (columns + PAD - j - 1) / STRIDE + 1;
          const long end = last < out_columns ? last : out_columns;
          for (long row = 0; row < taken; ++row, pixels += out_columns) {
            const long from = (top + row) * STRIDE + i - PAD;
            if (from < 0 || from >= rows) continue;
            T *out = dx + (c * rows + from) * columns + j - PAD;
            for (long column = first; column < end; ++column) out[column * STRIDE] += pixels[column];
          }
        }
  }
""",
    "scaled_dot_product": """
  void backward(const T *__restrict__ dy, const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v,
                const T *__restrict__ y, T *__restrict__ dq, T *__restrict__ dk, T *__restrict__ dv,
                T *__restrict__ room) {
    const T scale = T(1) / std::sqrt(T(width));
    for (std::size_t i = 0; i < heads * keys * width; ++i) dk[i] = T(0);
    for (std::size_t i = 0; i < heads * keys * values; ++i) dv[i] = T(0);
    for (std::size_t number = 0; number < parts(); ++number) {
      const std::size_t head = number / blocks, first = number % blocks * BLOCK;
      const std::size_t rows = queries - first < BLOCK ? queries - first : BLOCK, at = head * queries + first;
      const std::size_t seen = CAUSAL && first + rows < keys ? first + rows : keys;
      const T *k0 = k + head * keys * width, *v0 = v + head * keys * values;
      T *slope = room, *weight = room + BLOCK * keys;
      d5::product(d5::plain, d5::transposed, rows, seen, width, scale, q + at * width, width, k0, width, T(0), slope,
                  seen);
      for (std::size_t row = 0; row < rows; ++row) {
        T *own = weight + row * seen;
        const std::size_t visible = CAUSAL && first + row + 1 < seen ? first + row + 1 : seen;
        d5::exponentials(visible, slope + row * seen, own);
        for (std::size_t key = visible; key < seen; ++key) own[key] = T(0);
        const T share = T(1) / total(own, seen);
        for (std::size_t key = 0; key < seen; ++key) own[key] *= share;
      }
      d5::product(d5::transposed, d5::plain, seen, values, rows, T(1), weight, seen, dy + at * values, values, T(1),
                  dv + head * keys * values, values);
      d5::product(d5::plain, d5::transposed, rows, seen, values, T(1), dy + at * values, values, v0, values, T(0),
                  slope, seen);
      for (std::size_t row = 0; row < rows; ++row) {
        T mean = T(0);
        for (std::size_t i = 0; i < values; ++i) mean += dy[(at + row) * values + i] * y[(at + row) * values + i];
        for (std::size_t key = 0; key < seen; ++key)
          slope[row * seen + key] = weight[row * seen + key] * (slope[row * seen + key] - mean);
      }
      d5::product(d5::plain, d5::plain, rows, width, seen, scale, slope, seen, k0, width, T(0), dq + at * width, width);
      d5::product(d5::transposed, d5::plain, seen, width, rows, scale, slope, seen, q + at * width, width, T(1),
                  dk + head * keys * width, width);
    }
  }
""",
}
