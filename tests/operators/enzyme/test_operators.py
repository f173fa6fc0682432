"""Operators whose gradient Enzyme derives, from C++ to numbers: against closed forms, differences, and by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import CompileError, EnzymeError, InputError, UnsupportedOperator
from deep500.operators.cpp.commands import Job
from deep500.operators.cpp.compilers import Compiler
from deep500.operators.cpp.spec import BuildSpec
from deep500.operators.enzyme import build, pipeline, verify
from deep500.operators.enzyme.engine import find_engine
from deep500.operators.enzyme.loops import turn_loops
from deep500.operators.enzyme.members import kept_in_members
from deep500.operators.enzyme.verify import examples
from deep500.tensors import numpy_dtype
from tests.differences import slopes
from tests.operators import enzyme_sources as sources
from tests.operators.enzyme_units import needs_engine

pytestmark = [needs_engine, pytest.mark.slow]
DOWNWARDS = re.compile(r"= add (?:nsw |nuw )*i64 %[^,\n]+, -1\n")
PLUGINS = Path(d5.__file__).resolve().parent / "custom_ops"


def compiled(
    name: str, source: str, inputs: list[str], outputs: list[str], shapes: object = None, **options: object
) -> d5.operators.cpp.CompiledOp:
    """An operator with a gradient by Enzyme; libraries are kept in the user's cache, so that tests share them."""
    given = shapes if isinstance(shapes, list) else [("N",)] * len(inputs + outputs)
    described = [d5.TensorDescriptor(t, s) for t, s in zip(inputs + outputs, given, strict=True)]
    return d5.compile_custom_cppop_inline(
        name, source, described[: len(inputs)], described[len(inputs) :], gradient="enzyme", **options
    )  # type: ignore[arg-type]


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers, the same in every run."""
    return np.random.default_rng(7)


@pytest.fixture(scope="module")
def mixed() -> d5.operators.cpp.CompiledOp:
    """Two outputs, scratch space, integers, an inactive input."""
    shapes = [("N",), (1,), ("N",), ("N",), ("N",), (1,)]
    inputs = ["float64", "float64", "int64", "float64"]
    return compiled("mixed", sources.MIXED, inputs, ["float64"] * 2, shapes, inactive=(3,))


@pytest.fixture(scope="module")
def fifth() -> d5.operators.cpp.CompiledOp:
    """x^5 in float64."""
    return compiled("fifth", sources.POWER, ["float64"], ["float64"])


def test_cpp_of_every_kind_is_differentiated(rng: np.random.Generator) -> None:
    """Templates, growing vectors, loops, branches, virtual calls, std::function, allocation inside."""
    op = compiled("kitchen", sources.KITCHEN, ["float64"], ["float64"])
    x, dy = rng.standard_normal(12), rng.standard_normal(12)
    (dx,) = op.run_backward([dy], [x], op.run([x]))
    expected = slopes(lambda x: (dy * op.run([x])[0]).sum(), x, 1e-6)
    np.testing.assert_allclose(dx, expected, rtol=1e-6, atol=1e-8)


def test_without_backward_the_power_operator_has_the_same_gradient(rng: np.random.Generator) -> None:
    """The shipped ipow, its hand-written gradient deleted."""
    text = (PLUGINS / "ipow" / "ipow.cpp").read_text()
    bare = re.sub(r"  void backward\(.*?\n  }\n", "", text, flags=re.DOTALL)
    assert "backward" in text and "backward(" not in bare
    x, dy = (rng.standard_normal((3, 7)).astype(np.float32) for _ in range(2))
    gradients = []
    for source, gradient in ((text, "backward"), (bare, "enzyme")):
        any_shape = [d5.TensorDescriptor("float32", None)]
        op = d5.compile_custom_cppop_inline(
            "ipow", source, any_shape, any_shape, (), False, {"DPOWER": 3}, gradient=gradient
        )
        gradients.append(op.run_backward([dy], [x], op.run([x]))[0])
    np.testing.assert_allclose(gradients[1], gradients[0], rtol=1e-6)
    np.testing.assert_allclose(gradients[1], 3 * x**2 * dy, rtol=1e-6)


def test_products_with_jacobian_and_hessian(fifth: d5.operators.cpp.CompiledOp, rng: np.random.Generator) -> None:
    """x^5: 5 x^4 v, and 20 x^3 v dy."""
    x, v, dy = (rng.standard_normal(9) for _ in range(3))
    outputs, changes = fifth.jvp([x], [v])
    np.testing.assert_allclose(outputs[0], x**5, rtol=1e-14)
    np.testing.assert_allclose(changes[0], 5 * x**4 * v, rtol=1e-13)
    np.testing.assert_allclose(fifth.hvp([dy], [x], [v])[0], 20 * x**3 * v * dy, rtol=1e-13)


def test_where_tanh_is_flat_its_second_derivative_is_zero() -> None:
    """Not NaN: 1 / cosh^2 overflows at 45 in float32."""
    source = sources.elementwise("flat", "for (std::size_t i = 0; i < n; ++i) y[i] = std::tanh(x[i]);")
    op = compiled("flat", source, ["float32"], ["float32"], check=False)
    x, one = np.array([0.5, -2, 44, 50, -1e30], np.float32), np.ones(5, np.float32)
    expected = -2 * np.tanh(x) * (1 - np.tanh(x) ** 2)
    np.testing.assert_allclose(op.hvp([one], [x], [one])[0], expected, rtol=1e-4, atol=1e-20)


def test_several_inputs_outputs_scratch_and_inactive_ones(mixed, rng: np.random.Generator) -> None:  # type: ignore[no-untyped-def]
    """y = w e^x x[index] + c, z = w^2 sum x c: closed forms; integers and inactive inputs have no gradient."""
    n = 6
    x, c, dy = (rng.standard_normal(n) for _ in range(3))
    w, dz, index = np.array([1.5]), np.array([0.7]), rng.permutation(n)
    inputs = [x, w, index, c]
    before = [a.copy() for a in inputs]
    outputs = mixed.run(inputs)
    np.testing.assert_allclose(outputs[0], 1.5 * np.exp(x) * x[index] + c)
    dx, dw, none, also_none = mixed.backward([dy, dz], inputs, outputs)
    expected = 1.5 * np.exp(x) * x[index] * dy + dz * 1.5**2 * c
    np.add.at(expected, index, 1.5 * np.exp(x) * dy)
    np.testing.assert_allclose(dx, expected, rtol=1e-12)
    np.testing.assert_allclose(dw, [(np.exp(x) * x[index] * dy).sum() + 2 * 1.5 * dz[0] * (x * c).sum()], rtol=1e-12)
    assert none is None and also_none is None
    for a, b in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_output_gradients_are_left_alone_and_shadows_start_at_zero(fifth: d5.operators.cpp.CompiledOp) -> None:
    """Enzyme uses output shadows up and adds to input shadows; neither is seen from outside."""
    x, dy = np.linspace(-1, 1, 5), np.ones(5)
    first, second = (fifth.backward([dy], [x], [x**5])[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(dy, np.ones(5))


def test_elementwise_operators_are_differentiated_element_by_element() -> None:
    """The shipped GELU says that it is element-wise: many elements give what each part alone gives."""
    source = (PLUGINS / "gelu" / "gelu.cpp").read_text()
    any_shape = [d5.TensorDescriptor("float32", None)]
    op = d5.compile_custom_cppop_inline("gelu", source, any_shape, any_shape, gradient="enzyme", fast_math=True)
    x, dy = (np.random.default_rng(i).standard_normal((3, 1700)).astype(np.float32) for i in range(2))
    whole = op.backward([dy], [x], [x])[0]
    for i in range(3):
        np.testing.assert_allclose(op.backward([dy[i]], [x[i]], [x[i]])[0], whole[i], rtol=1e-6)
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x.astype(np.float64) ** 3)
    s = 1 / (1 + np.exp(-2 * u))
    expected = dy * (s + 2 * x * s * (1 - s) * np.sqrt(2 / np.pi) * (1 + 0.134145 * x.astype(np.float64) ** 2))
    np.testing.assert_allclose(whole, expected, rtol=1e-4, atol=1e-5)


def test_empty_arrays_have_empty_gradients(fifth: d5.operators.cpp.CompiledOp) -> None:
    """No elements, no crash."""
    assert fifth.backward([np.zeros(0)], [np.zeros(0)], [np.zeros(0)])[0].shape == (0,)


def test_openmp_loops_and_sums_are_differentiated(rng: np.random.Generator) -> None:
    """``parallel for`` and ``reduction(+)``, everything in firstprivate."""
    shapes = [("N",), ("N",), ("N",), (1,)]
    op = compiled("threads", sources.THREADS, ["float64"] * 2, ["float64"] * 2, shapes, inactive=(1,), openmp=True)
    x, c, dy, dz = rng.standard_normal(501), rng.standard_normal(501), rng.standard_normal(501), np.array([0.3])
    dx = op.backward([dy, dz], [x, c], op.run([x, c]))[0]
    np.testing.assert_allclose(dx, np.cos(x) * c * dy + 2 * x * c * dz, rtol=1e-12)


def test_inputs_that_a_gradient_overwrites_are_found_by_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check behind the refusal: without it, the library would be built, and its check finds the changed bytes."""
    arguments = ("shared_pointer", sources.SHARED, ["float64"] * 2, ["float64"])
    monkeypatch.setenv("DEEP500_ENZYME", str(find_engine().path))
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path))
    monkeypatch.setattr(pipeline, "own_regions", lambda ir: ir)
    with pytest.raises(EnzymeError, match=r"share a pointer by reference; .*firstprivate"):
        compiled(*arguments, inactive=(1,), openmp=True)
    monkeypatch.setattr(pipeline, "refuse_shared_pointers", lambda ir, options: None)
    with pytest.raises(EnzymeError, match=r"backward changed input 1; .*(.|\n)*firstprivate"):
        compiled(*arguments, inactive=(1,), openmp=True)


