// NAME_primal for every benchmark and style, and NAME_gradient written by hand; compiled without Enzyme.
#include "benchmarks.hpp"
#include "by_hand/all.hpp"
#include "styles/all.hpp"

#define PRIMAL(NAME, FUNCTION)                                                               \
  extern "C" double NAME##_primal(const double *x, const double *c, const std::int64_t *n) { \
    return micro::FUNCTION(x, c, n);                                                         \
  }
#define BENCHMARK(NAME) PRIMAL(NAME, NAME<double>)
#define STYLE(NAME) PRIMAL(NAME, NAME)

#define GRADIENT(NAME)                                                                                                 \
  extern "C" void NAME##_gradient(const double *x, double *dx, const double *c, const std::int64_t *n, std::int64_t) { \
    micro::NAME##_by_hand(x, dx, c, n);                                                                                \
  }

FOR_BENCHMARKS(BENCHMARK)
FOR_STYLES(STYLE)
FOR_BENCHMARKS(GRADIENT)
