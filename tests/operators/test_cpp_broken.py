"""Broken C++ operators and wrong calls: one clear error each, and the interpreter lives."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from deep500.operators.cpp import cuda, running
from deep500.operators.cpp.spec import BuildSpec
from tests.operators.cpp_sources import SCRATCH, WEIGHTED, simple

VECTOR = [d5.tensordesc(["N"])]
OP = '#include "deep500/deep500.h"\nstruct op : deep500::CustomOperator {{ {} }};\nD500_REGISTER_OP(op);\n'
FORWARD = "void forward(const float *x, float *y) { y[0] = x[0]; }"
FACTORY = "D500_EXPORTED void *create_new_op(deep500::tensor_t *, int, deep500::tensor_t *, int) {{ {} }}\n"

EXPECTED = r"expected public void forward\(const float \*x0, float \*y0\): make the class and the descriptors agree"
GOT = r"got void forward\(%s\); " + EXPECTED
FLOATS = r"const float ?\*, float ?\*"

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
}  # fmt: skip


@pytest.mark.parametrize("kind", UNCOMPILABLE)
def test_what_does_not_compile_is_one_error(kind: str) -> None:
    source, wanted = UNCOMPILABLE[kind]
    with pytest.raises(d5.CompileError, match=wanted) as caught:
        d5.compile_custom_cppop_inline("broken", source, VECTOR, VECTOR)
    text = str(caught.value)
    assert text.startswith("C++ operator 'broken': got ")
    assert "deep500 wrapper" not in text and "abi.h" not in text, "remarks on generated text help nobody"
    assert len(text.splitlines()) < 12


def test_a_missing_backward_that_is_asked_for() -> None:
    with pytest.raises(d5.CompileError, match=r"got none; expected public void backward"):
        d5.compile_custom_cppop_inline("broken", OP.format(FORWARD), VECTOR, VECTOR, gradient="backward")
    op = d5.compile_custom_cppop_inline("broken", OP.format(FORWARD), VECTOR, VECTOR)
    with pytest.raises(d5.UnsupportedOperator, match=r"got a call of backward; .*gradient='enzyme'"):
        op.backward([np.ones(1, "float32")], [np.ones(1, "float32")], [np.ones(1, "float32")])


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
}  # fmt: skip


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("kind", FAILING)
def test_what_fails_when_it_runs_is_one_error(kind: str, isolate: bool) -> None:
    source, wanted = FAILING[kind]
    op = d5.compile_custom_cppop_inline("failing", source, VECTOR, VECTOR, isolate=isolate)
    for _ in range(2):
        with pytest.raises(d5.OperatorError, match=f"C\\+\\+ operator 'failing': got a failure of .*{wanted}"):
            op.forward([np.zeros(3, "float32")])


CRASHES = {
    "out-of-bounds write": ("y[1 << 30] = 1;", "crash .* SIGSEGV"),
    "write just behind an output": ("y[4] = 1;", "got a write outside of its arrays from forward"),
    "write before an output": ("y[-1] = 1;", "got a write outside of its arrays from forward"),
    "write to an input": ("const_cast<float *>(x)[0] = 2;", "crash .* SIGSEGV"),
    "null pointer": ("*static_cast<volatile int *>(nullptr) = 1;", "crash .* SIGSEGV"),
    "abort": ("std::abort();", "crash .* SIGABRT"),
    "exit": ("std::exit(3);", "crash .* exit code 3"),
    "endless loop": ("for (volatile int i = 0;; i = 1) {}", r"got no end of forward in 0\.5 s"),
}


@pytest.mark.parametrize("kind", CRASHES)
def test_a_crash_in_a_worker_is_an_error(kind: str) -> None:
    """The operator misbehaves when x[0] is 1: afterwards the next call is served, by a new worker if need be."""
    body, wanted = CRASHES[kind]
    body = f"if (x[0] == 1) {{ {body} }}\n    for (int i = 0; i < 4; ++i) y[i] = x[i] + 1;"
    source = simple(body, "#include <cstdlib>\n")
    op = d5.compile_custom_cppop_inline("crashing", source, [d5.tensordesc([4])], [d5.tensordesc([4])], isolate=True,
                                        timeout=0.5)  # fmt: skip
    good, bad = np.zeros(4, "float32"), np.ones(4, "float32")
    assert op(good).tolist() == [1, 1, 1, 1]
    with pytest.raises(d5.OperatorError, match=f"C\\+\\+ operator 'crashing': got .*{wanted.removeprefix('got ')}"):
        op(bad)
    assert op(good).tolist() == [1, 1, 1, 1]
    assert bad.tolist() == [1, 1, 1, 1]


def test_workers_end_with_their_operator() -> None:
    """No process is left behind, dead or alive."""
    op = d5.compile_custom_cppop_inline("failing", FAILING["status"][0], VECTOR, VECTOR, isolate=True)
    process = op._binding._worker.process
    assert Path(f"/proc/{process.pid}").exists()
    with pytest.raises(d5.UnsupportedOperator, match="got a request for the address of 'd500_forward' under isolate"):
        op.address("d500_forward")
    del op
    assert process.returncode is not None and not Path(f"/proc/{process.pid}").exists()


LOST = f"""
import numpy as np
import deep500 as d5
op = d5.compile_custom_cppop_inline("simple", {simple(CRASHES["endless loop"][0])!r}, [d5.tensordesc([1])],
                                    [d5.tensordesc([1])], isolate=True)
