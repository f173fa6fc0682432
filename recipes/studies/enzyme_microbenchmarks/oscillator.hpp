// Euler and RK4: a damped oscillator, whose discrete solution is a matrix power and so has gradients in closed form.
#pragma once
#include "ode.hpp"

namespace micro {

struct Oscillator {
  double stiffness, damping;

  void operator()(const State &y, State &slope, double) const {
    slope[0] = y[1];
    slope[1] = -stiffness * y[0] - damping * y[1];
  }
};

// x: position and velocity at the start; c: stiffness, damping, end, two weights; n: steps.
template <class Method>
double oscillate(const double *x, const double *c, const std::int64_t *n) {
  State y(x, x + 2);
  integrate(Method(), Oscillator{c[0], c[1]}, y, c[2], n[0]);
  return c[3] * y[0] + c[4] * y[1];
}

inline double euler(const double *x, const double *c, const std::int64_t *n) { return oscillate<EulerMethod>(x, c, n); }

inline double rk4(const double *x, const double *c, const std::int64_t *n) { return oscillate<RungeKutta4>(x, c, n); }

}  // namespace micro
