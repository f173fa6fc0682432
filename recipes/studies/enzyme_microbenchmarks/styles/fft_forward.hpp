// FFT, another style: forward only, and a weighted power spectrum.
#pragma once
#include "../fft.hpp"

namespace micro {

// x: n[0] complex numbers; c: a weight for every frequency.
inline double fft_forward(const double *x, const double *c, const std::int64_t *n) {
  std::vector<double> z(x, x + 2 * n[0]);
  transform(z.data(), n[0], -1);
  double sum = 0;
  for (std::int64_t k = 0; k < n[0]; ++k) sum += c[k] * (z[2 * k] * z[2 * k] + z[2 * k + 1] * z[2 * k + 1]);
  return sum;
}

}  // namespace micro
