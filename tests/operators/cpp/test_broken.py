"""Broken C++ operators: one clear error each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500.operators.cpp import commands
from deep500.operators.cpp.spec import BuildSpec
from tests.operators.cpp_sources import SCRATCH, simple

VECTOR = [d5.tensordesc(["N"])]
OP = '#include "deep500/deep500.h"\nstruct op : deep500::CustomOperator {{ {} }};\nD500_REGISTER_OP(op);\n'
FORWARD = "void forward(const float *x, float *y) { y[0] = x[0]; }"
FACTORY = "D500_EXPORTED void *create_new_op(deep500::tensor_t *, int, deep500::tensor_t *, int) {{ {} }}\n"

EXPECTED = r"expected public void forward\(const float \*x0, float \*y0\): make the class and the descriptors agree"
GOT = r"got void forward\(%s\); " + EXPECTED
FLOATS = r"const float ?\*, float ?\*"

# fmt: off
UNCOMPILABLE = {
    "syntax error": (simple("y[0] = x[0] + ;"), r"broken\.cpp:5:\d+: error: expected"),
    "unknown name": (simple("y[0] = nothing(x[0]);"), r"broken\.cpp:5:\d+: error: .*nothing"),
    "missing header": ('#include "absent.h"\n', r"broken\.cpp:1:\d+: fatal error: .*absent\.h"),
    "unknown external function": (simple("y[0] = outside(x[0]);", "float outside(float);\n"),
                                  r"(?s)add the source or library that has it to other_files.*undefined .*outside"),
    "missing forward": (OP.format("void forwards(const float *, float *) {}"), "got none; " + EXPECTED),
    "private forward": (OP.format(f"private: {FORWARD}"), EXPECTED),
    "wrong arity": (OP.format("void forward(const float *, const float *, float *) {}"),
                    GOT % (r"const float ?\*, " + FLOATS)),
    "wrong dtype": (OP.format("void forward(const double *, double *) {}"), GOT % FLOATS.replace("float", "double")),
    "inputs that can be written": (OP.format("void forward(float *, float *) {}"), GOT % r"float ?\*, float ?\*"),
    "outputs that cannot": (OP.format("void forward(const float *, const float *) {}"),
                            GOT % r"const float ?\*, const float ?\*"),
    "wrong backward": (OP.format(FORWARD + "void backward(const float *, float *) {}"),
                       r"got void backward\(.*expected public void backward\(const float \*dy0, const float \*x0, "
                       r"const float \*y0, float \*dx0\)"),
    "not registered": (simple("").rpartition("D500_REGISTER_OP")[0], r"expected D500_REGISTER_OP\(your_class\)"),
    "another base": ("struct op {};\nD500_REGISTER_OP(op);\n", r"expected the registered class to derive from"),
    "no way to make it": (OP.format(f"op(int) {{}} {FORWARD}"), r"expected D500_EXPORTED void \*create_new_op\("),
    "abstract": (OP.format(f"virtual void rest() = 0; {FORWARD}"), r"expected D500_EXPORTED void \*create_new_op\("),
}
# fmt: on


@pytest.mark.parametrize("kind", UNCOMPILABLE)
def test_what_does_not_compile_is_one_error(kind: str) -> None:
    source, wanted = UNCOMPILABLE[kind]
    with pytest.raises(d5.errors.CompileError, match=wanted) as caught:
        d5.compile_custom_cppop_inline("broken", source, VECTOR, VECTOR)
    text = str(caught.value)
    assert text.startswith("C++ operator 'broken': got ")
    assert "deep500 wrapper" not in text and "abi.h" not in text, "remarks on generated text do not help"
    assert len(text.splitlines()) < 12


def test_a_missing_backward_that_is_asked_for() -> None:
    with pytest.raises(d5.errors.CompileError, match=r"got none; expected public void backward"):
        d5.compile_custom_cppop_inline("broken", OP.format(FORWARD), VECTOR, VECTOR, gradient="backward")
    op = d5.compile_custom_cppop_inline("broken", OP.format(FORWARD), VECTOR, VECTOR)
    with pytest.raises(d5.errors.UnsupportedOperator, match=r"got a call of backward; .*gradient='enzyme'"):
        op.backward([np.ones(1, "float32")], [np.ones(1, "float32")], [np.ones(1, "float32")])


# fmt: off
FAILING = {
    "exception": (simple('throw std::out_of_range("no such row");'), r"forward threw std::out_of_range: no such row"),
    "another exception": (simple("throw 3;"), "forward threw something that is no std::exception"),
    "status": (OP.format("int forward(const float *, float *) { return 7; }"), "forward returned status 7"),
    "nothing made": (OP.format(FORWARD) + FACTORY.format("return nullptr;"), "create_new_op returned a null pointer"),
    "refusal": (SCRATCH.replace("in[0].dims != 1", "in[0].dims == 1"), "create_new_op threw .*only vectors"),
    "another class made": ('#include "deep500/deep500.h"\ntemplate <class T> struct op : deep500::CustomOperator '
                           "{ void forward(const T *, T *) {} };\nD500_REGISTER_OP(op<float>);\n"
                           + FACTORY.format("return new op<double>();"),
                           "create_new_op made a op<double>, but D500_REGISTER_OP names op<float>"),
}
# fmt: on


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("kind", FAILING)
def test_what_fails_when_it_runs_is_one_error(kind: str, isolate: bool) -> None:
    source, wanted = FAILING[kind]
    op = d5.compile_custom_cppop_inline("failing", source, VECTOR, VECTOR, isolate=isolate)
    for _ in range(2):
        with pytest.raises(d5.errors.OperatorError, match=f"C\\+\\+ operator 'failing': got a failure of .*{wanted}"):
            op.forward([np.zeros(3, "float32")])


def test_a_compiler_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Long builds say why; builds that do not end are stopped, with all that they started."""
    spec = BuildSpec("slow", "", None, ("float32",), ("float32",))
    monkeypatch.setattr(commands, "PATIENCE", 0.1)
    commands.run_compiler(spec, ["sleep", "0.3"], tmp_path, False, 20, commands.ZIG_NOTICE)
    assert "zig is building its own C++ library" in capfd.readouterr().err
    with pytest.raises(d5.errors.CompileError, match=r"C\+\+ operator 'slow': got no end of sh in 0\.3 s"):
        commands.run_compiler(spec, ["sh", "-c", "sleep 600; true"], tmp_path, False, 0.3)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEEP500_CXX", "no-such-compiler")
    with pytest.raises(d5.errors.MissingEngine, match="got DEEP500_CXX='no-such-compiler', no program"):
        d5.compile_custom_cppop_inline("broken", OP.format(FORWARD), VECTOR, VECTOR)


def test_twenty_thousand_errors_end_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """gcc would explain them one by one, for many minutes."""
    monkeypatch.setattr(commands, "SECONDS", 60.0)
    body = "".join(f"  u{i} = y[0];\n" for i in range(20_000))
    with pytest.raises(d5.errors.CompileError, match=r"simple\.cpp:5:\d+: error: .*u0"):
        d5.compile_custom_cppop_inline("simple", simple(body), VECTOR, VECTOR)
