// A number that records what it is computed from: the second derivative that a derived gradient is held against. The
// operator's own source is compiled with it as D500_DTYPE, so what has other types beside T is not compiled. Not for
// operators themselves.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <vector>

extern "C" {
__attribute__((used, visibility("default"))) int d500_line = 0;  // of the user's file, stored before every call there
}

namespace d5 {

/// A value, and the number of its node on the tape; 0 for what depends on no input.
struct taped {
  double value = 0;
  long node = 0;
  taped() = default;
  taped(double v) : value(v) {}
  template <class I, class = typename std::enable_if<std::is_integral<I>::value>::type>
  explicit operator I() const { return I(value); }
  inline taped &operator+=(taped o);
  inline taped &operator-=(taped o);
  inline taped &operator*=(taped o);
  inline taped &operator/=(taped o);
};

namespace tape {
struct step {
  long a, b;
  double da, db;
  int line;
};
constexpr std::size_t most = 2000000;
inline std::vector<step> steps;

inline taped result(double value, taped a, double da, taped b = taped(), double db = 0) {
  taped made(value);
  if (a.node <= 0 && b.node <= 0) return made;
  if (steps.size() >= most) throw std::runtime_error("the tape is full");
  made.node = long(steps.size());
  steps.push_back({a.node, b.node, da, db, d500_line});
  return made;
}
}  // namespace tape

inline taped operator+(taped a, taped b) { return tape::result(a.value + b.value, a, 1, b, 1); }
inline taped operator-(taped a, taped b) { return tape::result(a.value - b.value, a, 1, b, -1); }
inline taped operator*(taped a, taped b) { return tape::result(a.value * b.value, a, b.value, b, a.value); }
inline taped operator/(taped a, taped b) {
  const double q = a.value / b.value;
  return tape::result(q, a, 1 / b.value, b, -q / b.value);
}
inline taped operator-(taped a) { return tape::result(-a.value, a, -1); }
inline taped operator+(taped a) { return a; }
inline taped &taped::operator+=(taped o) { return *this = *this + o; }
inline taped &taped::operator-=(taped o) { return *this = *this - o; }
inline taped &taped::operator*=(taped o) { return *this = *this * o; }
inline taped &taped::operator/=(taped o) { return *this = *this / o; }
#define D500_COMPARED(SIGN) \
  inline bool operator SIGN(taped a, taped b) { return a.value SIGN b.value; }
D500_COMPARED(<)
D500_COMPARED(>)
D500_COMPARED(<=)
D500_COMPARED(>=)
D500_COMPARED(==)
D500_COMPARED(!=)
#undef D500_COMPARED

inline taped fmax(taped a, taped b) { return a < b || a != a ? b : a; }
inline taped fmin(taped a, taped b) { return b < a || a != a ? b : a; }
inline taped fma(taped a, taped b, taped c) { return a * b + c; }
inline taped hypot(taped a, taped b) {
  const double r = std::hypot(a.value, b.value);
  return tape::result(r, a, a.value / r, b, b.value / r);
}
inline taped atan2(taped a, taped b) {
  const double r = a.value * a.value + b.value * b.value;
  return tape::result(std::atan2(a.value, b.value), a, b.value / r, b, -a.value / r);
}
inline taped pow(taped a, taped b) {
  const double v = std::pow(a.value, b.value);
  const double da = b.value == 0 ? 0 : b.value * std::pow(a.value, b.value - 1);
  return tape::result(v, a, da, b, b.node ? v * std::log(a.value) : 0);
}
inline taped log1p_unit(taped x) { return tape::result(std::log1p(x.value), x, 1 / (1 + x.value)); }
inline taped fmod(taped a, taped b) {
  return tape::result(std::fmod(a.value, b.value), a, 1, b, -std::trunc(a.value / b.value));
}
inline taped copysign(taped a, taped b) {
  return tape::result(std::copysign(a.value, b.value), a, std::signbit(a.value) == std::signbit(b.value) ? 1 : -1);
}

// Functions of one number: x is the argument, f the result.
#define D500_FUNCTIONS(OF)                                                                                  \
  OF(exp, f) OF(exp2, f * 0.6931471805599453) OF(expm1, f + 1) OF(log, 1 / x) OF(log1p, 1 / (1 + x))         \
  OF(log2, 1.4426950408889634 / x) OF(log10, 0.4342944819032518 / x) OF(sqrt, 0.5 / f)                       \
  OF(cbrt, 1 / (3 * f * f)) OF(sin, std::cos(x)) OF(cos, -std::sin(x)) OF(tan, 1 + f * f)                    \
  OF(sinh, std::cosh(x)) OF(cosh, std::sinh(x)) OF(tanh, 1 - f * f) OF(asin, 1 / std::sqrt(1 - x * x))       \
  OF(acos, -1 / std::sqrt(1 - x * x)) OF(atan, 1 / (1 + x * x)) OF(fabs, std::signbit(x) ? -1 : 1)           \
  OF(abs, std::signbit(x) ? -1 : 1) OF(erf, 1.1283791670955126 * std::exp(-x * x))                           \
  OF(erfc, -1.1283791670955126 * std::exp(-x * x)) OF(floor, 0) OF(ceil, 0) OF(round, 0) OF(trunc, 0) OF(rint, 0) \
  OF(asinh, 1 / std::sqrt(x * x + 1)) OF(acosh, 1 / std::sqrt(x * x - 1)) OF(atanh, 1 / (1 - x * x)) OF(nearbyint, 0)
#define D500_FUNCTION_OF(NAME, SLOPE)                   \
  inline taped NAME(taped number) {                     \
    const double x = number.value, f = std::NAME(x);    \
    (void)f;                                            \
    return tape::result(f, number, SLOPE);              \
  }
D500_FUNCTIONS(D500_FUNCTION_OF)
#undef D500_FUNCTION_OF
inline bool isnan(taped x) { return std::isnan(x.value); }
inline bool isinf(taped x) { return std::isinf(x.value); }
inline bool isfinite(taped x) { return std::isfinite(x.value); }
inline bool signbit(taped x) { return std::signbit(x.value); }

// What deep500/blas.h and deep500/softmax.h have for numbers that Enzyme derives by rules of its own.
inline taped dot(std::size_t n, const taped *a, const taped *b) {
  taped sum;
  for (std::size_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}
inline void product(int turn_a, int turn_b, std::size_t m, std::size_t n, std::size_t k, taped alpha, const taped *a,
                    std::size_t lda, const taped *b, std::size_t ldb, taped beta, taped *c, std::size_t ldc) {
  constexpr int turned = 112;  // d5::transposed
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      taped sum;
      for (std::size_t p = 0; p < k; ++p)
        sum += a[turn_a == turned ? p * lda + i : i * lda + p] * b[turn_b == turned ? j * ldb + p : p * ldb + j];
      c[i * ldc + j] = alpha * sum + (beta.value == 0 ? taped() : beta * c[i * ldc + j]);
    }
}
inline void unread_product(int, int, std::size_t, std::size_t, std::size_t, taped, const taped *, std::size_t,
                           const taped *, std::size_t, taped *, std::size_t) {}
inline void exponentials(std::size_t n, const taped *x, taped *y) {
  const double top = n ? std::max_element(x, x + n)->value : 0;
  for (std::size_t i = 0; i < n; ++i) y[i] = exp(x[i] - top);
}

}  // namespace d5

