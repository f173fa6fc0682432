"""Operators in C++ without a gradient, for the tests of Enzyme."""

from __future__ import annotations

KITCHEN = """
#include <cmath>
#include <functional>
#include <memory>
#include <vector>
#include "deep500/deep500.h"
struct curve { virtual double at(double x) const = 0; virtual ~curve() {} };
struct sine : curve { double at(double x) const override { return std::sin(x); } };
struct cube : curve { double at(double x) const override { return x * x * x; } };
template <int n> struct power { template <class T> static T of(T x) { return x * power<n - 1>::of(x); } };
template <> struct power<0> { template <class T> static T of(T) { return T(1); } };
struct kitchen : deep500::CustomOperator {
  std::size_t n;
  explicit kitchen(std::size_t n) : n(n) {}
  void forward(const double *x, double *y) {
    std::vector<double> grown;                          // grows
    for (std::size_t i = 0; i < n; ++i) {
      const curve *c = i % 2 ? static_cast<const curve *>(new sine) : new cube;  // allocation, virtual call
      grown.push_back(c->at(x[i]));
      delete c;
    }
    std::unique_ptr<double[]> kept(new double[n]);
    for (std::size_t i = 0; i < n; ++i) {
      double v = x[i];
      while (std::fabs(v) > 0.5) v *= 0.5;              // as often as the data say
      kept[i] = v;
    }
    const std::function<double(double)> twice = [](double v) { return 2 * v; };
    for (std::size_t i = 0; i < n; ++i) {
      switch (i % 3) {
        case 0: y[i] = grown[i] * power<3>::of(x[i]); break;     // template
        case 1: y[i] = x[i] > 0 ? kept[i] * kept[i] : twice(grown[i]); break;
        default: y[i] = grown[i] * kept[i] + grown[0];
      }
    }
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new kitchen(in[0].size());
}
D500_REGISTER_OP(kitchen);
"""


def elementwise(
    name: str, statement: str, before: str = "", members: str = "", arguments: str = "const T *x, T *y"
) -> str:
    """An operator over ``n`` elements of input 0; ``statement`` is all of forward."""
    return f"""
#include <cmath>
#include <cstdint>
#include <vector>
#include "deep500/deep500.h"
{before}
template <class T> struct {name} : deep500::CustomOperator {{
  std::size_t n;
  {members}
  explicit {name}(std::size_t n) : n(n) {{}}
  void forward({arguments}) {{ {statement} }}
}};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {{
  return new {name}<D500_DTYPE>(in[0].size());
}}
D500_REGISTER_OP({name}<D500_DTYPE>);
"""


MIXED = elementwise(
    "mixed",
    """for (std::size_t i = 0; i < n; ++i) { s[i] = std::exp(x[i]) * w[0]; y[i] = s[i] * x[index[i]] + c[i]; }
    z[0] = T(0);
    for (std::size_t i = 0; i < n; ++i) z[0] += w[0] * w[0] * x[i] * c[i];""",
    members="std::size_t scratch() const { return n; }",
    arguments="const T *x, const T *w, const int64_t *index, const T *c, T *y, T *z, T *s",
)
"""Two outputs, scratch space, an integer input, one that tests make inactive."""

POWER = elementwise("fifth", "for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * x[i] * x[i] * x[i] * x[i];")

THREADS = elementwise(
    "threads",
    """const std::size_t size = n;
#pragma omp parallel for firstprivate(x, c, y, size)
    for (std::size_t i = 0; i < size; ++i) y[i] = std::sin(x[i]) * c[i];
    T sum = T(0);
#pragma omp parallel for firstprivate(x, c, size) reduction(+:sum)
    for (std::size_t i = 0; i < size; ++i) sum += x[i] * x[i] * c[i];
    z[0] = sum;""",
    arguments="const T *x, const T *c, T *y, T *z",
)
SHARED = elementwise(
    "shared_pointer",
    """const std::size_t size = n;
#pragma omp parallel for
    for (std::size_t i = 0; i < size; ++i) y[i] = std::sin(x[i]) * c[i];""",
    arguments="const T *x, const T *c, T *y",
)
WRONG_SQUARE = """
#include <cstdio>
#include <cstdlib>
static bool large;
__attribute__((noinline)) static double square(double x) { return x * x; }
static double square_augmented(double x) { return square(x); }
static double square_gradient(double x, double seed) { return (WRONG) ? x * seed : 2 * x * seed; }
void *__enzyme_register_gradient_square[] = {(void *)square, (void *)square_augmented, (void *)square_gradient};
"""
"""A registered gradient that is half of what it should be where WRONG says so."""

