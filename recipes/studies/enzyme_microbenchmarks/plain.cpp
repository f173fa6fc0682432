// NAME_primal for every benchmark, and NAME_gradient written by hand for some; compiled without Enzyme.
#include "benchmarks.hpp"
#include "brusselator_by_hand.hpp"
#include "fft_by_hand.hpp"
#include "gmm_by_hand.hpp"
#include "oscillator_by_hand.hpp"

#define PRIMAL(NAME)                                                                         \
  extern "C" double NAME##_primal(const double *x, const double *c, const std::int64_t *n) { \
    return micro::NAME(x, c, n);                                                             \
  }

#define GRADIENT(NAME)                                                                                   \
  extern "C" void NAME##_gradient(const double *x, double *dx, const double *c, const std::int64_t *n) { \
    micro::NAME##_by_hand(x, dx, c, n);                                                                  \
  }

FOR_ALL_BENCHMARKS(PRIMAL)
GRADIENT(gmm)
GRADIENT(euler)
GRADIENT(rk4)
GRADIENT(fft)
GRADIENT(brusselator)