def test_a_gradient_that_is_wrong_does_not_enter_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A registered gradient may be wrong; check=False lets it pass, and the signature says so."""
    monkeypatch.setenv("DEEP500_ENZYME", str(find_engine().path))
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path))
    differs = r"with inputs of \d+, the gradient of input 0 along .*; the element at \[\d+\] is .*, differences: "
    with pytest.raises(EnzymeError, match=differs):
        compiled("hidden", sources.HIDDEN, ["float64"], ["float64"])
    assert not list(tmp_path.rglob("*.so"))
    op = compiled("hidden", sources.HIDDEN, ["float64"], ["float64"], check=False)
    assert op.signature["check"] is False
    np.testing.assert_array_equal(op.backward([np.ones(3)], [np.ones(3)], [np.ones(3)])[0], np.ones(3))


@pytest.mark.parametrize("name", sources.KEPT)
def test_what_is_kept_in_members_is_refused_by_its_line_with_and_without_a_check(name: str) -> None:
    statement, member, line = sources.KEPT[name]
    source = sources.elementwise(name, statement, members=member)
    for check in (True, False):
        with pytest.raises(EnzymeError, match=r"kept in members of the class and read again") as caught:
            compiled(name, source, ["float64"], ["float64"], check=check)
        assert re.findall(r"^line \d+: (.*)$", str(caught.value), re.MULTILINE) == [line]


@pytest.mark.parametrize("number", [3, 30])
@pytest.mark.parametrize("walk", [True, False])
def test_pointers_to_members_are_followed_however_far(number: int, walk: bool) -> None:
    """Over as many steps as there are, and where a loop moves a pointer without end."""
    chain = [f"  %p{i} = phi ptr [ %p{i - 1}, %entry ]" for i in range(number, 1, -1)]
    chain += ["  %p1 = getelementptr i8, ptr %0, i64 8", f"  %q = getelementptr i8, ptr %0, i64 {8 * number}"]
    if walk:
        chain += ["  %p0 = phi ptr [ %0, %entry ], [ %next, %loop ]", "  %next = getelementptr i8, ptr %p0, i64 8"]
    written, read = ("%next", "%q") if walk else (f"%p{number}", "%p1")
    body = [
        "  %v = load double, ptr %1",
        *chain,
        f"  store double %v, ptr {written}",
        f"  %r = load double, ptr {read}",
    ]
    call = ["define void @g() {", "  call void @__enzyme_autodiff(ptr @d500_primal)", "}"]
    ir = "\n".join([*call, "define void @d500_primal(ptr %0, ptr %1) {", *body, "}"])
    assert kept_in_members(ir) == [f"  store double %v, ptr {written}"]


def test_members_that_no_input_goes_into_may_be_read_and_written() -> None:
    op = compiled("reading", sources.READING, ["float64"], ["float64"])
    np.testing.assert_array_equal(op.backward([np.ones(4)], [np.ones(4)], [np.ones(4)])[0], [1, 2, 3, 1])


def test_forward_mode_of_calls_through_pointers_is_refused_without_a_check(rng: np.random.Generator) -> None:
    """It was wrong there, and Hessian-vector products ended the process."""
    op = compiled("table_of_functions", sources.TABLE, ["float64"], ["float64"], check=False)
    x = rng.standard_normal(6)
    expected = np.where(np.arange(6) % 2, -1, 2 * x)
    np.testing.assert_allclose(op.backward([np.ones(6)], [x], [x])[0], expected, rtol=1e-14)
    for call in (lambda: op.jvp([x], [x]), lambda: op.hvp([x], [x], [x])):
        with pytest.raises(UnsupportedOperator, match="calls through pointers"):
            call()


@pytest.mark.parametrize("name", sources.CURED)
def test_zeros_of_what_is_overwritten_and_copies_of_inputs(name: str) -> None:
    """0 times the slope of log |x| at 0 is not NaN; memcpy has the type of what it moves. Forward may print."""
    before = "#include <algorithm>\n#include <cstdio>\n#include <cstring>"
    op = compiled(name, sources.elementwise(name, sources.CURED[name][0], before), ["float64"], ["float64"])
    x = np.array([0.0, -0.5, 2.0, 0.7, 4.0])
    expected = np.where(x < 1, 2 * x, 1 / np.maximum(x, 1)) if name == "overwritten" else np.ones(5)
    np.testing.assert_allclose(op.backward([np.ones(5)], [x], [x])[0], expected, rtol=1e-14)
    np.testing.assert_allclose(op.jvp([x], [np.ones(5)])[1][0], expected, rtol=1e-14)


def test_refusals_within_the_library_name_the_users_line() -> None:
    with pytest.raises(EnzymeError, match=r"\nline \d+: v\[i \* i % n\]\.push_back\(x\[i\]\);"):
        compiled("growing", sources.GROWING, ["float64"], ["float64"])


def test_a_gradient_that_is_zero_everywhere_is_told() -> None:
    """Rounding to integers: differences agree that the gradient is zero, so only a warning can tell."""
    with pytest.warns(UserWarning, match="the gradient of input 0 is zero everywhere"):
        compiled(
            "rounded", sources.ROUNDED + f"// {np.random.default_rng().integers(1 << 60)}", ["float64"], ["float64"]
        )


def test_outputs_that_are_read_again_are_computed_again(rng: np.random.Generator) -> None:
    """Enzyme may not leave their stores out: the reverse pass would read what memory held before."""
    op = compiled("read_again", sources.READ_AGAIN, ["float64"], ["float64"] * 2)
    for size in (33, 5, 64):
        x, dy, dz = rng.standard_normal((3, size))
        expected = dy[::-1] * (x @ x) + 2 * x * (dy @ x[::-1]) + 36 * x**3 * dz
        for seed in (dy, dz):  # memory that is used again holds something else
            op.backward([seed, seed], [x], [x, x])
        np.testing.assert_allclose(op.backward([dy, dz], [x], op.run([x]))[0], expected, rtol=1e-11, atol=1e-12)


def test_a_registered_gradient_is_used() -> None:
    """Straight through the rounding: x level(x) has the gradient level(x) + x, on purpose."""
    op = compiled("straight", sources.STRAIGHT, ["float64"], ["float64"], check=False)
    x = np.array([0.3, -0.7, 1.9])
    np.testing.assert_allclose(op.backward([np.ones(3)], [x], [x])[0], np.trunc(x * 8) / 8 + x, rtol=1e-14)


def test_a_crash_while_checking_harms_nobody() -> None:
    """It is an error with the signal's name."""
    with pytest.raises(EnzymeError, match=r"got a crash when it was tried: SIGSEGV in forward with shapes "):
        compiled("crashing", sources.CRASHING, ["float64"], ["float64"])


