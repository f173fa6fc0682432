"""One benchmark's variants in processes of their own: checked, then timed in turns."""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from deep500.errors import Deep500Error
from recipes.studies.enzyme_microbenchmarks.checking import AGREE, DIFFERENCES, closed_form, difference_error, relative
from recipes.studies.enzyme_microbenchmarks.problems import Problem
from recipes.studies.enzyme_microbenchmarks.worker import OUT_OF_MEMORY

PACKAGE = __name__.rpartition(".")[0]
PRIMAL, ENZYME, REF, OWN = "primal", "Enzyme", "Ref", "own"
BY_TORCH = ("lstm", "ba")
NO_MEMORY_CODE = 77
SAMPLE_SECONDS = 0.01
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}
"""One thread; and what is freed stays with the process, as in a loop that needs it again: page faults are not timed."""

Where = tuple[str, str]


class Absent(Deep500Error, RuntimeError):
    """A variant gave no answer; the message is the text of its cell in the table."""


@dataclass
class Measured:
    """What was found out on one benchmark; ``absent``: why a variant has no numbers; ``wrong``: what does not agree."""

    problem: Problem
    seconds: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    difference: float = 0.0
    finite_difference: float = 0.0
    absent: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


class Worker:
    """A process that holds one variant; see worker.py.

    Args:
        where: (library or Python module, name of the function).
        problem: its inputs.
        memory: most bytes of address space; 0 for no limit.
        allocation: library that tells a failing allocation from other ends.
    """

    def __init__(self, where: Where, problem: Problem, memory: int, allocation: Path) -> None:
        self.start = (where[0], where[1], (problem.x, problem.c, problem.n))
        self.memory, self.allocation = memory, allocation
        self.process = self._begin({})
        self.is_made = False

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

    def ask(self, method: str, *arguments: Any) -> Any:
        """The answer; raises Absent if there is none, with the reason."""
        if not self.is_made:
            self._send("make", self.start)
            self.is_made = True
        answer = self._send(method, arguments)
        code = self.process.poll()
        if code is None:
            return answer
        self.close()
        self.process = self._begin({"LD_PRELOAD": str(self.allocation)})
        self._send("make", self.start)
        self._send(method, arguments)
        again = self.process.poll()
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


def variants(problem: Problem, libraries: Mapping[str, Path]) -> dict[str, Where]:
    """Where a benchmark's primal and gradients are; the own gradient is C++ by hand, or PyTorch's."""
    name = problem.name
    by_hand = (str(libraries["plain"]), f"{name}_gradient")
    return {
        PRIMAL: (str(libraries["plain"]), f"{name}_primal"),
        ENZYME: (str(libraries["enzyme"]), f"{name}_gradient"),
        REF: (str(libraries["ref"]), f"{name}_gradient"),
        OWN: (f"{PACKAGE}.by_torch", name) if name in BY_TORCH else by_hand,
    }


def measure(
    problem: Problem,
    where: Mapping[str, Where],
    allocation: Path,
    memory: int,
    rounds: int,
    progress: Callable[[], None],
) -> Measured:
    """Check a benchmark's gradients and time its variants in turns, in random order in every round."""
    measured, workers = Measured(problem), {}
    try:
        for name, place in where.items():
            workers[name] = Worker(place, problem, memory, allocation)
            with _present(measured, workers, name):
                measured.memory[name] = workers[name].ask("grown")
        _check(measured, workers)
        _time(measured, workers, rounds, progress)
    finally:
        for worker in workers.values():
            worker.close()
    return measured


@contextlib.contextmanager
def _present(measured: Measured, workers: dict[str, Worker], name: str) -> Iterator[None]:
    """Go on without a variant that gives no answer within: its numbers make room for the reason."""
    try:
        yield
    except Absent as reason:
        measured.absent[name] = str(reason)
        measured.seconds.pop(name, None)
        workers.pop(name).close()


def _check(measured: Measured, workers: dict[str, Worker]) -> None:
    """Compare all gradients with Enzyme's (or the first there is), and every one with finite differences."""
    problem, gradients = measured.problem, {}
    for name in list(workers):
        with _present(measured, workers, name):
            result, unchanged = workers[name].ask("checked")
            if not unchanged:
                measured.wrong.append(f"{problem.title}: {name} changes its inputs")
            if name != PRIMAL:
                gradients[name] = result
    closed = closed_form(problem)
    if closed is not None:
        gradients["closed form"] = closed
    for name, gradient in gradients.items():
        difference = relative(gradient, next(iter(gradients.values())))
        measured.difference = max(measured.difference, difference)
        if difference > AGREE:
            measured.wrong.append(f"{problem.title}: {name} differs from {next(iter(gradients))} by {difference:.1e}")
        if PRIMAL not in workers:
            continue
        with _present(measured, workers, PRIMAL):
            error = difference_error(problem, gradient, lambda x: float(workers[PRIMAL].ask("value", x)))
            measured.finite_difference = max(measured.finite_difference, error)
            if error > DIFFERENCES:
                measured.wrong.append(f"{problem.title}: {name} is off finite differences by {error:.1e}")


def _time(measured: Measured, workers: dict[str, Worker], rounds: int, progress: Callable[[], None]) -> None:
    """Short variants are called several times for one sample; a round holds one sample of each."""
    calls, shuffle = {}, random.Random(0).shuffle
    for name in list(workers):
        with _present(measured, workers, name):
            once = workers[name].ask("seconds", 1)
            calls[name] = min(1000, int(np.ceil(SAMPLE_SECONDS / max(once, 1e-6))))
            measured.seconds[name] = []
    for _ in range(rounds):
        order = list(workers)
        shuffle(order)
        for name in order:
            with _present(measured, workers, name):
                measured.seconds[name].append(workers[name].ask("seconds", calls[name]))
        progress()
