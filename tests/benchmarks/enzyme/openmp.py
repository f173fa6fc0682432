"""OpenMP and Enzyme: what a second thread gains: ``--part openmp [--threads 1,2]``.

A map (every output from one input) and a sum of it, in float64: wall time of the primal and of the gradient that Enzyme
derives, with the first and with every other number of threads, which take turns in random order. The gradients are
compared with the derivative written in NumPy before they are timed. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import time
from collections.abc import Sequence

import numpy as np

import deep500 as d5
from deep500.measure.statistics import MINIMUM_SAMPLES, Interval, median_interval, paired_ratio
from deep500.operators.cpp import CompiledOp
from tests.benchmarks.enzyme import OPENMP
from tests.benchmarks.filling import say_ratio

SOURCE = """
#include <cmath>
#include "deep500/deep500.h"

template <class T> T wave(T v) { return std::sin(v) * std::exp(-v * v); }

struct NAME : deep500::CustomOperator {
  std::size_t length;
  explicit NAME(std::size_t n) : length(n) {}
  void forward(const double *x, double *y) {
    const long n = static_cast<long>(length);
    BODY
  }
};
D500_EXPORTED void *create_new_op(deep500::tensor_t *in, int, deep500::tensor_t *, int) {
  return new NAME(in[0].size());
}
D500_REGISTER_OP(NAME);
"""
BODIES = {
    "map": """
#pragma omp parallel for firstprivate(x, y, n)
    for (long i = 0; i < n; ++i) y[i] = wave(x[i]);
""",
    "sum": """
    double total = 0;
#pragma omp parallel for firstprivate(x, n) reduction(+ : total)
    for (long i = 0; i < n; ++i) total += wave(x[i]);
    y[0] = total;
""",
}


def compiled(kind: str) -> CompiledOp:
    """The operator ``map`` or ``sum``."""
    name = f"openmp_{kind}"
    out = d5.tensordesc(["N"] if kind == "map" else [1], "float64")
    return d5.compile_custom_cppop_inline(
        name,
        SOURCE.replace("NAME", name).replace("BODY", BODIES[kind]),
        [d5.tensordesc(["N"], "float64")],
        [out],
        gradient="enzyme",
        openmp=True,
    )


class Call:
    """Primal and gradient on arrays that stay, through the library's own interface: nothing is allocated meanwhile."""

    def __init__(self, op: CompiledOp, x: np.ndarray) -> None:
        self.library = ctypes.CDLL(str(op.path))
        self.library.d500_instance.restype = ctypes.c_void_p
        sizes = op.sizes([x.shape])
        self.instance = ctypes.c_void_p(self.library.d500_instance(ctypes.c_void_p(sizes.ctypes.data)))
        (y,) = op.forward([x])
        self.arrays = [x, y, np.ones_like(y), np.empty_like(x)]
        self.x, self.y, self.dy, self.dx = ((ctypes.c_void_p * 1)(array.ctypes.data) for array in self.arrays)

    def primal(self) -> None:
        """All of the forward."""
        assert self.library.d500_forward(self.instance, self.x, self.y) == 0

    def gradient(self) -> None:
        """All of the backward."""
        assert self.library.d500_backward(self.instance, self.dy, self.x, self.y, self.dx) == 0

    def threads(self, count: int) -> None:
        """Of the OpenMP runtime that the library is linked with."""
        self.library.omp_set_num_threads(count)

    def check(self) -> None:
        """Refuse to time a gradient that is not the derivative, with whatever number of threads."""
        x, dx = self.arrays[0], self.arrays[3]
        self.gradient()
        expected = np.exp(-x * x) * (np.cos(x) - 2 * x * np.sin(x))
        np.testing.assert_allclose(dx, expected, rtol=1e-10, atol=1e-13)


def measure(call: Call, threads: Sequence[int], rounds: int) -> dict[tuple[str, int], list[float]]:
    """Wall seconds of (part, threads), in turns in random order."""
    parts = {"primal": call.primal, "gradient": call.gradient}
    order, shuffle = [(part, count) for part in parts for count in threads], random.Random(0).shuffle
    times: dict[tuple[str, int], list[float]] = {key: [] for key in order}
    for _ in range(rounds):
        shuffle(order)
        for part, count in order:
            call.threads(count)
            start = time.perf_counter()
            parts[part]()
            times[part, count].append(time.perf_counter() - start)
    return times


def report(kind: str, threads: Sequence[int], times: dict[tuple[str, int], list[float]]) -> dict[str, Interval]:
    """Print times and what the gradient costs in primals; what more threads gain is returned, too."""
    first, gains = threads[0], {}
    for count in threads:
        for part in ("primal", "gradient"):
            print(f"{kind} {part}, {count} thread(s): {median_interval([1e3 * s for s in times[part, count]])} ms")
            if count != first:
                gain = gains[f"{kind}, {part}, {count}"] = paired_ratio(times[part, first], times[part, count])
                print(f"  {first} thread(s) / {count}: {gain}")
        print(f"  gradient / primal: {paired_ratio(times['gradient', count], times['primal', count])}")
    return gains


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", default="1,2", help="numbers of threads; gains are over the first (1,2)")
    parser.add_argument("--size", type=int, default=2_000_000, help="numbers in the input (2e6)")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args(arguments)
    threads = [int(count) for count in options.threads.split(",")]
    if options.rounds < MINIMUM_SAMPLES or min(threads) < 1:
        parser.error(f"got {options.rounds} rounds, threads {threads}; expected {MINIMUM_SAMPLES} and 1 at least")
    x = np.random.default_rng(0).standard_normal(options.size)
    print(f"{options.size} float64; processors that this process may use: {len(os.sched_getaffinity(0))}")
    others = os.getloadavg()[0]
    if others + max(threads) > len(os.sched_getaffinity(0)) + 0.5:
        print(f"WARNING: load is {others:.1f} already; threads wait for each other, and gains are not to be believed")
    gains: dict[str, Interval] = {}
    for kind in BODIES:
        call = Call(compiled(kind), x)
        for count in threads:
            call.threads(count)
            call.check()
        gains |= report(kind, threads, measure(call, threads, options.rounds))
    say_ratio(OPENMP, gains)
