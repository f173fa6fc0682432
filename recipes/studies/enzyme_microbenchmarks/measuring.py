"""A launch: one benchmark's variants in new processes, at all its sizes, checked and then timed in turns."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import Deep500Error
from recipes.studies.enzyme_microbenchmarks.building import Libraries
from recipes.studies.enzyme_microbenchmarks.checking import AGREE, DIFFERENCES, closed_form, difference_error, relative
from recipes.studies.enzyme_microbenchmarks.problems import BENCHMARKS, Problem
from recipes.studies.enzyme_microbenchmarks.worker import OUT_OF_MEMORY

PACKAGE = __name__.rpartition(".")[0]
PRIMAL, ENZYME, REF, HAND, TORCH, JAX = "primal", "Enzyme", "Ref", "by hand", "PyTorch", "JAX"
BY_TORCH = ("lstm", "ba", "gmm", "fft", "brusselator")
"""Problems that are written in PyTorch; by_torch.py says why not the rest."""

NO_MEMORY_CODE = 77
SAMPLE_SECONDS = 0.005
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}
"""One thread; and what is freed stays with the process, as in a loop that needs it again: page faults are not timed."""

Where = tuple[str, str]


class Absent(Deep500Error, RuntimeError):
    """A variant gave no answer; the message is the text of its cell in the table."""


@dataclass
class MeasuredBenchmark:
    """One benchmark at one size in one launch.

    Attributes:
        name, size, amount: of the problem.
        launch: which, from 0.
        seconds: of one call, by variant and round.
        memory: MiB that the first gradient adds to its process, smaller sizes' included.
        difference: largest one between two gradients, relative.
        finite_difference: error of finite differences.
        absent: why a variant has no numbers.
        wrong: what does not agree.
    """

    name: str
    size: str
    amount: float
    launch: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    difference: float = 0.0
    finite_difference: float = 0.0
    absent: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class VariantProcess:
    """A process that holds one variant; see worker.py.

    Args:
        where: (library or Python module, name of the function).
        memory: most bytes of address space; 0 for no limit.
        allocation: library that tells a failing allocation from other ends.
    """

    def __init__(self, where: Where, memory: int, allocation: Path) -> None:
        self.where, self.memory, self.allocation = where, memory, allocation
        self.process = self._begin({})
        self.inputs: tuple[np.ndarray, ...] = ()

    def _begin(self, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).resolve().parents[3])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        return subprocess.Popen(
            [sys.executable, "-m", f"{PACKAGE}.worker", str(self.memory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **SETTINGS, "PYTHONPATH": path, **variables},
        )

    def _send(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """The answer, or None from a process that has ended."""
        assert self.process.stdin and self.process.stdout
        try:
            pickle.dump((method, arguments), self.process.stdin)
            self.process.stdin.flush()
            answer = pickle.load(self.process.stdout)  # from the process that was started here
        except (EOFError, BrokenPipeError):
            self.process.wait()
            return None
        if isinstance(answer, str):
            raise Absent(answer)
        return answer

    def take(self, problem: Problem) -> None:
        """Work on another size from now on, in a new process if the last one has ended."""
        if self.process.poll() is not None:
            self.close()
            self.process = self._begin({})
        self.inputs = (problem.x, problem.c, problem.n)
        self._send("make", (*self.where, self.inputs))

    def ask(self, method: str, *arguments: Any) -> Any:
        """The answer; raises Absent if there is none, with the reason."""
        answer = self._send(method, arguments)
        code = self.process.poll()
        if code is None:
            return answer
        self.close()
        self.process = self._begin({"LD_PRELOAD": str(self.allocation)})
        self._send("make", (*self.where, self.inputs))
        self._send(method, arguments)
        again = self.process.poll()
        self.close()
        raise Absent(OUT_OF_MEMORY if again == NO_MEMORY_CODE else f"ended by {_words(code)}")

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):  # what it was sent last, unread
                stream.close()  # type: ignore[union-attr]


def _words(code: int) -> str:
    """A process's exit code in words."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def variants(name: str, libraries: Libraries, tapes: Mapping[str, str]) -> dict[str, Where]:
    """Locate a benchmark's primal and gradients; a style has no gradients but Enzyme's.

    Args:
        name: of the benchmark or style.
        libraries: what was built.
        tapes: tools' titles by their names.
    """
    paths = {library: str(path) for library, path in libraries.paths.items()}
    where = {
        PRIMAL: (paths["plain"], f"{name}_primal"),
        ENZYME: (paths["enzyme"], f"{name}_gradient"),
        REF: (paths["ref"], f"{name}_gradient"),
    }
    if name not in BENCHMARKS:
        return where
    where[HAND] = (paths["plain"], f"{name}_gradient")
    where |= {title: (paths[tape], f"{name}_gradient") for tape, title in tapes.items()}
    if name in BY_TORCH:
        where[TORCH] = (f"{PACKAGE}.by_torch", name)
    return where | {JAX: (f"{PACKAGE}.by_jax", name)}


