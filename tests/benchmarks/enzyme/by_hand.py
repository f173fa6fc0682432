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
      const T e = std::exp(x[i] > T(0) ? -x[i] : x[i]);
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
      const T inverse = T(1) / std::sqrt(mean_square(in) + T(EPSILON));
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
                T *__restrict__ dx, T *__restrict__ dw, T *__restrict__ db, T *__restrict__ dz) {
    const long plane = out_rows * out_columns;
    for (long i = 0; i < batch * channels * rows * columns; ++i) dx[i] = T(0);
    for (long i = 0; i < filters * channels * height * width; ++i) dw[i] = T(0);
    for (long f = 0; f < filters; ++f) db[f] = T(0);
    for (long i = 0; i < batch * filters * plane; ++i) dz[i] = dy[i] * (T(1) - std::exp(-y[i]));
    for (long n = 0; n < batch; ++n)
      for (long f = 0; f < filters; ++f) {
        const T *grad = dz + (n * filters + f) * plane;
        T sum = T(0);
        for (long i = 0; i < plane; ++i) sum += grad[i];
        db[f] += sum;
        for (long c = 0; c < channels; ++c) {
          const long in = (n * channels + c) * rows * columns, at = (f * channels + c) * height * width;
          adjoint(x + in, w + at, grad, dx + in, dw + at);
        }
      }
  }
  void adjoint(const T *__restrict__ x, const T *__restrict__ w, const T *__restrict__ dz, T *__restrict__ dx,
               T *__restrict__ dw) const {
    for (long i = 0; i < height; ++i)
      for (long j = 0; j < width; ++j) {
        const T factor = w[i * width + j];
        const long first = j < PAD ? (PAD - j + STRIDE - 1) / STRIDE : 0;
        const long last = columns + PAD - j <= 0 ? 0 : (columns + PAD - j - 1) / STRIDE + 1;
        const long end = last < out_columns ? last : out_columns;
        T sum = T(0);
        for (long row = 0; row < out_rows; ++row) {
          const long from = row * STRIDE + i - PAD;
          if (from < 0 || from >= rows) continue;
          const T *in = x + from * columns + j - PAD, *grad = dz + row * out_columns;
          T *out = dx + from * columns + j - PAD;
          for (long column = first; column < end; ++column) {
            out[column * STRIDE] += factor * grad[column];
            sum += in[column * STRIDE] * grad[column];
          }
        }
        dw[i * width + j] += sum;
      }
  }
""",
    "scaled_dot_product": """
  void backward(const T *__restrict__ dy, const T *__restrict__ q, const T *__restrict__ k, const T *__restrict__ v,
                const T *, T *__restrict__ dq, T *__restrict__ dk, T *__restrict__ dv, T *__restrict__ weights) {
    const T scale = T(1) / std::sqrt(T(width));
    for (std::size_t i = 0; i < heads * queries * width; ++i) dq[i] = T(0);
    for (std::size_t i = 0; i < heads * keys * width; ++i) dk[i] = T(0);
    for (std::size_t i = 0; i < heads * keys * values; ++i) dv[i] = T(0);
    for (std::size_t head = 0; head < heads; ++head)
      for (std::size_t row = 0; row < queries; ++row) {
        const std::size_t at = head * queries + row, seen = CAUSAL ? (row + 1 < keys ? row + 1 : keys) : keys;
        const T *query = q + at * width, *grad = dy + at * values, *key0 = k + head * keys * width;
        const T *value0 = v + head * keys * values;
        T *weight = weights + at * keys, *dquery = dq + at * width;
        T largest = -INFINITY, total = T(0), mean = T(0);
        for (std::size_t key = 0; key < seen; ++key) {
          weight[key] = scale * dot(query, key0 + key * width);
          largest = weight[key] > largest ? weight[key] : largest;
        }
        for (std::size_t key = 0; key < seen; ++key) {
          weight[key] = std::exp(weight[key] - largest);
          total += weight[key];
        }
        T slope[4096];
        for (std::size_t key = 0; key < seen; ++key) {
          weight[key] /= total;
          slope[key] = T(0);
          for (std::size_t i = 0; i < values; ++i) slope[key] += grad[i] * value0[key * values + i];
          mean += weight[key] * slope[key];
        }
        for (std::size_t key = 0; key < seen; ++key) {
          const T score = weight[key] * (slope[key] - mean) * scale;
          T *dvalue = dv + (head * keys + key) * values, *dkey = dk + (head * keys + key) * width;
          for (std::size_t i = 0; i < values; ++i) dvalue[i] += weight[key] * grad[i];
          for (std::size_t i = 0; i < width; ++i) {
            dquery[i] += score * key0[key * width + i];
            dkey[i] += score * query[i];
          }
        }
      }
  }
""",
}
