"""C++ operators: the historical form, dtypes, several inputs and outputs, scratch space; with every compiler."""

from __future__ import annotations

import importlib.util
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

import deep500 as d5
from deep500.operators.cpp.compilers import SYSTEM
from tests.operators.cpp_sources import SCRATCH, WEIGHTED, power, simple

VECTOR = [d5.tensordesc(["N"])]
RNG = np.random.default_rng(0)
DTYPES = {"float64": 1e-12, "float32": 1e-6, "float16": 4e-3, "bfloat16": 3e-2}


@pytest.fixture(params=["system", "zig"])
def compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of compiler, by their names for DEEP500_CXX; other tests take the one that is found first."""
    path = next(filter(None, map(shutil.which, SYSTEM)), None) if request.param == "system" else "zig"
    if path is None:
        pytest.skip(f"no system compiler: none of {', '.join(SYSTEM)} is on the PATH")
    if path == "zig" and importlib.util.find_spec("ziglang") is None:
        pytest.skip("the package ziglang is not installed")
    monkeypatch.setenv("DEEP500_CXX", path)
    return path


def same(got: np.ndarray, want: np.ndarray, dtype: str) -> None:
    assert got.dtype == np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    np.testing.assert_allclose(got.astype("float64"), want, rtol=DTYPES[dtype], atol=DTYPES[dtype])


@pytest.mark.slow  # the first build with zig builds its C++ library
@pytest.mark.parametrize("using", [False, True])
def test_historical_power_operator(using: bool, compiler: str) -> None:
    op = d5.compile_custom_cppop_inline("ipow", power(using), VECTOR, VECTOR, additional_definitions={"DPOWER": "3"})
    assert isinstance(op, d5.CustomCPPOp) and op.differentiable and op.num_inputs == op.num_outputs == 1
    for shape in [(5,), (12,), (5,), (0,)]:
        x = RNG.uniform(0.5, 2, shape).astype("float32")
        (y,) = op.forward([x])
        np.testing.assert_allclose(y, x**3, rtol=1e-6)
        (dx,) = op.run_backward([2 * y], [x], [y])
        np.testing.assert_allclose(dx, 2 * y * 3 * x**2, rtol=1e-6)
        assert op.report([shape]) == shape[0]


def test_descriptors_without_shapes_take_any() -> None:
    any_shape = [d5.TensorDescriptor("float32", None)]
    op = d5.compile_custom_cppop_inline("ipow", power(), any_shape, any_shape, additional_definitions={"DPOWER": 2})
    for shape in [(), (3,), (2, 3), (2, 1, 3, 2)]:
        x = RNG.normal(size=shape).astype("float32")
        assert op(x).shape == shape
        np.testing.assert_allclose(op(x), x**2, rtol=1e-6)
    assert op.shape_plan() == [None]


def test_several_inputs_and_outputs() -> None:
    dtype = "float64"
    inputs = [d5.tensordesc(("N", "M"), dtype), d5.tensordesc(["N"], "int64"), d5.tensordesc((), dtype)]
    op = d5.compile_custom_cppop_inline("weighted", WEIGHTED, inputs, [d5.tensordesc(["N"], dtype)] * 2)
    assert op.signature["inputs"] == [dtype, "int64", dtype]
    assert op.shape_plan() == [[(0, 0)], [(0, 0)]]
    assert op.sizes([(4, 3), (4,), ()]).tolist() == [2, 4, 3, 1, 4, 0, 1, 4, 1, 4]
    scores, choice, s = RNG.normal(size=(4, 3)).astype(dtype), np.array([2, 0, 1, 1]), np.array(2.5, dtype)
    picked, sums = op(scores, choice, s)
    same(picked, 2.5 * scores[np.arange(4), choice], dtype)
    same(sums, scores.sum(1), dtype)
    dpicked, dsums = RNG.normal(size=(2, 4)).astype(dtype)
    dscores, dchoice, ds = op.backward([dpicked, dsums], [scores, choice, s], [picked, sums])
    want = np.repeat(dsums[:, None], 3, 1)
    want[np.arange(4), choice] += 2.5 * dpicked
    same(dscores, want, dtype)
    same(ds, (dpicked * scores[np.arange(4), choice]).sum(), dtype)
    assert dchoice is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_storage_types_and_scratch_space(dtype: str, compiler: str) -> None:
    described = [d5.tensordesc(["N"], dtype)]
    op = d5.compile_custom_cppop_inline("reversed_sum", SCRATCH, described, described)
    x = RNG.normal(size=6).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    y = op(x)
    same(y, np.cumsum(x.astype("float64")[::-1]), dtype)
    (dx,) = op.backward([x], [x], [y])
    assert dx is not None
    same(dx, np.cumsum(x.astype("float64")[::-1]), dtype)  # the transposed map, which here is the same
    with pytest.raises(d5.errors.OperatorError, match="forward returned status 3"):
        op(np.zeros(7, x.dtype))


CONVERT = """
#include "deep500/deep500.h"
struct convert : deep500::CustomOperator {
  std::size_t n;
  explicit convert(std::size_t n) : n(n) {}
  void forward(const float *x, deep500::KIND *y, float *z) {
    for (std::size_t i = 0; i < n; ++i) z[i] = y[i] = x[i];
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new convert(in[0].size());
}
D500_REGISTER_OP(convert);
"""


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_conversions_to_storage_types_are_exact(kind: str, compiler: str) -> None:
    """Every value there is, and numbers between: ties, denormals, infinities, against NumPy and ml_dtypes."""
    dtype = np.dtype(np.float16 if kind == "float16" else ml_dtypes.bfloat16)
    with np.errstate(over="ignore", invalid="ignore"):
        every = np.arange(1 << 16, dtype="uint16").view(dtype).astype("float32")
        every = every[np.isfinite(every)]
        between = np.sort(every)
        middles, wide = (between[1:] + between[:-1]) / 2, 10.0 ** RNG.uniform(-9, 5, 9999)
        extremes = [np.inf, -np.inf, 65519.99, 65520, 1e30, -3.39e38, 1e-45]
        x = np.concatenate([every, middles, wide, -wide, extremes]).astype("float32")
        if kind == "bfloat16" and compiler == "zig":  # the processor's own instruction takes denormal numbers for 0
            x = x[(x == 0) | (np.abs(x) >= np.finfo("float32").tiny)]
        want = x.astype(dtype)
    outputs = [d5.tensordesc(["N"], kind), d5.tensordesc(["N"])]
    op = d5.compile_custom_cppop_inline("convert", CONVERT, VECTOR, outputs, additional_definitions={"KIND": kind})
    y, z = op(x)
    np.testing.assert_array_equal(y.view("uint16"), want.view("uint16"))
    np.testing.assert_array_equal(z, want.astype("float32"))
    y, z = op(np.full(1, np.nan, "float32"))
    assert np.isnan(y.astype("float32")).all() and np.isnan(z).all()


def test_other_files_and_headers(tmp_path: Path, compiler: str) -> None:
    """A source in a file, a header beside it, a second source that is linked."""
    (tmp_path / "main.cpp").write_text(
        simple("y[0] = scaled(x[0]) + OFFSET;", '#include "sub/scale.h"\n'), encoding="utf-8"
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "scale.h").write_text("#pragma once\nfloat scaled(float);\n", encoding="utf-8")
    (tmp_path / "scale.cpp").write_text(
        '#include "sub/scale.h"\nfloat scaled(float x) { return FACTOR * x; }\n', encoding="utf-8"
    )
    files = [tmp_path / "scale.cpp", tmp_path / "sub" / "scale.h"]
    op = d5.compile_custom_cppop(
        "simple",
        tmp_path / "main.cpp",
        [d5.tensordesc([1])],
        [d5.tensordesc([1])],
        files,
        additional_definitions={"FACTOR": "3", "OFFSET": 0.5},
    )
    assert op(np.ones(1, "float32")) == 3.5
    assert not op.differentiable


def test_math_functions_and_fast_math(compiler: str) -> None:
    """d5:: functions against SciPy, and the vectorised ones against the plain; denormal numbers survive."""
    body = "\n".join(
        f"for (int i = 0; i < 4000; ++i) y[{k} * 4000 + i] = d5::{name}(x[i]);"
        for k, name in enumerate(["sigmoid", "tanh", "softplus", "silu", "gelu", "gelu_gradient"])
    )
    x = np.concatenate([np.linspace(-20, 20, 3998), [-1e4, 1e4]]).astype("float32")
    v = x.astype("float64")
    u = np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)
    gelu_gradient = (1 + np.tanh(u)) / 2 + v * (1 - np.tanh(u) ** 2) / 2 * np.sqrt(2 / np.pi) * (1 + 0.134145 * v**2)
    s = scipy.special.expit(v)
    want = np.stack([s, np.tanh(v), np.logaddexp(0, v), v * s, v * (1 + np.tanh(u)) / 2, gelu_gradient])
    source = simple(body, '#include "deep500/math.h"\n')
    for fast in (False, True):
        op = d5.compile_custom_cppop_inline(
            "simple", source, [d5.tensordesc([4000])], [d5.tensordesc((6, 4000))], fast_math=fast
        )
        np.testing.assert_allclose(op(x), want, rtol=2e-5, atol=2e-6)
    assert np.float32(1e-30) * np.float32(1e-10) > 0, "loading the library made the process flush denormal numbers"


def test_openmp(compiler: str) -> None:
    body = "omp_set_num_threads(2); y[0] = 0;\n#pragma omp parallel\n#pragma omp atomic\n    y[0] += 1;"
    if compiler == "zig" and not _is_installed("intel-openmp"):
        with pytest.raises(d5.errors.MissingEngine, match="pip install intel-openmp"):
            d5.compile_custom_cppop_inline("simple", simple(body), VECTOR, VECTOR, openmp=True)
        return
    source = simple(body, "#include <omp.h>\n")
    op = d5.compile_custom_cppop_inline("simple", source, VECTOR, VECTOR, openmp=True)
    assert op(np.zeros(1, "float32")) == 2


def _is_installed(distribution: str) -> bool:
    try:
        return bool(version(distribution))
    except PackageNotFoundError:
        return False


PRODUCTS = """
#include "deep500/blas.h"
#include "deep500/deep500.h"
template <class T> struct products : deep500::CustomOperator {
  std::size_t m, n, k;
  products(std::size_t m, std::size_t n, std::size_t k) : m(m), n(n), k(k) {}
  void forward(const T *a, const T *b, T *y) {
    for (int way = 0; way < 4; ++way) {
      const int turn_a = way / 2 ? d5::transposed : d5::plain, turn_b = way % 2 ? d5::transposed : d5::plain;
      d5::product(turn_a, turn_b, m, n, k, T(2), a, way / 2 ? m : k, b, way % 2 ? k : n, T(0), y + way * m * n, n);
    }
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new products<D500_DTYPE>(in[0].sizes[0], in[1].sizes[1], in[0].sizes[1]);
}
D500_REGISTER_OP(products<D500_DTYPE>);
"""


@pytest.mark.slow
def test_products_of_matrices_as_they_are_and_transposed(compiler: str) -> None:
    """Whole tiles and what is left beside them, and more rows than a panel has."""
    described = [d5.tensordesc(shape) for shape in (["M", "K"], ["K", "N"], [4, "M", "N"])]
    op = d5.compile_custom_cppop_inline("products", PRODUCTS, described[:2], described[2:])
    for m, n, k in ((17, 71, 37), (3, 5, 300)):
        a, b = RNG.standard_normal((m, k)).astype("float32"), RNG.standard_normal((k, n)).astype("float32")
        (y,) = op.forward([a, b])
        for way, got in enumerate(y):
            left, right = a.reshape(k, m).T if way // 2 else a, b.reshape(n, k).T if way % 2 else b
            np.testing.assert_allclose(got, 2 * left.astype("float64") @ right.astype("float64"), rtol=1e-4, atol=1e-4)


def test_pickling_rebuilds_from_the_cache() -> None:
    op = d5.compile_custom_cppop_inline("reversed_sum", SCRATCH, VECTOR, VECTOR)
    again = pickle.loads(pickle.dumps(op))
    assert again.path == op.path
    x = RNG.normal(size=5).astype("float32")
    np.testing.assert_array_equal(again(x), op(x))


def test_live_output_shows_commands(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path))
    d5.compile_custom_cppop_inline("simple", simple("y[0] = 1;"), VECTOR, VECTOR, live_output=True)
    assert "-DD500_DTYPE=float" in capfd.readouterr().err


def test_infer_gives_shapes_that_symbols_cannot() -> None:
    def halved(inputs: list[d5.TensorDescriptor]) -> list[d5.TensorDescriptor]:
        assert inputs[0].shape is not None
        return [d5.tensordesc([int(inputs[0].shape[0] or 0) // 2])]

    body = "y[0] = x[0] + x[1]; y[1] = x[2] + x[3];"
    unknown = [d5.TensorDescriptor("float32")]
    op = d5.compile_custom_cppop_inline("simple", simple(body), VECTOR, unknown, infer=halved)
    assert op(np.arange(4, dtype="float32")).tolist() == [1, 5]
    assert op.shape_plan() is None


SIZES = st.lists(st.one_of(st.sampled_from(["A", "B", "C"]), st.integers(0, 3)), max_size=3)


@given(st.lists(SIZES, min_size=3, max_size=3), SIZES, st.fixed_dictionaries(dict.fromkeys("ABC", st.integers(0, 4))))
def test_the_plan_of_shapes_says_what_infer_does(
    inputs: list[list[int | str]], output: list[int | str], sizes: dict[str, int]
) -> None:
    """What frameworks compute from the plan is what NumPy gets; a symbol that no input has is refused."""
    dtypes = ("float64", "int64", "float64")
    described = [d5.tensordesc(shape, dtype) for shape, dtype in zip(inputs, dtypes, strict=True)]
    outputs = [d5.tensordesc(output, "float64"), d5.TensorDescriptor("float64", None)]
    missing = {size for size in output if isinstance(size, str)} - {size for shape in inputs for size in shape}
    if missing:
        with pytest.raises(d5.errors.InputError, match=f"got size '[{''.join(sorted(missing))}]' of output 0"):
            d5.compile_custom_cppop_inline("weighted", WEIGHTED, described, outputs)
        return
    op = d5.compile_custom_cppop_inline("weighted", WEIGHTED, described, outputs)
    shapes = [tuple(sizes.get(size, size) for size in shape) for shape in inputs]
    plan = op.shape_plan()
    assert plan is not None and plan[1] is None
    planned = tuple(shapes[i][number] if i >= 0 else number for i, number in plan[0] or [])
    given_ones = [d5.tensordesc(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    assert [descriptor.shape for descriptor in op.infer(given_ones)] == [planned, shapes[0]]
    flat = [number for shape in (*shapes, planned, shapes[0]) for number in (len(shape), *shape)]
    assert op.sizes(shapes).tolist() == flat


def test_threads_share_an_operator() -> None:
    """Many shapes at once: each gets one object, made once."""
    op = d5.compile_custom_cppop_inline("ipow", power(), VECTOR, VECTOR, additional_definitions={"DPOWER": "3"})

    def work(seed: int) -> bool:
        random = np.random.default_rng(seed)
        for size in random.integers(1000, 1040, 200):
            x = random.uniform(0.5, 2, size).astype("float32")
            y = op.forward([x])
            if not np.allclose(y[0], x**3, rtol=1e-5) or not np.allclose(
                op.backward(y, [x], y)[0], 3 * x**5, rtol=1e-5
            ):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(8)))
    addresses = {op._binding.instance(op.sizes([(size,)])) for size in range(1000, 1040)}
    assert len(addresses) == 40


def test_macros_may_have_names_that_our_own_text_uses() -> None:
    vector = [d5.tensordesc(["N"])]
    macros = {"A": "3", "Op": None, "_OWN": 1}
    op = d5.compile_custom_cppop_inline("macro", simple("y[0] = A;"), vector, vector, additional_definitions=macros)
    assert op(np.zeros(1, "float32")) == 3
    with pytest.raises(d5.errors.InputError, match=r"a macro's name and its value apart: write \{'A': '2'\}"):
        d5.compile_custom_cppop_inline("macro", "", vector, vector, additional_definitions={"A=2": ""})
