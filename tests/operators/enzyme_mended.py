"""Programs that were built with a wrong gradient, or refused without a reason: forward, and what is expected now."""

from __future__ import annotations

from dataclasses import dataclass

EACH = "for (std::size_t i = 0; i < n; ++i) "
HEADERS = "#include <algorithm>\n#include <cstdlib>\n#include <cstring>\n#include <functional>\n#include <memory>\n"


@dataclass(frozen=True)
class Mended:
    """One operator on n numbers x, which writes n numbers y.

    Attributes:
        name: an identifier.
        body: of forward.
        refused: what the error must match; right to 1e-10 if empty.
        members: further members of the class.
        before: what stands before the class.
        checks: whether the build is to check the gradient; what must not depend on that has both.
        openmp: whether it is built with OpenMP.
        quick: whether it is tried in every run of the tests.
    """

    name: str
    body: str
    refused: str = ""
    members: str = ""
    before: str = ""
    checks: tuple[bool, ...] = (True,)
    openmp: bool = False
    quick: bool = False


KEPT = r"kept in members of the class and read again(.|\n)*\nline \d+: .*"
MEMORY = "outputs that depend on what was in memory before"
BOTH = (True, False)
REGION = "#pragma omp parallel firstprivate(x, y, m, p)\n{"
LOOP = "#pragma omp for\nfor (std::size_t i = 0; i < m; ++i) "
# fmt: off
MENDED = [
    # -- kept in the object, where sizes and values of the check do not reach
    Mended("behind_a_size", f"if (n > 5000) {{\n{EACH}kept[i % 64] = x[i] * x[i];\n{EACH}y[i] = kept[i % 64];\n}}\n"
           f"else {EACH}y[i] = x[i] * x[i];", KEPT + r"kept\[i % 64\] = x", "T kept[64];", checks=BOTH),
    Mended("behind_a_value", f"{EACH}{{ if (x[i] > 1e7)\nlast = x[i] * 2;\ny[i] = last * x[i]; }}", KEPT + r"last = x",
           "T last = 0;", checks=BOTH),
    Mended("by_a_function", "std::function<void(T)> keep = [this](T v) {\ntotal += v * v; };\n"
           f"total = 0; {EACH}keep(x[i]); {EACH}y[i] = total * x[i];", KEPT + r"total \+= v \* v", "T total = 0;",
           checks=BOTH, quick=True),
    Mended("as_bits", f"{EACH}\nstd::memcpy(&bits[i % 64], &x[i], 8);\n{EACH}"
           "{ double v; std::memcpy(&v, &bits[i % 64], 8); y[i] = v * x[i]; }", KEPT + r"std::memcpy\(&bits",
           "long bits[64];", checks=BOTH),
    Mended("a_pointer_to_an_input", f"at = x;\n{EACH}{{ keep(x + i); y[i] = *at * x[i]; }}", KEPT + "(at = x|at = p)",
           "const T *at = nullptr; __attribute__((noinline)) void keep(const T *p) {\nif (*p > *at)\nat = p; }",
           checks=BOTH),
    # -- right, but refused: tried where exp is infinite, since functions of our headers compare with such numbers
    Mended("plain_sigmoid", f"{EACH}y[i] = 1 / (1 + std::exp(-x[i]));", checks=BOTH),
    # -- what each round of a loop has so far, and uses: test_rounds.py has more
    Mended("quotient_so_far", f"T q = x[0]; {EACH}{{ q /= x[i] * x[i] + 1; y[i] = q * x[i]; }}", checks=BOTH),
    # -- what is overwritten before it is used
    Mended("root_overwritten", f"std::vector<T> k(n); {EACH}k[i] = std::sqrt(x[i] - 9);"
           f"{EACH}if (x[i] < 9.5) k[i] = x[i] * x[i]; {EACH}y[i] = k[i];", checks=BOTH),
    Mended("quotient_overwritten", f"{EACH}y[i] = 1 / (x[i] > 1e3 ? x[i] - 1e3 : 0 * x[i]);"
           f"{EACH}if (x[i] < 2e3) y[i] = x[i] * 2;", checks=BOTH),
    Mended("root_of_no_sum", f"T s = 0; {EACH}s += x[i] > 5 ? x[i] * x[i] : 0; const T r = std::sqrt(s);"
           f"{EACH}y[i] = r > 0 ? x[i] / r : x[i] * x[i];", checks=BOTH),
    Mended("vectors_in_a_vector_that_grows", f"std::vector<std::vector<T>> a;\n{EACH}\n{{ a.emplace_back();\n"
           "for (int k = 0; k < 3; ++k) a.back().push_back(x[i] * T(k)); }\n"
           f"{EACH}{{ T s = 0; for (T u : a[i]) s += u * u; y[i] = s; }}",
           r"moves its elements as bytes when it grows(.|\n)*\nline \d+: ", checks=BOTH),
    # -- memory that nothing wrote
    Mended("unwritten", f"{EACH}y[i] += x[i];", MEMORY),
    Mended("unwritten_if_many", f"if (n > 3000) {EACH}y[i] += x[i]; else {EACH}y[i] = x[i] * 2;", MEMORY),
    Mended("unwritten_if_large", f"{EACH}{{ if (x[i] > 3) y[i] += x[i]; else y[i] = x[i] * 2; }}", MEMORY, quick=True),
    # -- factors of products, of which a copy is kept: its rows were taken for longer than they are
    Mended("product_of_local_arrays", f"std::vector<T> p(n * 2), q(n * n); {EACH}for (int c = 0; c < 2; ++c) "
           "p[i * 2 + c] = std::tanh(x[i] * T(c + 1)); d5::product(d5::plain, d5::transposed, n, n, 2, T(.5), "
           f"p.data(), 2, p.data(), 2, T(0), q.data(), n);"
           f"{EACH}y[i] = q[i * n + (i * 3 + 1) % n] * q[(n - 1) * n + i];",
           before='#include "deep500/blas.h"\n', checks=BOTH),
    # -- ends of the process
    Mended("null_write", f"if (n > 3)\n*(double *)nullptr = x[0];\n{EACH}y[i] = x[i];",
           r"does not compile(.|\n)*cpp:\d+:1: error: indirection of .*null pointer", checks=BOTH, quick=True),
    Mended("ended", f"{EACH}y[i] = x[i]; if (n > 2) std::exit(3);",
           "a crash when it was tried: exit code 3 in forward"),
    # -- threads
    Mended("two_loops_in_a_region", f"const std::size_t m = n; std::vector<T> t(m); T *p = t.data();\n{REGION}\n"
           f"{LOOP}p[i] = x[i] * x[i];\n{LOOP}y[i] = p[i] * p[m - 1 - i];\n}}", checks=BOTH, openmp=True),
    Mended("three_loops_in_a_region", f"const std::size_t m = n; std::vector<T> t(2 * m); T *p = t.data();\n{REGION}\n"
           f"{LOOP}p[i] = x[i] * x[i];\n{LOOP}p[m + i] = p[i] * p[m - 1 - i];\n"
           f"{LOOP}y[i] = p[m + i] * x[m - 1 - i];\n}}",
           openmp=True),
    Mended("several_regions", "const std::size_t m = n; std::vector<T> t(m), u(m); T *p = t.data(), *q = u.data();\n"
           "for (std::size_t i = 0; i < m; ++i) p[i] = x[i];\nfor (int s = 0; s < 4; ++s) {\n"
           "#pragma omp parallel for firstprivate(m, p, q)\n"
           "for (std::size_t i = 0; i < m; ++i) q[i] = p[i] + T(.1) * p[(i + 1) % m] * p[i];\n"
           "#pragma omp parallel for firstprivate(m, p, q)\n"
           "for (std::size_t i = 0; i < m; ++i) p[i] = q[i] - T(.1) * q[(i + 2) % m];\n}\n"
           "for (std::size_t i = 0; i < m; ++i) y[i] = p[i];", openmp=True),
    Mended("vector_of_a_thread", "const std::size_t m = n;\n#pragma omp parallel for firstprivate(x, y, m)\n"
           "for (std::size_t i = 0; i < m; ++i) { std::vector<T> v(4); for (int k = 0; k < 4; ++k) v[k] = x[i] * T(k);"
           " T s = 0; for (T u : v) s += u * u; y[i] = s; }", openmp=True),
    # -- memory that is moved over itself
    Mended("erased_at_the_front", f"std::vector<T> v; {EACH}{{ v.push_back(x[i]); if (v.size() > 4) v.erase(v.begin());"
           " T s = 0; for (T u : v) s += u * u; y[i] = s; }", checks=BOTH),
    Mended("erased_beside_integers", f"std::vector<std::pair<T, int>> v; std::vector<int> w; {EACH}{{ "
           "v.emplace_back(x[i] * x[i], int(i)); w.push_back(int(i % 3)); if (v.size() > 4) v.erase(v.begin() + 1); "
           "if (w.size() > 3) w.erase(w.begin()); T s = 0; for (auto &p : v) s += p.first * T(p.second % 3 + w[0]); "
           "y[i] = s; }", checks=(False,)),
    Mended("moved_up_and_down", f"{EACH}y[i] = x[i] * x[i]; std::memmove(y, y + n / 3, (n - n / 3) * sizeof(T)); "
           f"std::memmove(y + n / 4, y, (n - n / 4) * sizeof(T)); {EACH}y[i] *= x[i];", checks=BOTH),
    # -- memory that one statement gives back for two places, or for one that is not needed
    Mended("given_back_at_once", "std::vector<T> b(n); T *t = static_cast<T *>(std::malloc(n * sizeof(T))); "
           f"{EACH}t[i] = x[i] + x[n - 1 - i] / 4; {EACH}b[i] = t[i] * t[(i ^ 1) % n]; std::free(t); T *u = new T[n]; "
           f"{EACH}u[i] = b[i] * b[i / 2]; {EACH}y[i] = u[i] * u[(i ^ 1) % n]; delete[] u;", checks=BOTH),
    # -- memory that is read, then overwritten by a pointer that may be to nothing: read again when it had changed
    Mended("scaled_by_its_norm", f"std::vector<T> p(x, x + n); T s = 0; {EACH}s += p[i] * p[i]; for (int t = 0; t < 5; "
           f"++t) {{ T q = 0; {EACH}q += p[i] * p[i]; q = std::sqrt(s / (q + 1)); {EACH}p[i] *= q; }} {EACH}y[i] = "
           "p[i];", checks=BOTH),
    Mended("scaled_if_there", "T *p = nullptr, s = 0; if (n > 0) { p = static_cast<T *>(std::malloc(n * sizeof(T))); "
           f"{EACH}p[i] = x[i]; {EACH}s += p[i] * p[i]; }} for (int t = 0; t < 2; ++t) {EACH}p[i] *= s; {EACH}y[i] "
           "= p[i]; std::free(p); if (n > 90) std::sort(y, y + n);", checks=BOTH),
    # -- local arrays that are kept whole
    Mended("local_arrays_scaled", f"T u[64] = {{}}, v[64], s = 0; {EACH}{{ u[i % 64] = x[i]; v[i % 64] = x[i] * x[i]"
           f"; }} {EACH}s += u[i % 64] * v[i % 64] + x[i]; for (int t = 0; t < 2; ++t) {EACH}u[i % 64] *= s; "
           f"{EACH}y[i] = u[i % 64];", checks=BOTH),
    # -- a nest of loops that is left in several places
    Mended("partition", "std::vector<T> t(x, x + n); int p = 0, q = int(n) - 1; const T v = t[n / 2]; while (p <= q) {"
           " while (t[p] < v) ++p; while (v < t[q]) --q; if (p > q) break; std::swap(t[p], t[q]); ++p; --q; }"
           f"{EACH}y[i] = t[i] * T(i + 1);", checks=BOTH),
    # -- bytes
    Mended("copied_at_once", "std::memcpy(y, x, n * sizeof(T));", checks=BOTH),
    Mended("vectors_assigned", f"std::vector<T> t(x, x + n), u(n); for (std::size_t w = 1; w < n; w *= 2) {{ {EACH}"
           f"u[i] = t[i] * t[(i + w) % n] / 2; t = u; }} {EACH}y[i] = t[i] + u[i];", checks=BOTH),
    Mended("arrays_copied", f"struct both {{ T a[4]; std::array<T, 3> b; }} v{{}}; {EACH}v.a[i % 4] += x[i] * x[i]; "
           f"{EACH}v.b[i % 3] += std::sin(x[i]); both u = v; {EACH}y[i] = u.a[(i + 1) % 4] * u.b[i % 3] * x[i];",
           checks=BOTH, before="#include <array>\n"),
]
# fmt: on
