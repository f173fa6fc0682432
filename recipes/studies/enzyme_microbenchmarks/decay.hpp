// Euler and RK4: exponential decay y' = -rate y, whose discrete solution is a power and so has gradients in closed form.
#pragma once
#include "ode.hpp"

namespace micro {

template <class T>
struct Decay {
  using State = std::array<T, 1>;
  T rate;

  void operator()(const State &y, State &slope, const T &) const { slope[0] = -rate * y[0]; }
};

// x: y at the start, rate, end; n: steps.
template <class Method, class T>
T decay(Method method, const T *x, const std::int64_t *n) {
  std::array<T, 1> y = {x[0]};
  integrate_const(method, Decay<T>{x[1]}, y, T(0), x[2], T(x[2] * (1.0 / static_cast<double>(n[0]))), Unobserved());
  return y[0];
}

template <class T>
T euler(const T *x, const double *, const std::int64_t *n) {
  return decay(Euler<std::array<T, 1>>(), x, n);
}

template <class T>
T rk4(const T *x, const double *, const std::int64_t *n) {
  return decay(RungeKutta<std::array<T, 1>>(), x, n);
}

}  // namespace micro
