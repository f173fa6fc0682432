// Gradient of the GMM benchmark by hand: responsibilities of the parts for a point weigh the gradients of its terms.
#pragma once
#include "../gmm.hpp"

namespace micro {

// v becomes exp(v) / sum(exp(v)).
inline void softmax(std::vector<double> &v) {
  const double total = log_sum_exp(v.data(), static_cast<std::int64_t>(v.size()));
  for (double &value : v) value = std::exp(value - total);
}

inline void gmm_by_hand(const double *x, double *dx, const double *c, const std::int64_t *n) {
  const std::int64_t d = n[0], parts = n[1], points = n[2], size = d * (d + 1) / 2;
  const double *means = x + parts, *factors = means + parts * d;
  double *d_means = dx + parts, *d_factors = d_means + parts * d;
  std::vector<double> weights(x, x + parts), share(parts), diagonal(parts * d), logdet(parts);
  std::vector<double> centred(parts * d), scaled(parts * d);
  for (std::int64_t k = 0; k < parts; ++k)
    for (std::int64_t j = 0; j < d; ++j) {
      diagonal[k * d + j] = std::exp(factors[k * size + j]);
      logdet[k] += factors[k * size + j];
    }
  softmax(weights);
  for (std::int64_t k = 0; k < parts; ++k) dx[k] += static_cast<double>(points) * weights[k];
  for (std::int64_t i = 0; i < points; ++i) {
    for (std::int64_t k = 0; k < parts; ++k) {
      const double *below = factors + k * size + d;
      double *from = &centred[k * d], square = 0;
      for (std::int64_t j = 0; j < d; ++j) {
        from[j] = c[2 + i * d + j] - means[k * d + j];
        double row = diagonal[k * d + j] * from[j];
        for (std::int64_t l = 0; l < j; ++l) row += *below++ * from[l];
        scaled[k * d + j] = row;
        square += row * row;
      }
      share[k] = x[k] + logdet[k] - square / 2;
    }
    softmax(share);
    for (std::int64_t k = 0; k < parts; ++k) {
      const double *below = factors + k * size + d, *from = &centred[k * d];
      double *d_diagonal = d_factors + k * size, *d_below = d_diagonal + d, *d_mean = d_means + k * d;
      dx[k] -= share[k];
      for (std::int64_t j = 0; j < d; ++j) {
        const double row = share[k] * scaled[k * d + j];
        d_diagonal[j] += row * diagonal[k * d + j] * from[j] - share[k];
        d_mean[j] -= row * diagonal[k * d + j];
        for (std::int64_t l = 0; l < j; ++l) {
          *d_below++ += row * from[l];
          d_mean[l] -= row * *below++;
        }
      }
    }
  }
  for (std::int64_t k = 0; k < parts; ++k)
    for (std::int64_t j = 0; j < size; ++j) {
      const double factor = factors[k * size + j], scale = j < d ? diagonal[k * d + j] : 0;
      d_factors[k * size + j] += c[0] * c[0] * (j < d ? scale * scale : factor) - (j < d ? c[1] : 0);
    }
}

}  // namespace micro
