"""Processes forked from the one that has built the suite, several at a time: a crash or a hang costs one case.

A worker judges a share of one backend's cases, and names every case before it starts on it; so the parent knows which
one to blame, starts another worker and goes on with the case after it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from deep500 import registry
from deep500.compare.conformance.suite import CaseRecorder, Result, Suite
from deep500.errors import ComparisonError

LIMIT = 1800.0
"""Seconds per case: a safeguard that ends a hang, however busy the machine."""
START = 1800.0
"""Seconds for importing a framework."""
SHARE = 700
"""Cases per process: TensorFlow and XLA keep what they compiled."""


@dataclass
class BackendOutcome:
    """All results of a backend, in which version of its framework and how many seconds of CPU time."""

    backend: str
    version: str = "?"
    seconds: float = 0.0
    results: list[Result] = field(default_factory=list)


def run(
    suite: Suite,
    cases: Mapping[str, Sequence[str]],
    folder: Path,
    jobs: int = 1,
    listen: Callable[[str], CaseRecorder] | None = None,
) -> dict[str, BackendOutcome]:
    """Judge backends by cases.

    Args:
        suite: the cases, built.
        cases: of each backend, the names in the order in which they run.
        folder: receives ``<backend>.jsonl``, one line when a case starts and one when it is judged, and
            ``<backend>.log``, whatever the framework prints.
        jobs: processes at a time.
        listen: makes a recorder for a backend, in the worker.

    Returns:
        The outcome of each backend, its results in the order of its cases.

    Raises:
        ComparisonError: a process ended before its first case.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for backend in cases:
        for suffix in ("jsonl", "log"):
            _file(folder, backend, suffix).write_text("")
    outcomes = {backend: BackendOutcome(backend) for backend in cases}
    shares = deque(
        (outcomes[backend], names[start : start + SHARE])
        for backend, names in cases.items()
        for start in range(0, len(names), SHARE)
    )
    active: list[_Worker] = []
    try:
        while shares or active:
            while shares and len(active) < jobs:
                active.append(_Worker(suite, *shares.popleft(), folder, listen))
            for worker in _wait(active):
                left = worker.listen()
                if left is not None:
                    active.remove(worker)
                    if left:
                        shares.appendleft((worker.outcome, left))
    finally:
        for worker in active:
            worker.end()
    for backend, names in cases.items():
        place = {name: number for number, name in enumerate(names)}
        outcomes[backend].results.sort(key=lambda result: place[result.case])
        outcomes[backend].seconds = round(outcomes[backend].seconds, 1)
    return outcomes


def _wait(active: Sequence[_Worker]) -> list[_Worker]:
    """Workers that have something to say, or have said nothing for too long."""
    nearest = min(worker.deadline for worker in active)
    ready = wait([worker.pipe for worker in active], max(0.0, nearest - time.monotonic()))
    return [worker for worker in active if worker.pipe in ready or worker.deadline <= time.monotonic()]


class _Worker:
    """A process that judges cases of a backend, as its parent sees it."""

    def __init__(
        self,
        suite: Suite,
        outcome: BackendOutcome,
        cases: Sequence[str],
        folder: Path,
        listen: Callable[[str], CaseRecorder] | None,
    ) -> None:
        context = multiprocessing.get_context("fork")
        self.suite, self.outcome, self.cases, self.folder = suite, outcome, cases, folder
        self.pipe, there = context.Pipe()
        self.log = _file(folder, outcome.backend, "log")
        work = (suite, outcome.backend, cases, there, self.log, listen)
        self.process = context.Process(target=_work, args=work, daemon=True)
        self.process.start()
        there.close()
        self.running, self.judged, self.cpu = "", 0, 0.0
        self.started = time.monotonic()
        self.deadline = self.started + START

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.outcome.seconds += self.cpu

    def listen(self) -> Sequence[str] | None:
        """Take one message; once the process is done, or had to be ended, the cases that are left, else None."""
        try:
            message: tuple[str, Any] = (
                self.pipe.recv() if self.pipe.poll() else ("timeout", f"not finished after {LIMIT:g} s")
            )
        except EOFError:
            message = "error", "the process died: see the log"
        kind, value = message
        if kind == "started":
            self.running, self.started = value, time.monotonic()
            self.deadline = self.started + LIMIT
            self._note({"started": value})
        elif kind == "version":
            self.outcome.version = value
        elif kind == "result":
            result, self.cpu = value
            self._judge(result)
        else:
            return self._stop(kind, value)
        return None

    def _stop(self, kind: str, message: str) -> Sequence[str]:
        """End; a case that was running gets the verdict."""
        self.end()
        if self.running:
            self._judge(self.suite.result(self.running, kind, message, round(time.monotonic() - self.started, 3)))
        elif kind != "finished" and not self.judged:
            last = (self.log.read_text(encoding="utf-8").splitlines() or ["nothing"])[-1]
            raise ComparisonError(
                f"backend {self.outcome.backend!r}: its process ended before the first case: see {self.log}, "
                f"whose last line is {last!r}"
            )
        return self.cases[self.judged :]

    def _judge(self, result: Result) -> None:
        self.outcome.results.append(result)
        self._note(result.line())
        self.running = ""
        self.judged += 1

    def _note(self, line: dict[str, Any]) -> None:
        with _file(self.folder, self.outcome.backend, "jsonl").open("a") as lines:
            lines.write(json.dumps(line) + "\n")


def _file(folder: Path, backend: str, suffix: str) -> Path:
    """A backend may be called by its path."""
    return folder / f"{Path(backend).name}.{suffix}"


def _work(
    suite: Suite,
    backend: str,
    cases: Sequence[str],
    pipe: Connection,
    log: Path,
    listen: Callable[[str], CaseRecorder] | None,
) -> None:
    """Run the cases that are asked for, in the worker; its own output goes to the log."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout = sys.stderr = log.open("a", buffering=1)
    os.dup2(sys.stdout.fileno(), 1)  # what native code prints, too
    os.dup2(sys.stdout.fileno(), 2)
    warnings.simplefilter("ignore")
    suite.module = registry.load_backend(backend)
    suite.recorder = None if listen is None else listen(backend)
    pipe.send(("version", _version(backend)))
    for case in cases:
        pipe.send(("started", case))
        sys.stdout.write(f"{case}\n")
        pipe.send(("result", (suite.judge(case), time.process_time())))
    pipe.send(("finished", ""))


def _version(backend: str) -> str:
    needed, _ = registry.BACKENDS.get(backend, (backend, ""))
    module: Any = sys.modules.get(needed)
    return f"{needed} {getattr(module, '__version__', '?')}"