print(op._binding._worker.process.pid, flush=True)
op(np.zeros(1, "float32"))
"""


def test_workers_end_with_a_process_that_is_killed() -> None:
    """Even while they are in an endless loop."""
    with subprocess.Popen([sys.executable, "-c", LOST], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        worker = Path(f"/proc/{int(process.stdout.readline())}")
        assert worker.exists()
        time.sleep(0.3)  # into the loop
        process.kill()
    end = time.monotonic() + 20
    while is_running(worker):
        assert time.monotonic() < end
        time.sleep(0.05)


def is_running(process: Path) -> bool:
    try:
        return (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_worker_outlives_the_thread_that_started_it() -> None:
    made: list[d5.CompiledOp] = []
    source = FAILING["status"][0].replace("return 7", "return 0")
    thread = threading.Thread(
        target=lambda: made.append(d5.compile_custom_cppop_inline("failing", source, VECTOR, VECTOR, isolate=True))
    )
    thread.start()
    thread.join()
    process = made[0]._binding._worker.process
    time.sleep(0.2)
    made[0].forward([np.zeros(1, "float32")])
    assert made[0]._binding._worker.process is process


def test_an_isolated_operator_has_gradients() -> None:
    """Several inputs and outputs, integers among them, through shared memory: as without isolate."""
    inputs = [d5.tensordesc(("N", "M"), "float64"), d5.tensordesc(["N"], "int64"), d5.tensordesc((), "float64")]
    outputs = [d5.tensordesc(["N"], "float64")] * 2
    ops = [d5.compile_custom_cppop_inline("weighted", WEIGHTED, inputs, outputs, isolate=i) for i in (False, True)]
    random = np.random.default_rng(0)

    def everything(op: d5.CompiledOp, given: list[np.ndarray]) -> list[np.ndarray]:
        outputs = op.run(given)
        return [*outputs, *op.run_backward(outputs[::-1], given, outputs)]

    for rows in (3, 200, 5):  # grows the memory, and leaves some of it unused
        given = [random.normal(size=(rows, 3)), random.integers(0, 3, rows), np.array(1.5)]
        plain, isolated = (everything(op, given) for op in ops)
        for got, want in zip(isolated, plain, strict=True):
            np.testing.assert_array_equal(got, want)


def wrong_calls() -> dict[str, tuple[Callable[[d5.CompiledOp], object], str]]:
    x, y = np.zeros((2, 3)), np.zeros(2)
    odd = np.zeros(49, "int8")[1:].view("float64").reshape(2, 3)
    i, s = np.zeros(2, "int64"), np.array(1.0)

    def back(op: d5.CompiledOp, grads: object = (y, y), inputs: object = (x, i, s), outputs: object = (y, y)) -> object:
        return op.backward(grads, inputs, outputs)  # type: ignore[arg-type]

    return {
        "too few inputs": (lambda op: op.forward([x, i]), "got 2 inputs; expected 3"),
        "dtype": (lambda op: op.forward([x.astype("float32"), i, s]), "input 0: got dtype float32; expected float64"),
        "byte order": (lambda op: op.forward([x.astype(">f8"), i, s]), "input 0: got dtype >f8"),
        "objects": (lambda op: op.forward([x.astype(object), i, s]), "input 0: got dtype object"),
        "rank": (lambda op: op.forward([y, i, s]), r"input 0: got float64\[2\]; expected float64\[NxM\]"),
        "sizes": (lambda op: op.forward([x, i[:1].copy(), s]), "input 1: got .*expected .* with {'N': 2"),
        "strides": (lambda op: op.forward([np.zeros((3, 2)).T, i, s]), "input 0: got strides .*; expected a dense"),
        "misaligned": (lambda op: op.forward([odd, i, s]), "dense array"),
        "list": (lambda op: op.forward([[[1.0]], i, s]), "input 0: got a builtins.list; expected a NumPy array"),
        "None": (lambda op: op.forward([x, None, s]), "input 1: got a builtins.NoneType"),
        "gradient's shape": (lambda op: back(op, grads=(y, y[:1])), r"output gradient 1: got float64\[1\]"),
        "gradient's dtype": (lambda op: back(op, grads=(y.astype("f4"), y)), "output gradient 0: got float32"),
        "null gradient": (lambda op: back(op, grads=(None, y)), "output gradient 0: got a builtins.NoneType"),
        "null output": (lambda op: back(op, outputs=(y, None)), "output 1: got a builtins.NoneType"),
        "too few outputs": (lambda op: back(op, outputs=(y,)), "got 1 outputs; expected 2"),
    }  # fmt: skip


@pytest.mark.parametrize("isolate", [False, True])
def test_wrong_calls_are_errors(isolate: bool) -> None:
    inputs = [d5.tensordesc(("N", "M"), "float64"), d5.tensordesc(["N"], "int64"), d5.tensordesc((), "float64")]
    outputs = [d5.tensordesc(["N"], "float64")] * 2
    op = d5.compile_custom_cppop_inline("weighted", WEIGHTED, inputs, outputs, isolate=isolate)
    for kind, (call, wanted) in wrong_calls().items():
        with pytest.raises(d5.InputError) as caught:
            call(op)
        assert re.search(wanted, str(caught.value)), (kind, caught.value)


def test_null_pointers_of_the_c_interface_are_errors() -> None:
    """What a framework could pass; empty tensors may have none."""
    op = d5.compile_custom_cppop_inline("broken", OP.format(FORWARD), VECTOR, VECTOR)
    for inputs, outputs, wanted in (
        ([None], [np.ones(1)], "null pointer for input 0"),
        ([np.ones(1)], [None], "output 0"),
    ):
        with pytest.raises(d5.OperatorError, match=wanted):
            op._binding.call("forward", op._binding.instance(op.sizes([(1,)])), inputs, outputs)
    with pytest.raises(d5.OperatorError, match="null instance"):
        op._binding.call("forward", 0, [np.ones(1)], [np.ones(1)])


ARGUMENTS = {
    "name": (dict(name="a-b"), "got operator name 'a-b'; expected an ASCII identifier"),
    "gradient": (dict(gradient="magic"), "got gradient 'magic'; expected 'backward', 'enzyme' or None"),
    "no inputs": (dict(input_descriptors=[]), "got 0 inputs and 1 outputs; expected some"),
    "dtype": (dict(input_descriptors=[d5.tensordesc(["N"], "complex64")]), "input 0: got dtype complex64"),
    "no descriptor": (dict(output_descriptors=[(1,)]), r"output 0: got \(1,\); expected a TensorDescriptor"),
    "unknown size": (dict(output_descriptors=[d5.tensordesc(["K"])]), "got size 'K' of output 0"),
    "inactive": (dict(inactive=[1]), r"got inactive \[1\]; expected indices of its inputs"),
    "definition": (dict(additional_definitions={"A B": 1}), "got definition 'A B': '1'"),
    "other file": (dict(other_files=["absent.cpp"]), "got file 'absent.cpp', which does not exist"),
}


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_wrong_arguments_are_errors(kind: str) -> None:
    changed, wanted = ARGUMENTS[kind]
    given = {"name": "broken", "code": OP.format(FORWARD), "input_descriptors": VECTOR, "output_descriptors": VECTOR}
    with pytest.raises(d5.InputError, match=wanted):
        d5.compile_custom_cppop_inline(**(given | changed))


def test_a_compiler_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Long builds say why; builds that do not end are stopped, with all that they started."""
    spec = BuildSpec("slow", "", None, ("float32",), ("float32",))
    monkeypatch.setattr(running, "PATIENCE", 0.1)
    running.run_compiler(spec, ["sleep", "0.3"], tmp_path, False, 20, running.ZIG_NOTICE)
    assert "zig is building its own C++ library" in capfd.readouterr().err
    before = time.monotonic()
    with pytest.raises(d5.CompileError, match=r"C\+\+ operator 'slow': got no end of sh in 0\.3 s"):
        running.run_compiler(spec, ["sh", "-c", "sleep 60; true"], tmp_path, False, 0.3)
    assert time.monotonic() - before < 30


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEEP500_CXX", "no-such-compiler")
    with pytest.raises(d5.MissingEngine, match="got DEEP500_CXX='no-such-compiler', no program"):
        d5.compile_custom_cppop_inline("broken", OP.format(FORWARD), VECTOR, VECTOR)


