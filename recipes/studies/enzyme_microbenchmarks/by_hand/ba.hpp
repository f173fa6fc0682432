// Rows of the BA benchmark's Jacobian by hand.
#pragma once
#include "../ba.hpp"

namespace micro {

// Both rows from the gradients of the two pixels; with `seen` = R p and p = point - centre.
inline void ba_rows_by_hand(const double *camera, const double *point, const double *weight, const double *target,
                            double *error, double (*row)[ROW]) {
  const double *r = camera, p[3] = {point[0] - camera[3], point[1] - camera[4], point[2] - camera[5]};
  const double square = r[0] * r[0] + r[1] * r[1] + r[2] * r[2], dot = r[0] * p[0] + r[1] * p[1] + r[2] * p[2];
  // seen = p A + (r x p) B + r dot C, with derivatives of A, B and C for half of square.
  double a = 1, b = 1, c = 0.5, da = -1, db = -1. / 3, dc = -1. / 12;
  if (square > 0) {
    const double angle = std::sqrt(square);
    a = std::cos(angle), b = std::sin(angle) / angle, c = (1 - a) / square;
    da = -b, db = (a - b) / square, dc = (b - 2 * c) / square;
  }
  const double cross[3] = {r[1] * p[2] - r[2] * p[1], r[2] * p[0] - r[0] * p[2], r[0] * p[1] - r[1] * p[0]};
  double seen[3];
  for (int i = 0; i < 3; ++i) seen[i] = p[i] * a + cross[i] * b + r[i] * dot * c;
  const double x = seen[0] / seen[2], y = seen[1] / seen[2], radius = x * x + y * y;
  const double bend = 1 + camera[9] * radius + camera[10] * radius * radius, stretch = camera[6] * bend;
  const double bend_slope = camera[6] * (camera[9] + 2 * camera[10] * radius), w = *weight;
  for (int axis = 0; axis < 2; ++axis) {
    const double place = axis ? y : x, off = stretch * place + camera[7 + axis] - target[axis];
    double *out = row[axis], *d_camera = out, *d_point = out + CAMERA;
    error[axis] = w * off;
    out[CAMERA + 3] = off;
    d_camera[6] = w * bend * place;
    d_camera[7] = axis ? 0 : w, d_camera[8] = axis ? w : 0;
    d_camera[9] = w * camera[6] * radius * place;
    d_camera[10] = w * camera[6] * radius * radius * place;
    const double gx = w * (2 * bend_slope * x * place + (axis ? 0 : stretch));
    const double gy = w * (2 * bend_slope * y * place + (axis ? stretch : 0));
    const double g[3] = {gx / seen[2], gy / seen[2], -(gx * x + gy * y) / seen[2]};
    const double along_p = g[0] * p[0] + g[1] * p[1] + g[2] * p[2], along_r = g[0] * r[0] + g[1] * r[1] + g[2] * r[2];
    const double along_cross = g[0] * cross[0] + g[1] * cross[1] + g[2] * cross[2];
    // g . (r x p) has the gradients p x g for r and g x r for p.
    const double for_r[3] = {p[1] * g[2] - p[2] * g[1], p[2] * g[0] - p[0] * g[2], p[0] * g[1] - p[1] * g[0]};
    const double for_p[3] = {g[1] * r[2] - g[2] * r[1], g[2] * r[0] - g[0] * r[2], g[0] * r[1] - g[1] * r[0]};
    const double by_square = da * along_p + db * along_cross + dc * dot * along_r;
    for (int i = 0; i < 3; ++i) {
      d_camera[i] = r[i] * by_square + b * for_r[i] + c * (g[i] * dot + along_r * p[i]);
      d_point[i] = a * g[i] + b * for_p[i] + c * along_r * r[i];
      d_camera[3 + i] = -d_point[i];
    }
  }
}

inline void ba_by_hand(const double *x, double *dx, const double *c, const std::int64_t *n) {
  ba_by_rows(x, dx, c, n, ba_rows_by_hand, [](const double *weight) { return -2 * *weight; });
}

}  // namespace micro
