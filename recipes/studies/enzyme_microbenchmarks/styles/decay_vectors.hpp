// Euler and RK4, other styles: the same decay with states that are std::vectors.
#pragma once
#include "vector_ode.hpp"

namespace micro {

// x: y at the start, rate, end; n: steps.
template <class Method>
double decay_vectors(const double *x, const double *, const std::int64_t *n) {
  Vector y(1, x[0]);
  const double rate = x[1];
  integrate(Method(1), [rate](const Vector &at, Vector &slope, double) { slope[0] = -rate * at[0]; }, y, x[2], n[0]);
  return y[0];
}

constexpr auto euler_compared = decay_vectors<VectorEuler<Sizing::COMPARED>>;
constexpr auto euler_resized = decay_vectors<VectorEuler<Sizing::RESIZED>>;
constexpr auto euler_once = decay_vectors<VectorEuler<Sizing::ONCE>>;
constexpr auto rk4_compared = decay_vectors<VectorRungeKutta<Sizing::COMPARED>>;
constexpr auto rk4_resized = decay_vectors<VectorRungeKutta<Sizing::RESIZED>>;
constexpr auto rk4_once = decay_vectors<VectorRungeKutta<Sizing::ONCE>>;

}  // namespace micro
