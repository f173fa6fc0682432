// The exponentials of a softmax, with a gradient that reads them instead of computing them again.
#pragma once

#include <cstddef>

#include "deep500/math.h"

#ifdef D500_DERIVED
#define D500_ROW extern "C" __attribute__((noinline, used, visibility("hidden"))) inline
#define D500_GRADIENT(NAME) \
  __attribute__((used)) inline void *__enzyme_register_gradient_##NAME[3] = {(void *)NAME, (void *)NAME##_kept, (void *)NAME##_gradient};
#else
#define D500_ROW extern "C" __attribute__((visibility("hidden"))) inline
#define D500_GRADIENT(NAME)
#endif

namespace d500_detail {

/// The largest of n numbers, sixteen of them side by side.
template <class T>
inline T largest(const T *x, std::size_t n) {
  T part[16], most = x[0];
  for (int lane = 0; lane < 16; ++lane) part[lane] = x[0];
  std::size_t i = 0;
  for (; i + 16 <= n; i += 16)
    for (int lane = 0; lane < 16; ++lane) part[lane] = x[i + lane] > part[lane] ? x[i + lane] : part[lane];
  for (; i < n; ++i) most = x[i] > most ? x[i] : most;
  for (int lane = 0; lane < 16; ++lane) most = part[lane] > most ? part[lane] : most;
  return most;
}

#define D500_EXPONENTIALS(NAME, EXP, T)                                                                              \
  D500_ROW void NAME(const T *__restrict__ x, T *__restrict__ y, const std::size_t *count) {                         \
    const std::size_t n = *count;                                                                                    \
    const T top = n ? largest(x, n) : T(0);                                                                          \
    for (std::size_t i = 0; i < n; ++i) y[i] = EXP(x[i] - top);                                                      \
  }                                                                                                                  \
  D500_ROW void *NAME##_kept(const T *x, T *, T *y, T *, const std::size_t *count, std::size_t *) {                  \
    NAME(x, y, count);                                                                                               \
    return nullptr;                                                                                                  \
  }                                                                                                                  \
  D500_ROW void NAME##_gradient(const T *, T *__restrict__ dx, const T *__restrict__ y, T *__restrict__ dy,          \
                                const std::size_t *count, std::size_t *, void *) {                                   \
    const std::size_t n = *count;                                                                                    \
    for (std::size_t i = 0; i < n; ++i) {                                                                            \
      dx[i] += dy[i] * y[i];                                                                                         \
      dy[i] = T(0);                                                                                                  \
    }                                                                                                                \
  }                                                                                                                  \
  D500_GRADIENT(NAME)
D500_EXPONENTIALS(d500_exponentialsf, d5_expf, float)
D500_EXPONENTIALS(d500_exponentials, d5_exp, double)

}  // namespace d500_detail

namespace d5 {

/// y[i] = e^(x[i] - max(x)), for softmax: what is divided by the sum of y does not depend on max(x), which a derived gradient
/// takes for a constant. That gradient reads y, so nothing else may be written there afterwards.
inline void exponentials(std::size_t n, const float *x, float *y) { d500_detail::d500_exponentialsf(x, y, &n); }
inline void exponentials(std::size_t n, const double *x, double *y) { d500_detail::d500_exponentials(x, y, &n); }

}  // namespace d5
