// Gradients of Euler and RK4: a step multiplies y by a polynomial of z = -rate h, and states are kept.
#pragma once
#include <vector>

#include "../decay.hpp"

namespace micro {

// Coefficients of the polynomial and of its derivative.
inline void decay_by_hand(const double *x, double *dx, const std::int64_t *n, const double *series, int terms) {
  const std::int64_t steps = n[0];
  const double count = static_cast<double>(steps), z = -x[1] * x[2] / count;
  double factor = 0, slope = 0, power = 1, power_before = 0;
  for (int term = 0; term < terms; ++term) {
    factor += series[term] * power;
    slope += term * series[term] * power_before;
    power_before = power, power *= z;
  }
  std::vector<double> states(steps);
  double y = x[0], adjoint = 1, dz = 0;
  for (std::int64_t i = 0; i < steps; ++i) states[i] = y, y *= factor;
  for (std::int64_t i = steps; i-- > 0;) dz += adjoint * states[i] * slope, adjoint *= factor;
  dx[0] += adjoint, dx[1] -= dz * x[2] / count, dx[2] -= dz * x[1] / count;
}

inline void euler_by_hand(const double *x, double *dx, const double *, const std::int64_t *n) {
  const double series[] = {1, 1};
  decay_by_hand(x, dx, n, series, 2);
}

inline void rk4_by_hand(const double *x, double *dx, const double *, const std::int64_t *n) {
  const double series[] = {1, 1, 1. / 2, 1. / 6, 1. / 24};
  decay_by_hand(x, dx, n, series, 5);
}

}  // namespace micro
