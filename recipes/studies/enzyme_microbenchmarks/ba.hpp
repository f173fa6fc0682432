// BA: bundle adjustment, weighted reprojection errors of points seen by cameras with distortion. Rows of the Jacobian are
// computed one observation at a time; weighed by their errors they add up to the gradient of the sum of squares.
#pragma once
#include <cmath>
#include <cstdint>

namespace micro {

constexpr int CAMERA = 11;  // rotation vector (3), centre (3), focal length, principal point (2), radial distortion (2)

// Rotation by the vector's length around its direction (Rodrigues' formula).
template <class T>
void rotate(const T *vector, const T *p, T *out) {
  using std::sqrt, std::sin, std::cos;
  const T square = vector[0] * vector[0] + vector[1] * vector[1] + vector[2] * vector[2];
  const T cross[3] = {vector[1] * p[2] - vector[2] * p[1], vector[2] * p[0] - vector[0] * p[2],
                      vector[0] * p[1] - vector[1] * p[0]};
  if (square == 0.0) {
    for (int i = 0; i < 3; ++i) out[i] = p[i] + cross[i];
    return;
  }
  const T angle = sqrt(square), cosine = cos(angle), sinc = sin(angle) / angle;
  const T along = (vector[0] * p[0] + vector[1] * p[1] + vector[2] * p[2]) * (1.0 - cosine) / square;
  for (int i = 0; i < 3; ++i) out[i] = p[i] * cosine + cross[i] * sinc + vector[i] * along;
}

// Where a camera sees a point.
template <class T>
void project(const T *camera, const T *point, T *pixel) {
  T shifted[3], seen[3];
  for (int i = 0; i < 3; ++i) shifted[i] = point[i] - camera[3 + i];
  rotate(camera, shifted, seen);
  const T x = seen[0] / seen[2], y = seen[1] / seen[2], square = x * x + y * y;
  const T stretch = camera[6] * (1.0 + camera[9] * square + camera[10] * square * square);
  pixel[0] = stretch * x + camera[7];
  pixel[1] = stretch * y + camera[8];
}

// Both errors of an observation.
template <class T>
void reproject(const T *camera, const T *point, const T *weight, const double *seen, T *error) {
  T pixel[2];
  project(camera, point, pixel);
  for (int axis = 0; axis < 2; ++axis) error[axis] = *weight * (pixel[axis] - seen[axis]);
}

// The error that keeps a weight near 1.
template <class T>
void slack(const T *weight, T *error) {
  *error = 1.0 - *weight * *weight;
}

// x: cameras, points, a weight for every observation; c: the observed pixels;
// n: cameras, points, observations, then (camera, point) of every observation.
template <class T>
T ba(const T *x, const double *c, const std::int64_t *n) {
  const T *points = x + CAMERA * n[0], *weights = points + 3 * n[1];
  const std::int64_t *pairs = n + 3;
  T sum = 0;
  for (std::int64_t i = 0; i < n[2]; ++i) {
    T error[3];
    reproject(x + CAMERA * pairs[2 * i], points + 3 * pairs[2 * i + 1], weights + i, c + 2 * i, error);
    slack(weights + i, error + 2);
    for (const T &e : error) sum += e * e;
  }
  return sum;
}

constexpr int ROW = CAMERA + 3 + 1;

// dx += the gradient; rows(camera, point, weight, seen, error, row) fills error[0], error[1] and row[0], row[1] with
// their ROW derivatives; last(weight) returns the derivative of the slack.
template <class Rows, class Last>
void ba_by_rows(const double *x, double *dx, const double *c, const std::int64_t *n, Rows rows, Last last) {
  const std::int64_t start = CAMERA * n[0], weights = start + 3 * n[1], *pairs = n + 3;
  for (std::int64_t i = 0; i < n[2]; ++i) {
    const std::int64_t camera = CAMERA * pairs[2 * i], point = start + 3 * pairs[2 * i + 1], weight = weights + i;
    double error[2], row[2][ROW] = {}, rest;
    rows(x + camera, x + point, x + weight, c + 2 * i, error, row);
    for (int axis = 0; axis < 2; ++axis) {
      const double scale = 2 * error[axis], *from = row[axis];
      for (int j = 0; j < CAMERA; ++j) dx[camera + j] += scale * from[j];
      for (int j = 0; j < 3; ++j) dx[point + j] += scale * from[CAMERA + j];
      dx[weight] += scale * from[CAMERA + 3];
    }
    slack(x + weight, &rest);
    dx[weight] += 2 * rest * last(x + weight);
  }
}

}  // namespace micro
