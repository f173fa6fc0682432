"""The way through Enzyme: both orders, arithmetic, OpenMP's correction, and one clear error for all it cannot do."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from deep500.errors import CompileError, EnzymeError
from deep500.operators.cpp.spec import INCLUDE
from deep500.operators.enzyme import pipeline
from deep500.operators.enzyme.diagnose import explain, hints, pragmas
from deep500.operators.enzyme.engine import find_clang, find_engine
from deep500.operators.enzyme.ir import fix_reductions
from deep500.operators.enzyme.loops import REVERSE
from deep500.operators.enzyme.pipeline import BuildOptions, compile_library
from deep500.operators.enzyme.wrapper import SORTING
from tests.operators import enzyme_sources as sources
from tests.operators.enzyme_units import OMP, OPENMP_REFUSED, REFUSED, loop, needs_engine, unit

pytestmark = needs_engine
Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Build a unit of text and return the library's path."""
    count = itertools.count()

    def made(text: str, **options: object) -> Path:
        source = tmp_path / "unit.cpp"
        source.write_text(text)
        library = tmp_path / f"unit{next(count)}.so"  # the loader knows libraries by their path
        compile_library(source, library, [], BuildOptions(**options))  # type: ignore[arg-type]
        return library

    return made


def test_what_is_included_is_listed(tmp_path: Path) -> None:
    """Without that list, a gradient would not be built anew when a header of its source changes."""
    (tmp_path / "deep place").mkdir()
    (tmp_path / "deep place" / "inner.h").write_text("#define FACTOR 3.0\n")
    (tmp_path / "outer.h").write_text('#include "deep place/inner.h"\n')
    source = tmp_path / "unit.cpp"
    source.write_text(loop("", "y[i] = FACTOR * x[i];").replace("\n", '\n#include <cmath>\n#include "outer.h"\n', 1))
    listing = tmp_path / "unit.d"
    compile_library(source, tmp_path / "unit.so", [], BuildOptions(listing=listing))
    words = listing.read_text().partition(": ")[2].replace("\\ ", "\0").split()
    names = [(tmp_path / word.replace("\0", " ")).resolve() for word in words]
    expected = [source, tmp_path / "outer.h", tmp_path / "deep place" / "inner.h"]
    assert names == [path.resolve() for path in expected]


