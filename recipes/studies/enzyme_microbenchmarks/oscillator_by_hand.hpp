// Gradients of Euler and RK4: a step of a linear system is a matrix, and the adjoint applies its transpose.
#pragma once
#include "oscillator.hpp"

namespace micro {

// Coefficients of the step as a polynomial of h A.
inline void oscillate_by_hand(double *dx, const double *c, const std::int64_t *n, const double *series, int terms) {
  const double h = c[2] / static_cast<double>(n[0]), matrix[4] = {0, h, -h * c[0], -h * c[1]};
  double power[4] = {1, 0, 0, 1}, step[4] = {0, 0, 0, 0};
  for (int term = 0; term < terms; ++term) {
    for (int i = 0; i < 4; ++i) step[i] += series[term] * power[i];
    const double next[4] = {power[0] * matrix[0] + power[1] * matrix[2], power[0] * matrix[1] + power[1] * matrix[3],
                            power[2] * matrix[0] + power[3] * matrix[2], power[2] * matrix[1] + power[3] * matrix[3]};
    for (int i = 0; i < 4; ++i) power[i] = next[i];
  }
  double position = c[3], velocity = c[4];
  for (std::int64_t i = 0; i < n[0]; ++i) {
    const double next = step[0] * position + step[2] * velocity;
    velocity = step[1] * position + step[3] * velocity, position = next;
  }
  dx[0] += position, dx[1] += velocity;
}

inline void euler_by_hand(const double *, double *dx, const double *c, const std::int64_t *n) {
  const double series[] = {1, 1};
  oscillate_by_hand(dx, c, n, series, 2);
}

inline void rk4_by_hand(const double *, double *dx, const double *c, const std::int64_t *n) {
  const double series[] = {1, 1, 1. / 2, 1. / 6, 1. / 24};
  oscillate_by_hand(dx, c, n, series, 5);
}

}  // namespace micro
