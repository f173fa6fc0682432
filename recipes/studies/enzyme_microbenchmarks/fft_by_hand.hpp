// Gradient of the FFT benchmark: the transform is linear, so its adjoint is the transform with the other sign.
#pragma once
#include "fft.hpp"

namespace micro {

inline void fft_by_hand(const double *x, double *dx, const double *c, const std::int64_t *n) {
  std::vector<double> z(x, x + 2 * n[0]);
  transform(z.data(), n[0], -1);
  for (std::int64_t k = 0; k < n[0]; ++k) z[2 * k] *= 2 * c[k], z[2 * k + 1] *= 2 * c[k];
  transform(z.data(), n[0], 1);
  for (std::int64_t k = 0; k < 2 * n[0]; ++k) dx[k] += z[k];
}

}  // namespace micro