def test_headers_are_read_without_those_they_once_included_where_that_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of ours will do, or each build would take longer; a source that relies on such a header is compiled too."""
    commands: list[Sequence[str]] = []

    def counted(command: Sequence[str], *rest: object) -> tuple[int, str]:
        commands.append(command)
        return compiler(command, *rest)  # type: ignore[arg-type]

    compiler, clang = pipeline._compiler, find_clang(find_engine())
    monkeypatch.setattr(pipeline, "_compiler", counted)
    source, options = tmp_path / "unit.cc", BuildOptions(pipeline="ref")
    macros = "".join(f'#define D500_{method} "{method}"\n' for method in ("FORWARD", "BACKWARD"))
    names = ("containers", "abi", "math", "enzyme", "blas", "softmax", "taped")
    for text, calls in (
        (macros + "".join(f'#include "deep500/{name}.h"\n' for name in names), 1),
        ("#include <vector>\nvoid sort(double *x) { std::sort(x, x + 9); }\n", 2),
    ):
        commands.clear()
        source.write_text(text)
        pipeline.front(clang, source, tmp_path / "unit.ll", [f"-I{INCLUDE}"], options)
        assert [pipeline.LEAN in command for command in commands] == [True, False][:calls]


@pytest.mark.parametrize(
    "said", ["errno was disabled in precompiled file 'a' but is enabled", "no member named 'iota'"]
)
def test_parsed_headers_that_do_not_fit_are_read_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """An error of the source itself leads to the next way at once."""
    commands: list[Sequence[str]] = []

    def failing(command: Sequence[str], *rest: object) -> tuple[int, str]:
        commands.append(command)
        return int("-include-pch" in command), said

    monkeypatch.setattr(pipeline, "_compiler", failing)
    monkeypatch.setattr(pipeline, "parsed_headers", lambda *rest: ["-Xclang", "-include-pch"])
    clang = pipeline.Clang(("zig", "c++"), "zig 1", is_zig=True)
    pipeline.front(clang, tmp_path / "unit.cc", tmp_path / "unit.ll", [], BuildOptions(headers=True))
    ways = [(pipeline.LEAN in command, "-include-pch" in command) for command in commands]
    assert ways == [(True, True), ("precompiled" in said, False)]


def run(library: Path, x: np.ndarray, c: np.ndarray, dy: np.ndarray, name: str = "gradient") -> np.ndarray:
    """Call ``gradient``; x and c are given as they are, so that a library that writes to them shows."""
    dx, y, dy = np.zeros_like(x), np.zeros_like(dy), dy.copy()
    arguments = [ctypes.c_void_p(a.ctypes.data) for a in (x, dx, c, y, dy)]
    ctypes.CDLL(str(library))[name](*arguments, ctypes.c_long(x.size))
    return dx


@pytest.mark.parametrize("order", ["enzyme", "ref"])
def test_both_orders_give_the_gradient(build: Build, order: str) -> None:
    """d/dx sum dy x^2 c = 2 x c dy."""
    x, c, dy = np.linspace(-1, 1, 9), np.linspace(1, 2, 9), np.linspace(2, 3, 9)
    library = build(loop("", "y[i] = x[i] * x[i] * c[i];"), pipeline=order)
    np.testing.assert_allclose(run(library, x, c, dy), 2 * x * c * dy, rtol=1e-14)


def test_an_order_that_does_not_exist_is_refused(build: Build) -> None:
    """It is one of two."""
    with pytest.raises(CompileError, match=r"got pipeline 'best'; expected one of \['enzyme', 'ref'\]"):
        build(loop(""), pipeline="best")


def test_strict_arithmetic_stays_strict(tmp_path: Path) -> None:
    """Enzyme's own arithmetic carries ``fast`` unless that is switched off."""
    source, ir = tmp_path / "unit.cpp", tmp_path / "unit.ll"
    source.write_text(loop(""))
    engine = find_engine()
    clang = find_clang(engine)
    ir_of = {}
    for fast in (False, True):
        options = BuildOptions(fast_math=fast, name="unit", source=source)
        pipeline.prepare(clang, source, ir, ["-g0"], options)
        ir_of[fast] = pipeline.differentiate(engine, clang, ir, options)[1]
    assert "fmul" in ir_of[False] and " fast " not in ir_of[False]
    assert "fmul fast" in ir_of[True]


def test_functions_that_llvm_has_of_its_own_are_those_of_the_library(build: Build) -> None:
    """With ``-ffast-math`` clang writes llvm.tan and llvm.atan2, beside calls that say themselves what they want."""
    body = "y[i] = __builtin_tan(x[i]) + __builtin_atan2(x[i], c[i]) + __builtin_tanf(float(x[i])) + own(&tan, x[i]);"
    before = (
        'extern "C" double tan(double);\n'
        "__attribute__((noinline)) static double own(double (*f)(double), double x) { return f(x); }"
    )
    x, c, dy = np.linspace(-1, 1, 7), np.linspace(0.5, 2, 7), np.linspace(1, 2, 7)
    gradient = run(build(unit(f"for (long i = 0; i < n; ++i) {body}", before), fast_math=True), x, c, dy)
    np.testing.assert_allclose(gradient, dy * (3 * (1 + np.tan(x) ** 2) + c / (x * x + c * c)), rtol=1e-6)


def test_what_the_source_computes_is_not_reordered_in_the_reverse_pass(build: Build) -> None:
    """Adding 1.5 * 2^52 and taking it off rounds to a whole number k; reordered, k would not be rounded.

    y = s_n, where z = x_i s and the next s = k x_i c_i + z; the sum has the derivative 1, as Enzyme takes it.
    """
    magic = 6755399441055744.0
    body = f"double z = x[i] * s, k = (z + {magic}) - {magic}; s = k * x[i] * c[i] + z;"
    text = unit(f"double s = 1; for (long i = 0; i < n; ++i) {{ {body} }} y[0] = s;")
    library = build(text.replace(" gradient(", f" {REVERSE}("))  # what is rewritten is known by this name
    x, c = np.array([1.4, -1.3, 2.2, 0.7, 1.9]), np.linspace(0.5, 1, 5)
    s, before = 1.0, []
    for xi, ci in zip(x, c, strict=True):
        before.append(s)
        s = np.round(xi * s) * xi * ci + xi * s
    want, ds = np.zeros(5), 1.0
    for i in reversed(range(5)):
        k, dz = np.round(x[i] * before[i]), ds * (x[i] * c[i] + 1)
        want[i], ds = ds * k * c[i] + dz * before[i], dz * x[i]
    np.testing.assert_allclose(run(library, x, c, np.eye(1, 5)[0], REVERSE), want, rtol=1e-14)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_differentiated_is_refused_in_words(build: Build, name: str) -> None:
    """One error: Enzyme's own line, and what to change."""
    text, cause, cure = REFUSED[name]
    with pytest.raises(EnzymeError) as caught:
        build(text)
    said = str(caught.value)
    assert cause in said.splitlines()[1] and cure in said.splitlines()[2].removeprefix("what to change: ")
    assert len(said.splitlines()) <= 4 and caught.value.log