def test_loops_of_a_derived_gradient_are_turned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On what this compiler and engine write: on text of another form the rewriting would do nothing, silently."""
    seen: list[tuple[str, str]] = []

    def recorded(ir: str) -> str:
        seen.append((ir, turn_loops(ir)))
        return seen[-1][1]

    monkeypatch.setenv("DEEP500_ENZYME", str(find_engine().path))
    monkeypatch.setenv("DEEP500_CACHE", str(tmp_path))  # where no library is: it is built now
    monkeypatch.setattr(pipeline, "turn_loops", recorded)
    source = (PLUGINS / "gelu" / "gelu.cpp").read_text(encoding="utf-8")
    compiled("gelu", source, ["float32"], ["float32"], check=False)
    before, after = seen[0]  # the module with the gradient; those with further derivatives follow
    upwards = [len(re.findall(r"= add nuw (?:nsw )?i64 %[^,\n]+, 1\n", text)) for text in (before, after)]
    turned = upwards[1] - upwards[0]
    assert turned >= 1, "no loop of the gradient was turned: mend the patterns of enzyme/loops.py for this compiler"
    assert len(DOWNWARDS.findall(before)) - len(DOWNWARDS.findall(after)) == turned


def test_an_unknown_function_is_one_clear_error() -> None:
    """It names the function, the user's line, and the cure; nothing of the wrapper."""
    with pytest.raises(EnzymeError) as caught:
        compiled("unknown", sources.UNKNOWN, ["float64"], ["float64"])
    said = str(caught.value)
    assert "unknown.cpp:11:" in said and "found for mystery" in said
    assert "other_files" in said and len(said.splitlines()) == 3


