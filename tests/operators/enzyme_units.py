"""Small C++ units with calls of Enzyme, for the tests of the pipeline: no headers, so that each builds in a moment."""

from __future__ import annotations

import pytest

from deep500.errors import MissingEngine
from deep500.operators.enzyme.engine import find_clang, find_engine

ENTRY = """
template <class R, class... A> R __enzyme_autodiff(void *, A...);
extern int enzyme_dup, enzyme_const, enzyme_dupnoneed;
extern "C" void gradient(const double *x, double *dx, const double *c, double *y, double *dy, long n) {
  __enzyme_autodiff<void>((void *)f, enzyme_dup, x, dx, enzyme_const, c, enzyme_dupnoneed, y, dy, enzyme_const, n);
}
"""
HEAD = "static void f(const double *x, const double *c, double *y, long n)"


def unit(body: str, before: str = "") -> str:
    """A unit whose function f has this body; ``before`` stands before it."""
    return f"{before}\n{HEAD} {{\n{body}\n}}\n{ENTRY}"


def loop(pragma: str, statement: str = "y[i] = x[i] * x[i] * c[i];") -> str:
    """A unit with one loop under a pragma."""
    return unit(f"{pragma}\nfor (long i = 0; i < n; ++i) {{ {statement} }}")


OMP = "#pragma omp parallel for firstprivate(x, c, y, n)"
# fmt: off
REFUSED = {  # name: (unit, what the error must say of its cause, what it must say to do)
    "unknown function": (
        unit("for (long i = 0; i < n; ++i) y[i] = mystery(x[i]);", 'extern "C" double mystery(double);'),
        "mystery", "other_files",
    ),
    "bytes copied": (unit("__builtin_memcpy(y, x, 8 * n);"), "Cannot deduce type of copy", "element by element"),
    "bit tricks": (
        unit("for (long i = 0; i < n; ++i) {\n unsigned long b; __builtin_memcpy(&b, &x[i], 8); b = b * 3 + 12345;\n"
             " double r; __builtin_memcpy(&r, &b, 8); y[i] = r; }"),
        "cannot handle unknown binary operator", "bits of a float",
    ),
    "intrinsics": (
        unit("typedef double four __attribute__((vector_size(32), aligned(8)));\n"
             "*(four *)y = __builtin_ia32_maxpd256(*(const four *)x, *(const four *)c);"),
        "unknown intrinsic", "(x86.avx.max.pd.256) has no derivative: write a plain loop",
    ),
    "inline assembly": (
        unit('for (long i = 0; i < n; ++i) { double r = x[i]; asm volatile("sqrtsd %0, %0" : "+x"(r)); y[i] = r; }'),
        "Assertion", "inline assembly",
    ),
    "registered gradient with an int": (
        unit("y[0] = own(x, n);",
             "__attribute__((noinline)) static double own(const double *x, int n) {"
             " double s = 0; for (int i = 0; i < n; ++i) s += x[i] * x[i]; return s; }\n"
             "static void *own_a(double *r, const double *x, const double *dx, int n) { *r = own(x, n); return 0; }\n"
             "static void own_g(const double *x, double *dx, int n, double d, void *) { for (int i = 0; i < n; ++i)"
             " dx[i] += d * 2 * x[i]; }\n"
             "void *__enzyme_register_gradient_own[] = {(void *)own, (void *)own_a, (void *)own_g};"),
        "", "registered gradients take numbers and pointers only",
    ),
}
# fmt: on
# fmt: off
OPENMP_REFUSED = {
    "dynamic schedule": (loop(OMP + " schedule(dynamic)"), "static"),
    "guided schedule": (loop(OMP + " schedule(guided)"), "static"),
    "chunk size": (loop(OMP + " schedule(static, 4)"), "chunk"),
    "num_threads": (loop(OMP + " num_threads(2)"), "omp_set_num_threads"),
    "if": (loop(OMP + " if(n > 1000)"), "branch outside"),
    "product": (
        unit("double s = 1;\n#pragma omp parallel for firstprivate(x, n) reduction(*:s)\n"
             "for (long i = 0; i < n; ++i) s *= x[i];\ny[0] = s;"),
        "partials",
    ),
    "largest": (
        unit("double s = 0;\n#pragma omp parallel for firstprivate(x, n) reduction(max:s)\n"
             "for (long i = 0; i < n; ++i) s = x[i] > s ? x[i] : s;\ny[0] = s;"),
        "partials",
    ),
    "two sums": (
        unit("double s = 0, t = 0;\n#pragma omp parallel for firstprivate(x, n) reduction(+:s, t)\n"
             "for (long i = 0; i < n; ++i) { s += x[i]; t += x[i] * x[i]; }\ny[0] = s * t;"),
        "one loop per scalar",
    ),
    "single": (
        unit("#pragma omp parallel firstprivate(x, y, n)\n{\n#pragma omp single\nfor (long i = 0; i < n; ++i) "
             "y[i] = x[i] * x[i];\n}"),
        "outside of the parallel region",
    ),
    "tasks": (
        unit("#pragma omp parallel firstprivate(x, y, n)\n#pragma omp single\nfor (long i = 0; i < n; ++i) {\n"
             "#pragma omp task firstprivate(x, y, i)\ny[i] = x[i] * x[i];\n}"),
        "task",
    ),
    "thread numbers": (
        unit("#pragma omp parallel firstprivate(x, y, n)\n{\nconst long t = omp_get_thread_num(), all = "
             "omp_get_num_threads();\nfor (long i = n * t / all; i < n * (t + 1) / all; ++i) y[i] = x[i] * x[i];\n}",
             "#include <omp.h>"),
        r"omp_get_thread_num\(\).*let parallel for divide blocks",
    ),
    "work dealt out": (
        unit("long next = 0, *at = &next;\n#pragma omp parallel firstprivate(x, y, n, at)\nfor (;;) {\nlong i;\n"
             "#pragma omp atomic capture\ni = (*at)++;\nif (i >= n) break;\ny[i] = x[i] * x[i];\n}"),
        "atomic capture",
    ),
    "lock": (
        unit("omp_lock_t lock, *held = &lock;\nomp_init_lock(held);\n"
             "#pragma omp parallel for firstprivate(x, y, n, held)\n"
             "for (long i = 0; i < n; ++i) { omp_set_lock(held); y[0] += x[i]; omp_unset_lock(held); }",
             "#include <omp.h>"),
        "use atomic updates",
    ),
    "critical section": (
        unit("double s = 0, *most = &s;\n#pragma omp parallel for firstprivate(x, n, most)\n"
             "for (long i = 0; i < n; ++i) {\n#pragma omp critical\nif (x[i] > *most) *most = x[i];\n}\ny[0] = s;"),
        r"(?s)per-block partials and a serial loop for extremes.*line 6: #pragma omp critical",
    ),
}
# fmt: on


def _missing() -> str:
    """Why nothing can be differentiated here; empty: an engine is installed."""
    try:
        find_clang(find_engine())
    except MissingEngine as error:
        return str(error)
    return ""


needs_engine = pytest.mark.skipif(bool(_missing()), reason=_missing())
