// Gradient of the FFT benchmark: the transform is linear, so its adjoint is the transform with the other sign.
#pragma once
#include "../fft.hpp"

namespace micro {

inline void fft_by_hand(const double *x, double *dx, const double *c, const std::int64_t *n) {
  const double scale = 1 / static_cast<double>(n[0]);
  std::vector<double> z(x, x + 2 * n[0]);
  transform(z.data(), n[0], -1);
  transform(z.data(), n[0], 1);
  for (std::int64_t k = 0; k < 2 * n[0]; ++k) z[k] *= 2 * c[k / 2] * scale * scale;
  transform(z.data(), n[0], -1);
  transform(z.data(), n[0], 1);
  for (std::int64_t k = 0; k < 2 * n[0]; ++k) dx[k] += z[k];
}

}  // namespace micro