def test_cuda_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "op.cu").write_text(CUDA, encoding="utf-8")
    monkeypatch.setattr(cuda, "gpu_architecture", lambda: (None, "no driver"))
    monkeypatch.setattr(cuda, "nvcc_program", lambda: None)
    with pytest.raises(
        d5.MissingDevice, match=r"got no nvcc and no GPU \(no driver\); expected nvcc and a GPU: install"
    ):
        d5.compile_custom_cppop("twice", tmp_path / "op.cu", VECTOR, VECTOR)
    monkeypatch.setattr(cuda, "nvcc_program", lambda: Path("/bin/nvcc"))
    with pytest.raises(d5.MissingDevice, match=r"got nvcc at /bin/nvcc and no GPU \(no driver\)"):
        d5.compile_custom_cppop("twice", tmp_path / "op.cu", VECTOR, VECTOR)
    with pytest.raises(d5.InputError, match="Enzyme differentiates C\\+\\+ for the processor only"):
        d5.compile_custom_cppop("twice", tmp_path / "op.cu", VECTOR, VECTOR, gradient="enzyme")


CUDA = """
#include "deep500/deep500.h"
__global__ void kernel(const float *x, float *y, std::size_t n) {
  const std::size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
struct twice : deep500::CustomOperator {
  std::size_t n;
  explicit twice(std::size_t n) : n(n) {}
  bool supports_cuda() override { return true; }
  void forward_cuda(const float *x, float *y, cudaStream_t stream) { kernel<<<n / 256 + 1, 256, 0, stream>>>(x, y, n); }
  void backward_cuda(const float *dy, const float *x, const float *y, float *dx, cudaStream_t stream) {
    kernel<<<n / 256 + 1, 256, 0, stream>>>(dy, dx, n);
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new twice(in[0].size());
}
D500_REGISTER_OP(twice);
"""


