// Brusselator, another style: states are std::vectors on a periodic square, and 100 steps of RK4 are differentiated.
#pragma once
#include "vector_ode.hpp"

namespace micro {

// u' = a + u^2 v - (b + 1) u + d Laplace(u), v' = b u - u^2 v + d Laplace(v); the state holds all u, then all v.
struct Brusselator {
  double a, b, diffusion;
  std::int64_t side;

  void operator()(const Vector &y, Vector &slope, double) const {
    const std::int64_t cells = side * side;
    for (std::int64_t i = 0; i < side; ++i) {
      const std::int64_t up = (i + side - 1) % side * side, here = i * side, down = (i + 1) % side * side;
      for (std::int64_t j = 0; j < side; ++j) {
        const std::int64_t left = (j + side - 1) % side, right = (j + 1) % side;
        const double u = y[here + j], v = y[cells + here + j], reaction = u * u * v;
        const double spread_u = y[up + j] + y[down + j] + y[here + left] + y[here + right] - 4 * u;
        const double spread_v = y[cells + up + j] + y[cells + down + j] + y[cells + here + left] +
                                y[cells + here + right] - 4 * v;
        slope[here + j] = a + reaction - (b + 1) * u + diffusion * spread_u;
        slope[cells + here + j] = b * u - reaction + diffusion * spread_v;
      }
    }
  }
};

// x: a, b and the state at the start; c: diffusion per squared cell, end, then weights of the final state;
// n: steps, side.
inline double brusselator_integrated(const double *x, const double *c, const std::int64_t *n) {
  const std::int64_t size = 2 * n[1] * n[1];
  Vector y(x + 2, x + 2 + size);
  integrate(VectorRungeKutta<Sizing::COMPARED>(size), Brusselator{x[0], x[1], c[0], n[1]}, y, c[1], n[0]);
  double sum = 0;
  for (std::int64_t i = 0; i < size; ++i) sum += c[2 + i] * y[i];
  return sum;
}

}  // namespace micro