def test_what_a_branch_excludes_is_not_computed_for_its_gradient() -> None:
    """A root taken only of what is positive: computed before the branch, its derivative would be zero times NaN."""
    op = compiled("guarded_root", sources.GUARDED_ROOT, ["float64"], ["float64"])
    x = np.array([4.0, -1.0, 0.0, 9.0])
    np.testing.assert_array_equal(op.backward([np.ones(4)], [x], [x])[0], [0.25, 3.0, 3.0, 1 / 6])


def test_integers_alone_have_no_gradient() -> None:
    """Said before anything is compiled."""
    with pytest.raises(InputError, match=r"expected a floating-point input and output that are active"):
        compiled("integers", sources.POWER, ["int64"], ["int64"])
    with pytest.raises(InputError, match="inactive"):
        compiled("inactive", sources.POWER, ["float64"], ["float64"], inactive=(0,))


def test_derivatives_that_enzyme_lacks_are_refused_when_asked_for(fifth: d5.operators.cpp.CompiledOp) -> None:
    """A library without forward mode says why."""
    fifth.signature["jvp"], kept = False, fifth.signature["jvp"]
    fifth.signature["no_jvp"] = "Enzyme: no forward mode"
    try:
        with pytest.raises(UnsupportedOperator, match=r"got a call of jvp; .*Enzyme: no forward mode"):
            fifth.jvp([np.ones(2)], [np.ones(2)])
    finally:
        fifth.signature["jvp"] = kept


