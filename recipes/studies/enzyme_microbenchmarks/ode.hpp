// Explicit one-step methods as a library of them has it, in layers: an observer sees every state of a loop over times; a
// stepper holds its work space and knows systems only as f(state, slope, t); an algebra runs over a state's elements;
// operations combine them. A state is an array of a size that the compiler knows.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

namespace micro {

// Operation: out = a weighted sum.
template <class Weight, std::size_t N>
struct WeightedSum {
  std::array<Weight, N> weights;

  template <class T, class... In>
  void operator()(T &out, const In &...in) const {
    std::size_t at = 0;
    T sum = 0;
    ((sum += weights[at++] * in), ...);
    out = sum;
  }
};

// Algebra: an operation on all elements of some states.
struct Elementwise {
  template <class Operation, class State, class... In>
  static void for_each(const Operation &operation, State &out, const In &...in) {
    for (std::size_t i = 0; i < out.size(); ++i) operation(out[i], in[i]...);
  }
};

// What steppers have in common: the slope at the start is computed here, the step from it by `Method`.
template <class Method, class State, class Algebra>
class Stepper {
  State slope;

 public:
  template <class System, class Time>
  void step(const System &f, State &y, const Time &t, const Time &h) {
    f(y, slope, t);
    static_cast<Method *>(this)->advance(f, y, slope, t, h);
  }
};

// Explicit Euler: y += h f(y, t).
template <class State, class Algebra = Elementwise>
struct Euler : Stepper<Euler<State, Algebra>, State, Algebra> {
  template <class System, class Time>
  void advance(const System &, State &y, const State &slope, const Time &, const Time &h) {
    Algebra::for_each(WeightedSum<Time, 2>{{Time(1), h}}, y, y, slope);
  }
};

// The classical Runge-Kutta method of fourth order.
template <class State, class Algebra = Elementwise>
class RungeKutta : public Stepper<RungeKutta<State, Algebra>, State, Algebra> {
  State at, k2, k3, k4;

 public:
  template <class System, class Time>
  void advance(const System &f, State &y, const State &k1, const Time &t, const Time &h) {
    const Time half = h * 0.5, sixth = h * (1.0 / 6), third = h * (1.0 / 3);
    Algebra::for_each(WeightedSum<Time, 2>{{Time(1), half}}, at, y, k1);
    f(at, k2, Time(t + half));
    Algebra::for_each(WeightedSum<Time, 2>{{Time(1), half}}, at, y, k2);
    f(at, k3, Time(t + half));
    Algebra::for_each(WeightedSum<Time, 2>{{Time(1), h}}, at, y, k3);
    f(at, k4, Time(t + h));
    Algebra::for_each(WeightedSum<Time, 5>{{Time(1), sixth, third, third, sixth}}, y, y, k1, k2, k3, k4);
  }
};

// Observer: sees all, does nothing.
struct Unobserved {
  template <class State, class Time>
  void operator()(const State &, const Time &) const {}
};

// Steps of h from `start` for as long as they end at `end` or before, but for rounding; returns their number.
template <class Method, class System, class State, class Time, class Observer>
std::int64_t integrate_const(Method method, const System &f, State &y, const Time &start, const Time &end,
                             const Time &h, Observer observer) {
  std::int64_t steps = 0;
  Time t = start;
  while (t + h * 0.5 < end) {
    observer(y, t);
    method.step(f, y, t, h);
    ++steps;
    t = start + static_cast<double>(steps) * h;
  }
  observer(y, t);
  return steps;
}

}  // namespace micro
