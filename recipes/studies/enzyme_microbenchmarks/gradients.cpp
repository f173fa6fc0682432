// NAME_gradient by Enzyme for every benchmark; compiled in both orders, see building.py.
// A gradient is added to `dx`, which the caller fills with zeros.
#include "benchmarks.hpp"

template <class R, class... Arguments>
R __enzyme_autodiff(void *, Arguments...);
extern int enzyme_dup, enzyme_const;

#define GRADIENT(NAME)                                                                                   \
  extern "C" void NAME##_gradient(const double *x, double *dx, const double *c, const std::int64_t *n) { \
    __enzyme_autodiff<void>((void *)micro::NAME, enzyme_dup, x, dx, enzyme_const, c, enzyme_const, n);   \
  }

FOR_ALL_BENCHMARKS(GRADIENT)
