// Explicit one-step methods for systems y' = f(y, t), written as a library would: a method is a class with its own
// work space, which follows the state's size; a system is anything callable as f(state, slope, t).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace micro {

using State = std::vector<double>;

// Explicit Euler: y += h f(y, t).
class EulerMethod {
  State slope;

 public:
  template <class System>
  void step(const System &f, State &y, double t, double h) {
    if (slope.size() != y.size()) slope.resize(y.size());
    f(y, slope, t);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += h * slope[i];
  }
};

// The classical Runge-Kutta method of fourth order.
class RungeKutta4 {
  State k1, k2, k3, k4, at;

 public:
  template <class System>
  void step(const System &f, State &y, double t, double h) {
    if (at.size() != y.size())
      for (State *state : {&k1, &k2, &k3, &k4, &at}) state->resize(y.size());
    f(y, k1, t);
    move(y, k1, h / 2);
    f(at, k2, t + h / 2);
    move(y, k2, h / 2);
    f(at, k3, t + h / 2);
    move(y, k3, h);
    f(at, k4, t + h);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += h / 6 * (k1[i] + 2 * k2[i] + 2 * k3[i] + k4[i]);
  }

 private:
  void move(const State &y, const State &k, double h) {
    for (std::size_t i = 0; i < y.size(); ++i) at[i] = y[i] + h * k[i];
  }
};

// From time 0 to `end` in equal steps.
template <class Method, class System>
void integrate(Method method, const System &f, State &y, double end, std::int64_t steps) {
  const double h = end / static_cast<double>(steps);
  for (std::int64_t i = 0; i < steps; ++i) method.step(f, y, static_cast<double>(i) * h, h);
}

}  // namespace micro