HIDDEN = elementwise(
    "hidden", "for (std::size_t i = 0; i < n; ++i) y[i] = square(x[i]);", WRONG_SQUARE.replace("WRONG", "true")
)
KEPT = {
    "within_a_call": (
        "for (std::size_t i = 0; i < n; ++i)\nkept[i] = x[i] * x[i];\n"
        "for (std::size_t i = 0; i < n; ++i) y[i] = kept[i];",
        "std::vector<T> kept = std::vector<T>(4096);",
        "kept[i] = x[i] * x[i];",
    ),
    "for_the_next_call": (
        "for (std::size_t i = 0; i < n; ++i) y[i] = x[i] + last;\nlast = x[0] > 1e9 ? x[0] : T(0);",
        "T last = T(0);",
        "last = x[0] > 1e9 ? x[0] : T(0); }",
    ),
}
"""Forwards that keep what they compute in members, by name: statement, member, the line that does it."""

READING = elementwise(
    "reading",
    "for (std::size_t i = 0; i < n; ++i) { y[i] = x[i] * weights[i % 3]; table[i % 8] = T(i); } calls += 1;"
    " y[0] += table[0];",
    members="std::vector<T> weights = {T(1), T(2), T(3)}; T table[8]; T calls = T(0);",
)
"""Reads members, and writes to them what no input goes into."""

TABLE = elementwise(
    "table_of_functions",
    "for (std::size_t i = 0; i < n; ++i) y[i] = table[i % 2](x[i]);",
    before="""
static double square(double x) { return x * x; }
static double negative(double x) { return -x; }
static double (*const table[2])(double) = {square, negative};
""",
)
# fmt: off
CURED = {  # what was NaN, or refused: (statement, what it computes)
    "overwritten": (
        "std::vector<T> k(n); for (std::size_t i = 0; i < n; ++i) k[i] = std::log(std::fabs(x[i]));"
        " for (std::size_t i = 0; i < n; ++i) if (x[i] < 1) k[i] = x[i] * x[i];"
        " for (std::size_t i = 0; i < n; ++i) y[i] = k[i];", "slope of log |x| from 1 on, of x^2 below",
    ),
    "copied": ("std::printf(\"started\\n\"); std::memcpy(y, x + n / 2, (n - n / 2) * sizeof(T));"
               " std::copy(x, x + n / 2, y + n - n / 2);", "1"),
}
# fmt: on
GROWING = elementwise(
    "growing",
    """std::vector<std::vector<T>> v(n);
    for (std::size_t i = 0; i < n; ++i)
      v[i * i % n].push_back(x[i]);
    for (std::size_t i = 0; i < n; ++i) { y[i] = T(0); for (T u : v[i]) y[i] += u; }""",
)

ROUNDED = elementwise("rounded", "for (std::size_t i = 0; i < n; ++i) y[i] = T(int(x[i] * 8)) / 8;")
STRAIGHT = elementwise(
    "straight",
    "for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * level(x[i]);",
    before="""
__attribute__((noinline)) static double level(double x) { return int(x * 8) / 8.0; }
static double level_augmented(double x) { return level(x); }
static double level_gradient(double, double seed) { return seed; }
void *__enzyme_register_gradient_level[] = {(void *)level, (void *)level_augmented, (void *)level_gradient};
""",
)
"""A registered gradient: straight through the rounding."""

