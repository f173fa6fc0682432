// GMM: minus log likelihood of a Gaussian mixture with full covariances and a Wishart prior on them; work space is
// allocated once.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

namespace micro {

// log(sum(exp(v))), without overflow.
template <class T>
T log_sum_exp(const T *v, std::int64_t count) {
  using std::exp, std::log;
  T top = v[0], sum = 0;
  for (std::int64_t i = 1; i < count; ++i)
    if (v[i] > top) top = v[i];
  for (std::int64_t i = 0; i < count; ++i) sum += exp(v[i] - top);
  return top + log(sum);
}

// |L (p - mean)|^2; L is lower triangular: its diagonal, and what is below it row by row.
template <class T>
T distance(const double *p, const T *mean, const T *diagonal, const T *below, std::int64_t d, T *centred, T *scaled) {
  for (std::int64_t i = 0; i < d; ++i) centred[i] = p[i] - mean[i];
  for (std::int64_t i = 0; i < d; ++i) {
    scaled[i] = diagonal[i] * centred[i];
    for (std::int64_t j = 0; j < i; ++j) scaled[i] += *below++ * centred[j];
  }
  T sum = 0;
  for (std::int64_t i = 0; i < d; ++i) sum += scaled[i] * scaled[i];
  return sum;
}

// x: K unnormalised log weights, K means, K factors (logarithms of the diagonal, then what is below it);
// c: prior's strength and freedom, then the points; n: d, K, number of points.
template <class T>
T gmm(const T *x, const double *c, const std::int64_t *n) {
  using std::exp;
  const std::int64_t d = n[0], parts = n[1], points = n[2], size = d * (d + 1) / 2;
  const T *means = x + parts, *factors = means + parts * d;
  std::vector<T> diagonals(parts * d), logdets(parts), centred(d), scaled(d), terms(parts);
  for (std::int64_t k = 0; k < parts; ++k) {
    logdets[k] = 0;
    for (std::int64_t j = 0; j < d; ++j) {
      diagonals[k * d + j] = exp(factors[k * size + j]);
      logdets[k] += factors[k * size + j];
    }
  }
  T sum = static_cast<double>(points) * log_sum_exp(x, parts);
  for (std::int64_t i = 0; i < points; ++i) {
    for (std::int64_t k = 0; k < parts; ++k) {
      const T square = distance(c + 2 + i * d, means + k * d, &diagonals[k * d], factors + k * size + d, d, &centred[0],
                                &scaled[0]);
      terms[k] = x[k] + logdets[k] - square * 0.5;
    }
    sum -= log_sum_exp(&terms[0], parts);
  }
  for (std::int64_t k = 0; k < parts; ++k) {
    T squares = 0;
    for (std::int64_t j = 0; j < d; ++j) squares += diagonals[k * d + j] * diagonals[k * d + j];
    for (std::int64_t j = d; j < size; ++j) squares += factors[k * size + j] * factors[k * size + j];
    sum += c[0] * c[0] * 0.5 * squares - c[1] * logdets[k];
  }
  return sum;
}

}  // namespace micro