def test_the_error_names_the_line(build: Build) -> None:
    """Where Enzyme knows it."""
    with pytest.raises(EnzymeError, match=r"unit\.cpp:3:\d+"):
        build(REFUSED["unknown function"][0])


@pytest.mark.parametrize(
    ("source", "cure"),
    [
        ("std::vector<std::vector<T>> rows(n);", "rows(n, std::vector<double>(m))"),
        ("std::map<int, std::vector<T>> rows;", "rows(n, std::vector<double>(m))"),
        ("std::vector<std::function<T(T)>> steps;", "if or switch"),
        ("y[i] = tgamma(x[i]);", "digamma"),
        ("static constexpr bool elementwise = true;", "the same element of the inputs"),
        ("std::complex<T> q = a / b;", "real and imaginary parts"),
        ("T most(std::vector<T> v); // std::vector<std::vector<T>>", ""),
    ],
)
def test_what_stands_in_a_source_is_known(source: str, cure: str) -> None:
    """For gradients that are wrong, and for an engine that says nothing or does not end."""
    assert cure in "".join(hints(source)) and bool(cure) == bool(hints(source))


@pytest.mark.parametrize("name", OPENMP_REFUSED)
def test_openmp_that_cannot_be_differentiated_is_refused_in_words(build: Build, name: str) -> None:
    """The pragma's line, and what to write instead."""
    text, cure = OPENMP_REFUSED[name]
    with pytest.raises(EnzymeError, match=cure):
        build(text, openmp=True)


def test_openmp_loops_and_sums(build: Build) -> None:
    """``parallel for`` and a sum, with everything in firstprivate: right, and inputs left alone."""
    x, c = np.linspace(-1, 1, 1001), np.linspace(1, 2, 1001)
    library = build(loop(OMP), openmp=True)
    np.testing.assert_allclose(run(library, x, c, np.ones(1001)), 2 * x * c, rtol=1e-13)
    summed = (
        "double s = 0;\n#pragma omp parallel for firstprivate(x, c, n) reduction(+:s)\n"
        "for (long i = 0; i < n; ++i) s += x[i] * x[i] * c[i];\ny[0] = s;"
    )
    library = build(unit(summed), openmp=True)
    np.testing.assert_allclose(run(library, x, c, np.array([2.0])), 4 * x * c, rtol=1e-13)
    np.testing.assert_array_equal(c, np.linspace(1, 2, 1001))


def test_updates_that_are_atomic_and_sections(build: Build) -> None:
    """Threads that add to one place, or do different things, with one to four threads."""
    x, c = np.linspace(-1, 1, 1001), np.linspace(1, 2, 1001)
    body = f"""
    for (long i = 0; i < n; ++i) y[i] = 0;
    {OMP}
    for (long i = 0; i < n; ++i) {{
      const double value = x[i] * x[i] * c[i];
    #pragma omp atomic
      y[i / 2] += value;
    }}
    #pragma omp parallel sections firstprivate(x, y, n)
    {{
    #pragma omp section
      for (long i = n / 2 + 1; i < n - 1; ++i) y[i] = x[i] * x[n - 1];
    #pragma omp section
      y[n - 1] = x[0] * x[n - 1];
    }}"""
    library = build(unit(body), openmp=True)
    expected = 2 * x * c
    expected[501:-1] += x[-1]
    expected[0] += x[-1]
    expected[-1] += x[501:-1].sum() + x[0]
    for threads in (1, 2, 4) * 7:
        ctypes.CDLL(str(library)).omp_set_num_threads(threads)
        np.testing.assert_allclose(run(library, x, c, np.ones(1001)), expected, rtol=1e-12)


