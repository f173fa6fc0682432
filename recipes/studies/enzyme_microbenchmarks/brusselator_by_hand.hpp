// Gradient of the Brusselator benchmark by hand: the state is kept after every step, slopes are computed again.
#pragma once
#include "brusselator.hpp"

namespace micro {

// out = (Jacobian of the slope at y)^T slope_gradient; gradients of a and b are added to `d`.
inline void pull_back(const Brusselator &f, const State &y, const State &slope_gradient, State &out, double *d) {
  const std::int64_t side = f.side, cells = side * side;
  const double *ku = slope_gradient.data(), *kv = ku + cells;
  for (std::int64_t i = 0; i < side; ++i) {
    const std::int64_t up = (i + side - 1) % side * side, here = i * side, down = (i + 1) % side * side;
    for (std::int64_t j = 0; j < side; ++j) {
      const std::int64_t left = (j + side - 1) % side, right = (j + 1) % side, at = here + j;
      const double u = y[at], v = y[cells + at], difference = ku[at] - kv[at];
      const double spread_u = ku[up + j] + ku[down + j] + ku[here + left] + ku[here + right] - 4 * ku[at];
      const double spread_v = kv[up + j] + kv[down + j] + kv[here + left] + kv[here + right] - 4 * kv[at];
      out[at] = difference * (2 * u * v - f.b) - ku[at] + f.diffusion * spread_u;
      out[cells + at] = difference * u * u + f.diffusion * spread_v;
      d[0] += ku[at];
      d[1] -= difference * u;
    }
  }
}

inline void add(const State &y, const State &k, double h, State &out) {
  for (std::size_t i = 0; i < y.size(); ++i) out[i] = y[i] + h * k[i];
}

// Turns the gradient g of the state after a step into that of the state y before it.
inline void step_back(const Brusselator &f, const State &y, State &g, double h, double *d, std::vector<State> &work) {
  State &k = work[0], &second = work[1], &third = work[2], &fourth = work[3], &back = work[4], &sum = work[5];
  f(y, k, 0);
  add(y, k, h / 2, second);
  f(second, k, 0);
  add(y, k, h / 2, third);
  f(third, k, 0);
  add(y, k, h, fourth);
  sum = g;
  const State *points[] = {&fourth, &third, &second, &y};
  const double weight[] = {h / 6, h / 3, h / 3, h / 6}, reach[] = {0, h, h / 2, h / 2};
  for (int stage = 0; stage < 4; ++stage) {
    for (std::size_t i = 0; i < g.size(); ++i) k[i] = weight[stage] * g[i] + (stage ? reach[stage] * back[i] : 0);
    pull_back(f, *points[stage], k, back, d);
    for (std::size_t i = 0; i < g.size(); ++i) sum[i] += back[i];
  }
  g.swap(sum);
}

inline void brusselator_by_hand(const double *x, double *dx, const double *c, const std::int64_t *n) {
  const std::int64_t size = 2 * n[1] * n[1], steps = n[0];
  const Brusselator f{x[0], x[1], c[0], n[1]};
  const double h = c[1] / static_cast<double>(steps);
  std::vector<State> states(steps, State(x + 2, x + 2 + size)), work(6, State(size));
  RungeKutta4 method;
  for (std::int64_t i = 1; i < steps; ++i) {
    states[i] = states[i - 1];
    method.step(f, states[i], 0, h);
  }
  State g(c + 2, c + 2 + size);
  for (std::int64_t i = steps; i-- > 0;) step_back(f, states[i], g, h, dx, work);
  for (std::int64_t i = 0; i < size; ++i) dx[2 + i] += g[i];
}

}  // namespace micro