def test_shapes_to_try_follow_the_descriptors() -> None:
    """Symbols alike are alike; data before kernels is larger; what infer refuses is left out."""
    inputs = [d5.TensorDescriptor("float32", ("N", "H")), d5.TensorDescriptor("float32", ("K", 2))]

    def infer(given: list[d5.TensorDescriptor]) -> list[d5.TensorDescriptor]:
        if given[1].shape[0] > given[0].shape[1]:  # type: ignore[index, operator]
            raise InputError("the kernel is too large")
        return [d5.TensorDescriptor("float32", given[0].shape)]

    tried = examples(inputs, infer)
    assert tried[0] == ([(6, 5), (4, 2)], [(6, 5)]) and ([(4, 4), (4, 2)], [(4, 4)]) in tried
    assert all(shapes[1][0] <= shapes[0][1] for shapes, _ in tried)
    anything = examples([d5.TensorDescriptor("float32", None)] * 2, lambda given: given[:1])
    assert [len(shapes[0]) for shapes, _ in anything] == [1, 2, 4, 3]


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 2e-2), ("float64", 1e-5)])
def test_sums_in_less_than_the_operator_s_type_are_judged_by_their_noise(dtype: str, tolerance: float) -> None:
    """Steps of 1e-6 drown in float's rounding, which is measured; the gradient is right."""
    op = compiled("accumulated", sources.ACCUMULATED, [dtype], [dtype])
    assert op.signature["jvp"] and op.signature["hvp"]
    x = np.linspace(-1, 2, 7).astype(numpy_dtype(dtype))
    wide, r = x.astype("float64"), 1 / np.sqrt((x.astype("float64") ** 2).mean() + 1)
    got = op.backward([np.ones_like(x)], [x], [x])[0]
    assert got is not None
    np.testing.assert_allclose(got.astype("float64"), r - wide * r**3 * wide.sum() / 7, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("forward", "refused", "flags"),
    [("*y = *x;", 0, [True]), ("*y = *x;", 1, [True, False]), ("std::sort(y, y);", 0, [False])],
)
def test_the_float64_that_judges_shorter_types_is_built_as_they_are(
    forward: str, refused: int, flags: list[bool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unrolled and inlined before Enzyme, unless the source sorts; without that only where it does not compile."""
    tried: list[bool] = []

    def noted(job: Job, unit: str, words: list[str], **options: bool) -> None:
        assert job.spec.dtype == "float64" and unit == "twin.cc" and options == {"speculate": True}
        tried.append(set(build.EAGER) <= {*words})
        if len(tried) <= refused:
            raise CompileError("got this; expected that")

    monkeypatch.setattr(build, "_compile", noted)
    (tmp_path / "own.cpp").write_text(sources.elementwise("own", forward))
    spec = BuildSpec("own", None, None, ("float32",), ("float32",), gradient="enzyme")
    job = Job(spec, Compiler("zig", (), ""), tmp_path, "own.cpp", tmp_path / "own.so", False, [], list)
    assert build.Build(job)._twin() == tmp_path / "twin.so" and tried == flags


def test_noise_hides_no_gradient_that_is_wrong_by_one_percent() -> None:
    wrong = """
__attribute__((noinline)) static float half(float x) { return 0.5f * x; }
static float half_augmented(float x) { return half(x); }
static float half_gradient(float, float seed) { return 0.505f * seed; }
void *__enzyme_register_gradient_half[] = {(void *)half, (void *)half_augmented, (void *)half_gradient};
"""
    source = wrong + sources.ACCUMULATED.replace("T(float(x[i]) * scale)", "T(half(float(x[i])) * scale)")
    with pytest.raises(EnzymeError, match=r"not that of forward: with inputs of .*, the gradient of input 0"):
        compiled("accumulated", source, ["float64"], ["float64"])


@pytest.mark.long
def test_a_gradient_that_is_wrong_for_many_elements_only_is_refused() -> None:
    """Sizes that are open are tried larger, too."""
    with pytest.raises(EnzymeError, match=r"got a gradient that is not that of forward"):
        compiled("wrong_if_large", sources.WRONG_IF_LARGE, ["float64"], ["float64"])
    few = compiled("wrong_if_large", sources.WRONG_IF_LARGE, ["float64"], ["float64"], [(5,), (5,)])
    x = np.linspace(-1, 1, 5)
    np.testing.assert_allclose(few.run_backward([np.ones(5)], [x], [x * x])[0], 2 * x, rtol=1e-14)


@pytest.mark.parametrize("name", sources.CHECKED)
def test_forward_is_tried_beyond_what_it_compares_with_and_on_other_memory(name: str) -> None:
    statement, member, message = sources.CHECKED[name]
    before = sources.WRONG_SQUARE.replace("WRONG", "x > 8" if name == "beyond_a_value" else "large")
    with pytest.raises(EnzymeError, match=message):
        compiled(name, sources.elementwise(name, statement, before, member), ["float64"], ["float64"])


def test_exceptions_that_are_caught_are_named() -> None:
    spec = BuildSpec("caught", sources.CAUGHT, None, ("float64",), ("float64",))
    threw = verify.Defect("backward", "exit code 1 in backward (RuntimeError: backward threw int)", "crash")
    for defect, alone in ((threw, True), (verify.Defect("backward", "0; differences: 1", "value"), False)):
        cures = str(verify.error_of(spec, defect, sources.CAUGHT)).partition("what to change: ")[2]
        assert cures.startswith("an exception is caught inside") and (";" not in cures) == alone
    assert "an exception" not in str(verify.error_of(spec, threw, sources.POWER))


ACTIVATIONS = ("sigmoid", "tanh", "softplus", "silu", "gelu")


@pytest.mark.parametrize("fast_math", [False, True], ids=["strict", "fast"])
def test_activations_have_their_slopes_where_they_change_form(fast_math: bool) -> None:
    """d5:: activations have one form for either sign: derivatives at 0 and beside it are those of neither alone."""
    lines = "".join(f"y[{k} * n + i] = d5::{name}(x[i]);" for k, name in enumerate(ACTIVATIONS))
    source = f"""
#include "deep500/deep500.h"
#include "deep500/math.h"
struct activations : deep500::CustomOperator {{
  std::size_t n;
  explicit activations(std::size_t n) : n(n) {{}}
  void forward(const double *x, double *y) {{ for (std::size_t i = 0; i < n; ++i) {{ {lines} }} }}
}};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {{
  return new activations(in[0].size());
}}
D500_REGISTER_OP(activations);
"""
    x = np.array([0.0, -0.0, 1e-30, -1e-30, 0.3, -0.3, 9.0, -9.0])
    op = compiled("activations", source, ["float64"], ["float64"], [(8,), (5, 8)], fast_math=fast_math)
    s, t, u = 1 / (1 + np.exp(-x)), np.tanh(x), np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    g, du = 1 / (1 + np.exp(-2 * u)), np.sqrt(2 / np.pi) * (1 + 0.134145 * x**2)
    slope, rest = s / (1 + np.exp(x)), g / (1 + np.exp(2 * u))  # s (1 - s) without its cancellation
    slopes = np.stack([slope, 1 - t**2, s, s + x * slope, g + 2 * x * rest * du])
    for k, name in enumerate(ACTIVATIONS):
        chosen = np.zeros((5, 8))
        chosen[k] = 1
        np.testing.assert_allclose(op.backward([chosen], [x], [op(x)])[0], slopes[k], 1e-9, 1e-14, err_msg=name)
    np.testing.assert_allclose(op.jvp([x], [np.ones(8)])[1][0], slopes, 1e-9, 1e-14)


def test_a_slope_of_the_wrong_side_at_zero_is_told() -> None:
    """A logistic function whose 0 belongs to the form for negative numbers: right everywhere else."""
    new = sources.LOGISTIC + f"// {np.random.default_rng().integers(1 << 60)}"  # what is built already says nothing
    with pytest.warns(UserWarning, match=r"exactly 0 is -?[.\d]+; differences to both sides: -?[.\d]+\. Two forms"):
        compiled("logistic", new.replace("SIDE", "x[i] <= T(0)"), ["float64"], ["float64"])
    compiled("logistic", new.replace("SIDE", "x[i] < T(0)"), ["float64"], ["float64"])


def test_what_never_ends_at_zero_is_built() -> None:
    """An operator need not take zeros."""
    new = sources.DOUBLED + f"// {np.random.default_rng().integers(1 << 60)}"
    op = compiled("doubled", new, ["float64"], ["float64"])
    np.testing.assert_allclose(op.backward([np.ones(2)], [np.array([0.3, 3.0])], [np.zeros(2)])[0], [4, 1])