def test_loops_that_are_to_be_vector_code_wait_for_enzyme(build: Build, tmp_path: Path) -> None:
    """With ``omp simd`` there are no vectors before, whose truth values Enzyme may stop at; the gradient is right."""
    body = f"""{OMP}
    for (long g = 0; g < n / 16; ++g) {{
    #pragma omp simd
      for (long i = 16 * g; i < 16 * g + 16; ++i) y[i] = x[i] < 0 ? x[i] * c[i] : x[i] * x[i];
    }}"""
    source, ir = tmp_path / "simd.cpp", tmp_path / "simd.ll"
    source.write_text(unit(body))
    pipeline.prepare(
        find_clang(find_engine()), source, ir, ["-g0"], BuildOptions(name="unit", source=source, openmp=True)
    )
    assert "x double>" not in ir.read_text()
    x, c = np.linspace(-1, 1, 992), np.linspace(1, 2, 992)
    library = build(unit(body), openmp=True)
    for threads in (1, 2, 4):
        ctypes.CDLL(str(library)).omp_set_num_threads(threads)
        np.testing.assert_allclose(run(library, x, c, np.ones(992)), np.where(x < 0, c, 2 * x), rtol=1e-14)


def test_loops_that_own_their_memory_need_no_atomic_updates(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same gradient; and there were atomic updates to be made plain."""
    linked: list[str] = []
    real = pipeline.back

    def back(clang: object, modules: list[Path], *rest: object) -> None:
        linked.append("".join(module.read_text() for module in modules))
        real(clang, modules, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(pipeline, "back", back)
    x, c = np.linspace(-1, 1, 1001), np.linspace(1, 2, 1001)
    for owned in (False, True):
        gradient = run(build(loop(OMP), openmp=True, owned=owned), x, c, np.ones(1001))
        np.testing.assert_allclose(gradient, 2 * x * c, rtol=1e-13)
    assert "atomicrmw fadd" in linked[0] and "atomicrmw" not in linked[1]


def test_a_pointer_that_regions_read_is_handed_to_them(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared by reference, it is as in firstprivate; left as it is, Enzyme overwrites the caller's input."""
    text = loop("#pragma omp parallel for")
    right = np.linspace(1, 2, 1001)
    x, c = np.linspace(-1, 1, 1001), right.copy()
    np.testing.assert_allclose(run(build(text, openmp=True), x, c, np.ones(1001)), 2 * x * c, rtol=1e-13)
    assert (c == right).all()
    monkeypatch.setattr(pipeline, "own_regions", lambda ir: ir)
    monkeypatch.setattr(pipeline, "refuse_shared_pointers", lambda ir, options: None)
    run(build(text, openmp=True), x, c, np.ones(1001))
    assert (c != right).any()


def test_a_pointer_shared_by_reference_that_is_not_only_read_is_refused(build: Build) -> None:
    """Its address is known elsewhere, so nobody can say that it stays the same."""
    before = "void known(const double **);"
    text = unit("known(&c);\n#pragma omp parallel for\nfor (long i = 0; i < n; ++i) y[i] = x[i] * c[i];", before)
    with pytest.raises(EnzymeError, match=r"firstprivate\(\.\.\.\)(.|\n)*line \d: #pragma omp parallel for"):
        build(text, openmp=True)


def test_numbers_shared_by_reference_are_not_refused(build: Build) -> None:
    """An atomic sum shares a number, which is right."""
    body = (
        "double s = 0;\n#pragma omp parallel for firstprivate(x, c, n)\nfor (long i = 0; i < n; ++i) {\n"
        "const double part = x[i] * x[i] * c[i];\n#pragma omp atomic\ns += part;\n}\ny[0] = s;"
    )
    x, c = np.linspace(-1, 1, 101), np.linspace(1, 2, 101)
    gradient = run(build(unit(body), openmp=True), x, c, np.array([1.0]))
    np.testing.assert_allclose(gradient, 2 * x * c, rtol=1e-12)


def test_the_compilers_own_lines_are_shown(build: Build) -> None:
    """C++ that is none."""
    with pytest.raises(CompileError, match=r"unit\.cpp:3:\d+: error: .*undeclared_thing"):
        build(unit("y[0] = undeclared_thing;"))


def test_a_library_appears_whole_or_not_at_all(build: Build, tmp_path: Path) -> None:
    """A build that fails leaves nothing behind."""
    with pytest.raises(EnzymeError):
        build(REFUSED["bytes copied"][0])
    assert [path.name for path in tmp_path.iterdir()] == ["unit.cpp"]


def test_no_end_of_enzyme_is_an_error(build: Build) -> None:
    """The time-out."""
    with pytest.raises(CompileError, match=r"got no end of the compiler in 0\.001 s"):
        build(loop(""), timeout=0.001)


def test_reductions_without_a_runtime_call_are_left_alone() -> None:
    """Text that holds none comes back as it is; one that does becomes an atomic update and a barrier."""
    assert fix_reductions("define void @f() {\n  ret void\n}\n") == "define void @f() {\n  ret void\n}\n"
    text = (
        "  %3 = tail call i32 @__kmpc_reduce_nowait(ptr @1, i32 %0, i32 1)\n"
        "  call void @__kmpc_end_reduce_nowait(ptr @1, i32 %0, ptr @lock)\n"
    )
    fixed = fix_reductions(text)
    assert "%3 = add i32 0, 2" in fixed and "call void @__kmpc_barrier(ptr @1, i32 %0)" in fixed
    assert "declare void @__kmpc_barrier(ptr, i32)" in fixed


def test_pragmas_are_found_with_their_lines() -> None:
    """Continued lines are joined."""
    text = "int a;\n#pragma omp parallel \\\n  for\nint b;\n  # pragma omp single\n"
    assert [(n, " ".join(t.split())) for n, t in pragmas(text)] == [
        (2, "#pragma omp parallel for"),
        (5, "# pragma omp single"),
    ]


def test_a_failure_that_is_not_known_still_says_what_to_try() -> None:
    """An assertion, a signal with nothing said."""
    said = explain("x: /a/b/Gradient.cpp:12: int f(): Assertion `no' failed.\n#0 stack", 134)
    assert (
        said.splitlines()[0] == "Enzyme stopped (Gradient.cpp): Assertion `no' failed."
        and "leave statements out" in said
    )
    assert "exit code -11 and said nothing" in explain("", -11)


def test_what_stands_in_a_source_is_named() -> None:
    """A comment that speaks of it counts for nothing."""
    (caught,) = hints(sources.CAUGHT)
    assert "decide with if" in caught and not hints("y[i] = x[i];  // no catch")
    said = explain("x.cpp:1:2: error: in function f: Enzyme: <analysis>\n /include/__tree:1010:70", 1)
    assert "cannot follow" in said and "unordered_map" in said and "<analysis>" not in said


def test_messages_of_ones_own_are_refused(tmp_path: Path) -> None:
    """Enzyme's own rules for MPI crash on some calls, and a build is checked by one process."""
    ir = "define void @_ZN2d58messages3sumEv() {\n  call i32 @MPI_Iallreduce(ptr null)\n}\n"
    pipeline.refuse_messages(ir, BuildOptions(name="f"))
    ir += "define void @_ZN4mine3sumEv() {\n  call i32 @MPI_Iallreduce(ptr null)\n  call i32 @MPI_Wait(ptr null)\n}\n"
    with pytest.raises(EnzymeError, match=r"f: got calls of MPI_Iallreduce, MPI_Wait; .* call d5::exchange"):
        pipeline.refuse_messages(ir, BuildOptions(name="f"))


def test_sorting_numbers_is_differentiated(build: Build) -> None:
    """zig's C++ library keeps it where Enzyme does not see it."""
    body = """
    double kept[4];
    for (long i = 0; i < n; ++i) kept[i] = x[i] * c[i];
    std::sort(kept, kept + n);
    for (long i = 0; i < n; ++i) y[i] = kept[i];"""
    text = unit(body, before=f"#include <algorithm>\n{SORTING}")
    x, c, dy = np.array([0.5, -2.0, 3.0, 1.0]), np.array([1.0, 2.0, 3.0, -5.0]), np.arange(1.0, 5.0)
    np.testing.assert_array_equal(run(build(text), x, c, dy), c * [3.0, 2.0, 4.0, 1.0])
