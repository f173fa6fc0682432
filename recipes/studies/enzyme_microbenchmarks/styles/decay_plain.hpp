// Euler and RK4, another style: the same decay as a loop over a number, without a library's layers.
#pragma once
#include <cstdint>

namespace micro {

// x: y at the start, rate, end; n: steps.
inline double euler_plain(const double *x, const double *, const std::int64_t *n) {
  double y = x[0];
  const double h = x[2] / static_cast<double>(n[0]);
  for (std::int64_t i = 0; i < n[0]; ++i) y += h * -x[1] * y;
  return y;
}

inline double rk4_plain(const double *x, const double *, const std::int64_t *n) {
  double y = x[0];
  const double h = x[2] / static_cast<double>(n[0]);
  for (std::int64_t i = 0; i < n[0]; ++i) {
    const double k1 = -x[1] * y, k2 = -x[1] * (y + h / 2 * k1), k3 = -x[1] * (y + h / 2 * k2);
    y += h / 6 * (k1 + 2 * k2 + 2 * k3 - x[1] * (y + h * k3));
  }
  return y;
}

}  // namespace micro