WRONG_IF_LARGE = elementwise(
    "wrong_if_large",
    "for (std::size_t i = 0; i < n; ++i) y[i] = square(x[i]);",
    WRONG_SQUARE.replace("WRONG", "large"),
    "const bool told = (large = n > 24);",
)
"""A registered gradient that is right for few elements only, as that of a sorting algorithm may be."""

# fmt: off
CHECKED = {  # name: (forward of an operator that is refused, a member of it, what the error says)
    "read_before": ("for (std::size_t i = 0; i < n; ++i) y[i] += x[i] * x[i];", "", "depend on what was in memory"),
    "partly": ("for (std::size_t i = 0; i + 1 < n; ++i) y[i] = x[i] * x[i];", "", "depend on what was in memory"),
    "ended": ("y[0] = x[0]; if (n > 0) std::exit(0);", "", "a crash when it was tried: exit code 0 in forward"),
    "beyond_a_size": (
        "for (std::size_t i = 0; i < n; ++i) y[i] = square(x[i]);", "const bool told = (large = n > 200);",
        "not that of forward",
    ),
    "beyond_a_value": ("for (std::size_t i = 0; i < n; ++i) y[i] = square(x[i]);", "", "not that of forward"),
}
# fmt: on

CRASHING = elementwise("crashing", "for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * x[i]; *(volatile int *)8 = 1;")
UNKNOWN = elementwise(
    "unknown", "for (std::size_t i = 0; i < n; ++i) y[i] = mystery(x[i]);", before='extern "C" double mystery(double);'
)

LOGISTIC = elementwise(
    "logistic",
    """for (std::size_t i = 0; i < n; ++i) {
      const T e = std::exp(-std::fabs(x[i]));
      y[i] = (SIDE ? e : T(1)) / (1 + e);
    }""",
)
"""Two forms; SIDE says which elements have the one for negative numbers."""

DOUBLED = elementwise(
    "doubled",
    """for (std::size_t i = 0; i < n; ++i) {
      T v = x[i];
      while (std::fabs(v) < T(1)) v *= 2;
      y[i] = v;
    }""",
)
"""Runs for ever where x is 0."""

GUARDED_ROOT = elementwise(
    "guarded_root",
    "for (std::size_t i = 0; i < n; ++i) { if (x[i] > T(0)) y[i] = std::sqrt(x[i]); else y[i] = 3 * x[i]; }",
)
ACCUMULATED = elementwise(
    "accumulated",
    """float sum = 0.0f;
    for (std::size_t i = 0; i < n; ++i) sum += float(x[i]) * float(x[i]);
    const float scale = 1.0f / std::sqrt(sum / float(n) + 1.0f);
    for (std::size_t i = 0; i < n; ++i) y[i] = T(float(x[i]) * scale);""",
)
"""Sums in float, whatever its type is."""

SORTED = elementwise(
    "ranked",
    """std::vector<T> kept(x, x + n);
    std::sort(kept.begin(), kept.end());
    for (std::size_t i = 0; i < n; ++i) y[i] = kept[i] * T(i + 1);""",
    before="#include <algorithm>",
)
CAUGHT = elementwise(
    "caught",
    "for (std::size_t i = 0; i < n; ++i) try { if (x[i] < 0) throw 1; y[i] = x[i] * x[i]; } catch (int) { y[i] = 0; }",
)
READ_AGAIN = elementwise(
    "read_again",
    """T sum = T(0);
    for (std::size_t i = 0; i < n; ++i) y[i] = x[i] * x[i];
    for (std::size_t i = 0; i < n; ++i) sum += y[i];
    for (std::size_t i = 0; i < n; ++i) y[i] = x[n - 1 - i] * sum;
    std::vector<T> held(x, x + n);
    for (std::size_t i = 0; i < n; ++i) held[i] *= T(3) * held[i];
    std::memcpy(z, held.data(), n * sizeof(T));
    for (std::size_t i = 0; i < n; ++i) z[i] *= held[i];""",
    before="#include <cstring>",
    arguments="const T *x, T *y, T *z",
)
"""Works in its outputs: reads them, then writes them again. y = reversed x times sum x^2, z = 9 x^4."""
