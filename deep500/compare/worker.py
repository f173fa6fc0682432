"""The process in which one framework is measured: reads one JSON object per line, answers with one line each.

``python -m deep500.compare.worker``; :mod:`deep500.compare.processes` is the other end. While it is not its turn the
process waits for its next line, so it takes no time from the others. Whatever a framework prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import IO, Any

from deep500.errors import Deep500Error
from deep500.measure.environment import describe
from deep500.registry import backend_modules, load_backend, standing_in


def serve(lines: IO[str], answers: IO[str], worker: Any = None) -> None:
    """Answer requests until the input ends; an error of Deep500 is an answer, any other ends the process."""
    worker = ComparisonWorker() if worker is None else worker
    for line in lines:
        request = json.loads(line)
        action: Callable[..., dict[str, Any]] = getattr(worker, "do_" + request.pop("do"))
        try:
            answer = action(**request)
        except Deep500Error as error:
            answer = {"error": type(error).__name__, "message": str(error)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


class ComparisonWorker:
    """Requests to a worker: a method ``do_<name>`` for each."""

    def __init__(self) -> None:
        self.job: Any = None
        self.before = 0

    def do_prepare(self, kind: str, framework: str, **options: Any) -> dict[str, Any]:
        """Load the framework, the recipe (``training``) or the model (``inference``); say what will be measured."""
        from deep500.compare.jobs import JOBS

        load_backend(framework)
        self.before = peak_memory()
        alone = True
        try:
            with only(framework):
                self.job = JOBS[kind](framework=framework, **options)
        except AttributeError:  # the recipe wants something of its own framework that this one does not have
            alone = False
            self.job = JOBS[kind](framework=framework, **options)
        return {**self.job.facts, "pid": os.getpid(), "threads": threads(), "alone": alone}

    def do_block(self, count: int, **options: Any) -> dict[str, Any]:
        """Do one repetition unmeasured (others have used the caches), then ``count``; mean seconds of these."""
        once, wait = self.job.repetition(**options)
        once()
        wait()
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
        started = perf_counter()
        for _ in range(count):
            once()
        wait()
        seconds = (perf_counter() - started) / count
        return {"seconds": seconds, "switches": resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - switches}

    def do_memory(self) -> dict[str, Any]:
        """Largest resident memory so far, and before the network was built (the framework alone), in bytes."""
        return {"peak": peak_memory(), "before": self.before}

    def do_train(self, seed: int) -> dict[str, Any]:
        """Train the whole recipe with one seed."""
        return self.job.train(seed)

    def do_environment(self) -> dict[str, Any]:
        """Versions and machine."""
        return describe()


@contextmanager
def only(framework: str):  # type: ignore[no-untyped-def]
    """While a recipe is loaded, let every backend's name mean this one.

    A recipe says ``import deep500.frameworks.pytorch as d5fw``. A worker for another framework must not load PyTorch
    for that: its memory and its threads would be measured too.
    """
    modules = backend_modules()
    backend = sys.modules.get(modules.get(framework, "")) or load_backend(framework)
    with standing_in(backend, list(modules.values())):
        yield


def peak_memory() -> int:
    """Largest resident memory of this process so far, in bytes.

    On Linux ``ru_maxrss`` begins with the peak of the process that started this one; ``VmHWM`` is its own.
    """
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def threads() -> dict[str, Any]:
    """Facts that decide the number of threads: variables, usable cores, and torch's own number if it is loaded."""
    from deep500.compare.processes import THREAD_VARIABLES

    known: Mapping[str, Any] = describe_threads()
    return {
        "variables": {name: os.environ.get(name) for name in THREAD_VARIABLES},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        **known,
    }


def describe_threads() -> dict[str, Any]:
    """Torch's number of threads, None where torch is not loaded."""
    torch = sys.modules.get("torch")
    return {"torch": None if torch is None else torch.get_num_threads()}


def main(worker: Any = None) -> None:
    """Keep standard output for the answers; what other code prints goes to stderr.

    Args:
        worker: has the methods ``do_<name>`` that answer; a :class:`ComparisonWorker` if None.
    """
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    count = os.environ.get("DEEP500_COMPARE_CORES")
    if count and hasattr(os, "sched_setaffinity"):  # some frameworks ask for cores, not for variables
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(count)])
    serve(sys.stdin, answers, worker)


if __name__ == "__main__":
    main()
