// Gradient of the Brusselator benchmark by hand: the transposed stencil, in gathered form.
#pragma once
#include "../brusselator.hpp"

namespace micro {

template <int N>
void brusselator_back(const double *x, double *dx, const double *c) {
  constexpr int cells = N * N, scale = (N - 1) * (N - 1);
  const double a = x[0], spread = x[2] * scale, *u = x + 3, *v = u + cells, *gu = c, *gv = c + cells;
  double *du = dx + 3, *dv = du + cells, of_a = 0, of_b = 0, of_spread = 0;
  for (int i = 0; i < N; ++i) {
    const int up = (i ? i - 1 : 0) * N, here = i * N, down = (i < N - 1 ? i + 1 : i) * N;
    for (int j = 0; j < N; ++j) {
      // The stencil is symmetric, borders too: its transpose is itself.
      const int left = here + (j ? j - 1 : 0), right = here + (j < N - 1 ? j + 1 : j), at = here + j;
      const double difference = gu[at] - gv[at];
      const double spread_u = gu[up + j] + gu[down + j] + gu[left] + gu[right] - 4 * gu[at];
      const double spread_v = gv[up + j] + gv[down + j] + gv[left] + gv[right] - 4 * gv[at];
      du[at] += difference * (2 * u[at] * v[at] - a) - gu[at] + spread * spread_u;
      dv[at] += difference * u[at] * u[at] + spread * spread_v;
      of_a -= difference * u[at];
      of_b += gu[at];
      of_spread += spread_u * u[at] + spread_v * v[at];
    }
  }
  dx[0] += of_a, dx[1] += of_b, dx[2] += of_spread * scale;
}

inline void brusselator_by_hand(const double *x, double *dx, const double *c, const std::int64_t *n) {
  FOR_SIDE(n[0], brusselator_back, x, dx, c)
}

}  // namespace micro