namespace std {
#define D500_FUNCTION_OF(NAME, SLOPE) using ::d5::NAME;
D500_FUNCTIONS(D500_FUNCTION_OF)
#undef D500_FUNCTION_OF
#undef D500_FUNCTIONS
using ::d5::atan2; using ::d5::copysign; using ::d5::fma; using ::d5::fmod; using ::d5::fmax; using ::d5::fmin; using ::d5::hypot; using ::d5::pow;
using ::d5::isfinite; using ::d5::isinf; using ::d5::isnan; using ::d5::signbit;
template <>
class numeric_limits<d5::taped> : public numeric_limits<double> {};
}  // namespace std

extern "C" {
/// Forget everything; nodes 1 to `leaves` are the inputs' elements.
__attribute__((used, visibility("default"))) void d500_tape_start(long leaves) {
  d5::tape::steps.assign(std::size_t(leaves) + 1, {0, 0, 0, 0, 0});
}
/// Derivatives by the leaves of the sum of seeds times nodes, without what goes through steps of the line `dropped`.
__attribute__((used, visibility("default"))) void d500_tape_reverse(const long *nodes, const double *seeds, long count,
                                                                    long leaves, int dropped, double *gradient) {
  const std::vector<d5::tape::step> &steps = d5::tape::steps;
  const long size = long(steps.size());
  std::vector<double> adjoint(steps.size());
  for (long i = 0; i < count; ++i)
    if (nodes[i] > 0 && nodes[i] < size) adjoint[nodes[i]] += seeds[i];
  for (long i = size - 1; i > leaves; --i) {
    const d5::tape::step &s = steps[i];
    if (adjoint[i] == 0 || s.line == dropped) continue;
    if (s.a > 0 && s.a < i) adjoint[s.a] += adjoint[i] * s.da;
    if (s.b > 0 && s.b < i) adjoint[s.b] += adjoint[i] * s.db;
  }
  std::copy(adjoint.begin() + 1, adjoint.begin() + 1 + leaves, gradient);
}
/// Which lines have steps: `seen[line]` is set to 1 for those below `count`.
__attribute__((used, visibility("default"))) void d500_tape_lines(char *seen, int count) {
  for (const d5::tape::step &s : d5::tape::steps)
    if (s.line > 0 && s.line < count) seen[s.line] = 1;
}
}