@pytest.mark.skipif(cuda.nvcc_program() is None, reason="nvcc is not there")
def test_cuda_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU the code is compiled for some, and running it is an error rather than a crash."""
    architecture = cuda.gpu_architecture()[0]
    if architecture is None:
        monkeypatch.setattr(cuda, "gpu_architecture", lambda: ("sm_90", ""))
    (tmp_path / "op.cu").write_text(CUDA, encoding="utf-8")
    op = d5.compile_custom_cppop("twice", tmp_path / "op.cu", VECTOR, VECTOR)
    assert op.signature["cuda"] and op.differentiable and op.address("d500_forward_cuda")
    x = np.arange(1000, dtype="float32")
    if architecture is None:
        with pytest.raises(d5.OperatorError, match="forward threw std::runtime_error: cudaMalloc: CUDA driver"):
            op(x)
    else:
        np.testing.assert_array_equal(op(x), 2 * x)
        np.testing.assert_array_equal(op.run_backward([x], [x], [x])[0], 2 * x)
    (tmp_path / "bad.cu").write_text(CUDA.replace("cudaStream_t stream)", "int)"), encoding="utf-8")
    with pytest.raises(d5.CompileError, match=r"bad\.cu|expected public void forward_cuda"):
        d5.compile_custom_cppop("twice", tmp_path / "bad.cu", VECTOR, VECTOR)
