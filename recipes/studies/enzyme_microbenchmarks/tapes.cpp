// NAME_gradient for every benchmark by a tool that overloads operators; TAPE is the header beside this file that wraps it.
// The tape is recorded anew in every call. The same templates as for Enzyme are instantiated with the tool's number.
#include TAPE
#include "benchmarks.hpp"

#define BENCHMARK(NAME)                                                                                                \
  extern "C" void NAME##_gradient(const double *x, double *dx, const double *c, const std::int64_t *n, std::int64_t m) { \
    double value;                                                                                                      \
    differentiate([&](const Real *at, Real *out) { *out = micro::NAME<Real>(at, c, n); }, x, m, 1, &value, dx);        \
  }

FOR_BENCHMARKS(BENCHMARK)

#ifdef BA_BY_ROWS
extern "C" void ba_gradient(const double *x, double *dx, const double *c, const std::int64_t *n, std::int64_t) {
  const auto rows = [](const double *camera, const double *point, const double *weight, const double *seen,
                       double *error, double (*row)[micro::ROW]) {
    double at[micro::ROW];
    for (int i = 0; i < micro::CAMERA; ++i) at[i] = camera[i];
    for (int i = 0; i < 3; ++i) at[micro::CAMERA + i] = point[i];
    at[micro::CAMERA + 3] = *weight;
    const auto f = [seen](const Real *p, Real *out) {
      micro::reproject<Real>(p, p + micro::CAMERA, p + micro::CAMERA + 3, seen, out);
    };
    differentiate(f, at, micro::ROW, 2, error, row[0]);
  };
  const auto last = [](const double *weight) {
    double error, slope = 0;
    differentiate([](const Real *p, Real *out) { micro::slack<Real>(p, out); }, weight, 1, 1, &error, &slope);
    return slope;
  };
  micro::ba_by_rows(x, dx, c, n, rows, last);
}
#endif
