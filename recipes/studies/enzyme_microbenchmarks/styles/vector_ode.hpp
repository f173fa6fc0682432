// One-step methods, another style: states are std::vectors. A method is a class with its own work space, which follows
// the state's size: compared in every step, resized in every step, or sized once by the constructor.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace micro {

using Vector = std::vector<double>;

enum class Sizing { COMPARED, RESIZED, ONCE };

template <Sizing sizing>
void follow(Vector &work, std::size_t size) {
  if (sizing == Sizing::RESIZED || (sizing == Sizing::COMPARED && work.size() != size)) work.resize(size);
}

// Explicit Euler: y += h f(y, t).
template <Sizing sizing>
class VectorEuler {
  Vector slope;

 public:
  explicit VectorEuler(std::size_t size) : slope(sizing == Sizing::ONCE ? size : 0) {}

  template <class System>
  void step(const System &f, Vector &y, double t, double h) {
    follow<sizing>(slope, y.size());
    f(y, slope, t);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += h * slope[i];
  }
};

// The classical Runge-Kutta method of fourth order.
template <Sizing sizing>
class VectorRungeKutta {
  Vector k1, k2, k3, k4, at;

 public:
  explicit VectorRungeKutta(std::size_t size)
      : k1(sizing == Sizing::ONCE ? size : 0), k2(k1), k3(k1), k4(k1), at(k1) {}

  template <class System>
  void step(const System &f, Vector &y, double t, double h) {
    for (Vector *work : {&k1, &k2, &k3, &k4, &at}) follow<sizing>(*work, y.size());
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
  void move(const Vector &y, const Vector &k, double h) {
    for (std::size_t i = 0; i < y.size(); ++i) at[i] = y[i] + h * k[i];
  }
};

// From time 0 to `end` in equal steps.
template <class Method, class System>
void integrate(Method method, const System &f, Vector &y, double end, std::int64_t steps) {
  const double h = end / static_cast<double>(steps);
  for (std::int64_t i = 0; i < steps; ++i) method.step(f, y, static_cast<double>(i) * h, h);
}

}  // namespace micro
