"""One process per backend, forked from the one that has built the suite: a crash or a hang costs one case, not the run.

The worker names every case before it starts on it; so the parent knows which one to blame, starts another worker and
goes on with the case after it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TextIO

from deep500 import registry
from tests.conformance.suite import Result, Suite

LIMIT = 180.0
"""Seconds per case: compiling densenet121 takes XLA some twenty on an idle machine."""
START = 180.0
"""Seconds for importing a framework."""
BATCH = 700
"""Cases per process: TensorFlow and XLA keep what they compiled."""


@dataclass
class Outcome:
    """All results of a backend, in which version of its framework and how many seconds of processor time."""

    backend: str
    version: str = "?"
    seconds: float = 0.0
    results: list[Result] = field(default_factory=list)


def run(suite: Suite, backend: str, cases: Sequence[str], folder: Path) -> Outcome:
    """Judge a backend by cases.

    Args:
        suite: the cases, built.
        backend: name.
        cases: names, in the order in which they run.
        folder: receives ``<backend>.jsonl``, one line when a case starts and one when it is judged, and
            ``<backend>.log``, whatever the framework prints.
    """
    outcome, began, left = Outcome(backend), _children(), list(cases)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{backend}.log").write_text("")
    with (folder / f"{backend}.jsonl").open("w", buffering=1) as lines:
        while left:
            found = _one_worker(suite, outcome, left[:BATCH], folder, lines)
            if not found:
                raise RuntimeError(
                    f"backend {backend!r}: its process ended before the first case: see {folder}/{backend}.log"
                )
            outcome.results += found
            left = left[len(found) :]
    outcome.seconds = round(_children() - began, 1)
    return outcome


def _children() -> float:
    """Processor time of all workers that have ended: unlike wall time it says something on a busy machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _one_worker(suite: Suite, outcome: Outcome, cases: Sequence[str], folder: Path, lines: TextIO) -> list[Result]:
    """Results of the first cases: of all, or up to and including one that kills or blocks the process."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    log = folder / f"{outcome.backend}.log"
    process = context.Process(target=_work, args=(suite, outcome.backend, cases, there, log), daemon=True)
    process.start()
    there.close()
    found: list[Result] = []
    try:
        _listen(suite, outcome, here, lines, found)
    finally:
        process.kill()
        process.join()
    return found


def _listen(suite: Suite, outcome: Outcome, pipe: Connection, lines: TextIO, found: list[Result]) -> None:
    limit, running, started = START, "", time.perf_counter()
    while True:
        kind, value = _next(pipe, limit)
        if kind == "started":
            running, started, limit = value, time.perf_counter(), LIMIT
            lines.write(json.dumps({"started": running}) + "\n")
        elif kind == "version":
            outcome.version = value
        elif kind == "finished" or not running:
            return
        else:
            seconds = round(time.perf_counter() - started, 3)
            judged = kind == "result"
            found.append(value if judged else suite.result(running, kind, value, seconds))
            lines.write(json.dumps(found[-1].line()) + "\n")
            running = ""
            if not judged:
                return


def _next(pipe: Connection, limit: float) -> tuple[str, Any]:
    """The worker's next message; a verdict on the running case if it says nothing, or no longer can."""
    try:
        return pipe.recv() if pipe.poll(limit) else ("timeout", f"not finished after {limit:g} s")
    except EOFError:
        return "error", "the process died: see the log"


def _work(suite: Suite, backend: str, cases: Sequence[str], pipe: Connection, log: Path) -> None:
    """What the worker does; its own output goes to the log."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.stdout = sys.stderr = log.open("a", buffering=1)
    os.dup2(sys.stdout.fileno(), 1)  # what native code prints, too
    os.dup2(sys.stdout.fileno(), 2)
    warnings.simplefilter("ignore")
    suite.module = registry.load_backend(backend)
    pipe.send(("version", _version(backend)))
    for case in cases:
        pipe.send(("started", case))
        print(case)
        pipe.send(("result", suite.judge(case)))
    pipe.send(("finished", None))


def _version(backend: str) -> str:
    needed, _ = registry.BACKENDS.get(backend, (backend, ""))
    module: Any = sys.modules.get(needed)
    return f"{needed} {getattr(module, '__version__', '?')}"
