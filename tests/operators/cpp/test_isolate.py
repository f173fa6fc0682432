"""Operators in a worker process: crashes, endless loops and stray writes are errors, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import deep500 as d5
from tests.conftest import HANG
from tests.operators.cpp_sources import WEIGHTED, simple

VECTOR = [d5.tensordesc(["N"])]
ANY = simple("")

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
def test_a_crash_in_a_worker_is_an_error(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator misbehaves when x[0] is 1: afterwards the next call is served, by a new worker if need be."""
    body, wanted = CRASHES[kind]
    body = f"if (x[0] == 1) {{ {body} }}\n    for (int i = 0; i < 4; ++i) y[i] = x[i] + 1;"
    source = simple(body, "#include <cstdlib>\n")
    op = d5.compile_custom_cppop_inline(
        "crashing", source, [d5.tensordesc([4])], [d5.tensordesc([4])], isolate=True, timeout=HANG
    )
    good, bad = np.zeros(4, "float32"), np.ones(4, "float32")
    assert op(good).tolist() == [1, 1, 1, 1]
    assert op._binding.timeout == HANG
    if kind == "endless loop":  # for this call only: a good one may take long on a busy machine
        monkeypatch.setattr(op._binding, "timeout", 0.5)
    with pytest.raises(
        d5.errors.OperatorError, match=f"C\\+\\+ operator 'crashing': got .*{wanted.removeprefix('got ')}"
    ):
        op(bad)
    monkeypatch.undo()
    assert op(good).tolist() == [1, 1, 1, 1]
    assert bad.tolist() == [1, 1, 1, 1]


def test_workers_end_with_their_operator() -> None:
    """No process is left behind, dead or alive."""
    op = d5.compile_custom_cppop_inline("failing", ANY, VECTOR, VECTOR, isolate=True)
    process = op._binding._worker.process
    assert Path(f"/proc/{process.pid}").exists()
    with pytest.raises(
        d5.errors.UnsupportedOperator, match="got a request for the address of 'd500_forward' under isolate"
    ):
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
    end = time.monotonic() + HANG
    while is_running(worker):
        assert time.monotonic() < end
        time.sleep(0.05)


def is_running(process: Path) -> bool:
    try:
        return (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_worker_outlives_the_thread_that_started_it() -> None:
    made: list[d5.operators.CompiledOp] = []
    source = ANY
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

    def everything(op: d5.operators.CompiledOp, given: list[np.ndarray]) -> list[np.ndarray]:
        outputs = op.run(given)
        return [*outputs, *op.run_backward(outputs[::-1], given, outputs)]

    for rows in (3, 200, 5):  # grows the memory, and leaves some of it unused
        given = [random.normal(size=(rows, 3)), random.integers(0, 3, rows), np.array(1.5)]
        plain, isolated = (everything(op, given) for op in ops)
        for got, want in zip(isolated, plain, strict=True):
            np.testing.assert_array_equal(got, want)
