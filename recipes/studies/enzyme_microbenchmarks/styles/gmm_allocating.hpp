// GMM, another style: work space is allocated for every point and part, exponentials are computed where they are used.
#pragma once
#include "../gmm.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

namespace micro {

// |L (p - mean)|^2; L is lower triangular: its diagonal as logarithms, then what is below it row by row.
inline double distance(const double *p, const double *mean, const double *factor, std::int64_t d) {
  std::vector<double> centred(d);
  for (std::int64_t i = 0; i < d; ++i) centred[i] = p[i] - mean[i];
  const double *below = factor + d;
  double sum = 0;
  for (std::int64_t i = 0; i < d; ++i) {
    double row = std::exp(factor[i]) * centred[i];
    for (std::int64_t j = 0; j < i; ++j) row += *below++ * centred[j];
    sum += row * row;
  }
  return sum;
}

// Minus log of the prior's density without constants: half of |L|^2 strength^2, minus freedom times log det L.
inline double prior(const double *factor, std::int64_t d, double strength, double freedom) {
  double squares = 0, logarithms = 0;
  for (std::int64_t i = 0; i < d; ++i) {
    squares += std::exp(2 * factor[i]);
    logarithms += factor[i];
  }
  for (std::int64_t i = d; i < d * (d + 1) / 2; ++i) squares += factor[i] * factor[i];
  return strength * strength / 2 * squares - freedom * logarithms;
}

// x: K unnormalised log weights, K means, K factors; c: prior's strength and freedom, then the points;
// n: d, K, number of points.
inline double gmm_allocating(const double *x, const double *c, const std::int64_t *n) {
  const std::int64_t d = n[0], parts = n[1], points = n[2], size = d * (d + 1) / 2;
  const double *means = x + parts, *factors = means + parts * d;
  std::vector<double> weights(x, x + parts), terms(parts);
  double sum = static_cast<double>(points) * log_sum_exp(&weights[0], parts);
  for (std::int64_t i = 0; i < points; ++i) {
    for (std::int64_t k = 0; k < parts; ++k) {
      double logdet = 0;
      for (std::int64_t j = 0; j < d; ++j) logdet += factors[k * size + j];
      terms[k] = weights[k] + logdet - distance(c + 2 + i * d, means + k * d, factors + k * size, d) / 2;
    }
    sum -= log_sum_exp(&terms[0], parts);
  }
  for (std::int64_t k = 0; k < parts; ++k) sum += prior(factors + k * size, d, c[0], c[1]);
  return sum;
}

}  // namespace micro