def measure(
    problems: Sequence[Problem],
    where: Mapping[str, Where],
    refused: Mapping[str, str],
    allocation: Path,
    memory: int,
    rounds: int,
    launch: int = 0,
) -> list[MeasuredBenchmark]:
    """Check a benchmark's gradients and time its variants in turns, in random order in every round, size by size.

    Args:
        problems: its sizes, small ones first.
        where: its variants.
        refused: variants that could not be built, and why.
        allocation, memory: see VariantProcess.
        rounds: samples of every variant at every size.
        launch: which of several; also the seed of the order.
    """
    workers: dict[str, VariantProcess] = {}
    results = []
    try:
        workers = {
            name: VariantProcess(place, memory, allocation) for name, place in where.items() if name not in refused
        }
        for problem in problems:
            measured = MeasuredBenchmark(problem.name, problem.size, problem.amount, launch, absent=dict(refused))
            here = dict(workers)
            for name in list(here):
                with _present(measured, here, name):
                    here[name].take(problem)
            _check(problem, measured, here)
            _time(measured, here, rounds)
            results.append(measured)
    finally:
        for worker in workers.values():
            worker.close()
    return results


@contextlib.contextmanager
def _present(measured: MeasuredBenchmark, here: dict[str, VariantProcess], name: str) -> Iterator[None]:
    """Go on without a variant that gives no answer within: its numbers make room for the reason."""
    try:
        yield
    except Absent as reason:
        measured.absent[name] = str(reason)
        measured.seconds.pop(name, None)
        del here[name]


def _check(problem: Problem, measured: MeasuredBenchmark, here: dict[str, VariantProcess]) -> None:
    """Compare all gradients with the first, and that one with finite differences; closed forms count as gradients.

    What is wrong is not timed.
    """
    gradients = {}
    for name in list(here):
        with _present(measured, here, name):
            result, unchanged, measured.memory[name] = here[name].ask("checked")
            if not unchanged:
                measured.wrong.append(f"{name} changes its inputs")
                _leave_out(measured, here, name)
                continue
            if name != PRIMAL:
                gradients[name] = result
    closed = closed_form(problem)
    if closed is not None:
        gradients["closed form"] = closed
    if not gradients:
        return
    (first, against), *others = gradients.items()
    for name, gradient in others:
        difference = relative(gradient, against)
        measured.difference = max(measured.difference, difference)
        if difference > AGREE:
            measured.wrong.append(f"{name} differs from {first} by {difference:.1e}")
            _leave_out(measured, here, name)
    if PRIMAL in here:
        with _present(measured, here, PRIMAL):
            error = difference_error(problem, against, lambda x: float(here[PRIMAL].ask("value", x)))
            measured.finite_difference = error
            if error > DIFFERENCES:
                measured.wrong.append(f"{first} is off finite differences by {error:.1e}")
                _leave_out(measured, here, first)


def _leave_out(measured: MeasuredBenchmark, here: dict[str, VariantProcess], name: str) -> None:
    if here.pop(name, None):
        measured.absent[name] = "wrong gradient"


def _time(measured: MeasuredBenchmark, here: dict[str, VariantProcess], rounds: int) -> None:
    """Short variants are called several times for one sample; a round holds one sample of each."""
    calls, shuffle = {}, random.Random(measured.launch).shuffle
    for name in list(here):
        with _present(measured, here, name):
            once = here[name].ask("seconds", 1)
            calls[name] = min(1000, int(np.ceil(SAMPLE_SECONDS / max(once, 1e-6))))
            measured.seconds[name] = []
    for _ in range(rounds):
        order = list(here)
        shuffle(order)
        for name in order:
            with _present(measured, here, name):
                measured.seconds[name].append(here[name].ask("seconds", calls[name]))
