// NAME_gradient by Enzyme for every benchmark and style; compiled in both orders, see building.py.
// A gradient is added to `dx`, which the caller fills with zeros.
#include "benchmarks.hpp"
#include "styles/all.hpp"

template <class R, class... Arguments>
R __enzyme_autodiff(void *, Arguments...);
extern int enzyme_dup, enzyme_dupnoneed, enzyme_const;

#define GRADIENT(NAME, FUNCTION)                                                                                     \
  extern "C" void NAME##_gradient(const double *x, double *dx, const double *c, const std::int64_t *n, std::int64_t) { \
    __enzyme_autodiff<void>((void *)(micro::FUNCTION), enzyme_dup, x, dx, enzyme_const, c, enzyme_const, n);             \
  }
#define BENCHMARK(NAME) GRADIENT(NAME, NAME<double>)
#define STYLE(NAME) GRADIENT(NAME, NAME)

FOR_BENCHMARKS(BENCHMARK)
FOR_STYLES(STYLE)

#ifdef BA_BY_ROWS
extern "C" void ba_gradient(const double *x, double *dx, const double *c, const std::int64_t *n, std::int64_t) {
  const auto rows = [](const double *camera, const double *point, const double *weight, const double *seen,
                       double *error, double (*row)[micro::ROW]) {
    for (int axis = 0; axis < 2; ++axis) {
      double seeds[2] = {}, *into = row[axis];
      seeds[axis] = 1;
      __enzyme_autodiff<void>((void *)micro::reproject<double>, enzyme_dup, camera, into, enzyme_dup, point,
                              into + micro::CAMERA, enzyme_dup, weight, into + micro::CAMERA + 3, enzyme_const, seen,
                              enzyme_dup, error, seeds);
    }
  };
  const auto last = [](const double *weight) {
    double error, seed = 1, slope = 0;
    __enzyme_autodiff<void>((void *)micro::slack<double>, enzyme_dup, weight, &slope, enzyme_dupnoneed, &error, &seed);
    return slope;
  };
  micro::ba_by_rows(x, dx, c, n, rows, last);
}
#endif

#ifdef BRUSSELATOR_SLOPES
// The slopes are written to arrays whose shadows hold their weights.
template <int N>
static void brusselator_gradient_sized(const double *x, double *dx, const double *c) {
  constexpr int cells = N * N;
  double slopes[2 * cells], weights[2 * cells];
  for (int i = 0; i < 2 * cells; ++i) weights[i] = c[i];
  __enzyme_autodiff<void>((void *)micro::brusselator_slope<N, double>, enzyme_dup, x + 3, dx + 3, enzyme_dup,
                          x + 3 + cells, dx + 3 + cells, enzyme_dup, x, dx, enzyme_dupnoneed, slopes, weights,
                          enzyme_dupnoneed, slopes + cells, weights + cells);
}

extern "C" void brusselator_gradient(const double *x, double *dx, const double *c, const std::int64_t *n,
                                     std::int64_t) {
  FOR_SIDE(n[0], brusselator_gradient_sized, x, dx, c)
}
#endif
