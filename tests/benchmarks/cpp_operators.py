"""What C++ operators cost beside their work: ``python -m tests.benchmarks.cpp_operators [--rounds N]``.

* the first build, with an empty cache and a warm compiler;
* the second use in a new process, from the call of ``compile_custom_cppop`` to the loaded library, all modules imported
  (bar: 50 ms);
* one forward call on 16 elements through NumPy arrays, against the same exported function through bare ctypes;
* the same call under ``isolate``.

Exit code: 0 met, 1 missed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

import deep500 as d5
from deep500.measure.statistics import median_interval, paired_ratio
from tests.benchmarks.filling import say, say_ratio
from tests.operators.cpp_sources import power

FIGURES = {
    "second use in a new process, to the loaded library": "at most 50 ms",
    "first build, empty cache": "no bar",
    "a forward call on 16 elements over bare ctypes": "no bar",
    "the same call under isolate": "no bar",
}
SECOND, FIRST, CALL, ISOLATED = FIGURES

BAR = 50.0
CALLS = 2000


def compiled(isolate: bool = False) -> d5.operators.CompiledOp:
    """The power operator."""
    vector = [d5.tensordesc(["N"])]
    return d5.compile_custom_cppop_inline(
        "ipow", power(), vector, vector, additional_definitions={"DPOWER": "3"}, isolate=isolate
    )


def seconds(work: Callable[[], object], calls: int = 1) -> float:
    """Wall time of a call."""
    before = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - before) / calls


def second_use() -> float:
    """Wall time in a new process."""
    load = "import deep500 as d5; d5.compile_custom_cppop_inline, d5.tensordesc"  # modules are imported on first use
    code = f"{load}; from tests.benchmarks.cpp_operators import compiled, seconds; print(seconds(compiled))"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def bare(op: d5.operators.CompiledOp, x: np.ndarray) -> Callable[[], object]:
    """The exported function with everything prepared."""
    function = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(op.address("d500_forward"))
    make = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(op.address("d500_instance"))
    instance, y = make(op.sizes([x.shape]).ctypes.data), np.empty_like(x)
    pointers = [(ctypes.c_void_p * 1)(array.ctypes.data) for array in (x, y)]
    return lambda: (function(instance, *pointers), y)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DEEP500_CACHE"] = folder
        say(FIRST, f"{seconds(compiled):.2f} s")
        met = say_ratio(SECOND, median_interval([1e3 * second_use() for _ in range(rounds)]), BAR, unit="ms")
        op, isolated, x = compiled(), compiled(isolate=True), np.ones(16, "float32")
        ways = {
            "forward": lambda: op.forward([x]),
            "bare ctypes": bare(op, x),
            "isolate": lambda: isolated.forward([x]),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name in random.sample(list(ways), len(ways)):
                times[name].append(1e6 * seconds(ways[name], CALLS))
        for name, values in times.items():
            print(f"{name + ', us':20}{median_interval(values)}")
        say_ratio(CALL, paired_ratio(times["forward"], times["bare ctypes"]))
        say_ratio(ISOLATED, median_interval(times["isolate"]), unit="us")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
