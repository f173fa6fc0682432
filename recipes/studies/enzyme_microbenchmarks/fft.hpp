// FFT: recursive decimation in time of 2^m complex numbers, forward and back again, and a weighted sum of squares.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace micro {

// Bit-reversed order, in place; numbers lie as (real, imaginary) pairs.
template <class T>
void reorder(T *z, std::int64_t n) {
  for (std::int64_t i = 1, j = 0; i < n; ++i) {
    std::int64_t bit = n >> 1;
    for (; j & bit; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) {
      const T real = z[2 * i], imaginary = z[2 * i + 1];
      z[2 * i] = z[2 * j], z[2 * i + 1] = z[2 * j + 1];
      z[2 * j] = real, z[2 * j + 1] = imaginary;
    }
  }
}

// Transform of reordered numbers: both halves, then butterflies with exp(sign 2 pi i k / n), by rotation.
template <class T>
void combine(T *z, std::int64_t n, int sign) {
  if (n == 1) return;
  const std::int64_t half = n / 2;
  combine(z, half, sign);
  combine(z + n, half, sign);
  const double angle = sign * 2 * 3.14159265358979323846 / static_cast<double>(n);
  const double turn_real = std::cos(angle), turn_imaginary = std::sin(angle);
  double real = 1, imaginary = 0;
  for (std::int64_t k = 0; k < half; ++k) {
    T *even = z + 2 * k, *odd = z + n + 2 * k;
    const T a = odd[0] * real - odd[1] * imaginary, b = odd[0] * imaginary + odd[1] * real;
    odd[0] = even[0] - a, odd[1] = even[1] - b;
    even[0] += a, even[1] += b;
    const double next = real * turn_real - imaginary * turn_imaginary;
    imaginary = real * turn_imaginary + imaginary * turn_real, real = next;
  }
}

template <class T>
void transform(T *z, std::int64_t n, int sign) {
  reorder(z, n);
  combine(z, n, sign);
}

// x: n[0] complex numbers; c: a weight for each.
template <class T>
T fft(const T *x, const double *c, const std::int64_t *n) {
  std::vector<T> z(x, x + 2 * n[0]);
  transform(z.data(), n[0], -1);
  transform(z.data(), n[0], 1);
  const double scale = 1 / static_cast<double>(n[0]);
  for (std::int64_t k = 0; k < 2 * n[0]; ++k) z[k] *= scale;
  T sum = 0;
  for (std::int64_t k = 0; k < n[0]; ++k) sum += c[k] * (z[2 * k] * z[2 * k] + z[2 * k + 1] * z[2 * k + 1]);
  return sum;
}

}  // namespace micro
