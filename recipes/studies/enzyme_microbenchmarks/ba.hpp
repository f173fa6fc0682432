// BA: bundle adjustment, the sum of squared weighted reprojection errors of points seen by cameras with distortion.
#pragma once
#include <cmath>
#include <cstdint>

namespace micro {

constexpr int CAMERA = 11;  // rotation vector (3), centre (3), focal length, principal point (2), radial distortion (2)

// Rotation by the vector's length around its direction (Rodrigues' formula).
inline void rotate(const double *vector, const double *p, double *out) {
  const double square = vector[0] * vector[0] + vector[1] * vector[1] + vector[2] * vector[2];
  const double cross[3] = {vector[1] * p[2] - vector[2] * p[1], vector[2] * p[0] - vector[0] * p[2],
                           vector[0] * p[1] - vector[1] * p[0]};
  if (square == 0) {
    for (int i = 0; i < 3; ++i) out[i] = p[i] + cross[i];
    return;
  }
  const double angle = std::sqrt(square), cosine = std::cos(angle), sinc = std::sin(angle) / angle;
  const double along = (vector[0] * p[0] + vector[1] * p[1] + vector[2] * p[2]) * (1 - cosine) / square;
  for (int i = 0; i < 3; ++i) out[i] = p[i] * cosine + cross[i] * sinc + vector[i] * along;
}

// Where a camera sees a point.
inline void project(const double *camera, const double *point, double *pixel) {
  double shifted[3], seen[3];
  for (int i = 0; i < 3; ++i) shifted[i] = point[i] - camera[3 + i];
  rotate(camera, shifted, seen);
  const double x = seen[0] / seen[2], y = seen[1] / seen[2], square = x * x + y * y;
  const double stretch = camera[6] * (1 + camera[9] * square + camera[10] * square * square);
  pixel[0] = stretch * x + camera[7];
  pixel[1] = stretch * y + camera[8];
}

// x: cameras, points, a weight for every observation; c: the observed pixels;
// n: cameras, points, observations, then (camera, point) of every observation.
inline double ba(const double *x, const double *c, const std::int64_t *n) {
  const double *points = x + CAMERA * n[0], *weights = points + 3 * n[1];
  const std::int64_t *pairs = n + 3;
  double sum = 0;
  for (std::int64_t i = 0; i < n[2]; ++i) {
    double pixel[2];
    project(x + CAMERA * pairs[2 * i], points + 3 * pairs[2 * i + 1], pixel);
    for (int axis = 0; axis < 2; ++axis) {
      const double error = weights[i] * (pixel[axis] - c[2 * i + axis]);
      sum += error * error;
    }
    const double slack = 1 - weights[i] * weights[i];
    sum += slack * slack;
  }
  return sum;
}

}  // namespace micro
