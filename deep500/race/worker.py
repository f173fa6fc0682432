"""Trials in processes of their own, with limits on memory and silence: whatever goes wrong in one is a miss with its
reason."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deep500.race.trial import Request

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
PROGRAM = ("-m", "deep500.race.trial")
TICK = 0.1
"""Seconds between two looks at a worker's memory."""


@dataclass(frozen=True)
class Limits:
    """The limits of a trial's process.

    Attributes:
        memory: most resident bytes.
        silence: most seconds between two evaluations, and until the first one.
        threads: of the process.
    """

    memory: int = 4 * 2**30
    silence: float = 180.0
    threads: int = 1


@dataclass
class TrialProcess:
    """The outcome of a process that runs one trial.

    Attributes:
        curve: its evaluations.
        outcome: what :func:`deep500.race.trial.run_trial` gives; a miss where it died.
        peak: resident bytes, the most that was seen.
    """

    outcome: dict[str, Any] = field(default_factory=dict)
    curve: list[dict[str, Any]] = field(default_factory=list)
    peak: int = 0


def run_isolated(request: Request, limits: Limits, stopped: Callable[[], bool] = lambda: False) -> TrialProcess:
    """Run a trial in a process of its own, and wait for its end.

    Args:
        request: the trial.
        limits: beyond which the process is ended.
        stopped: asked every tenth of a second; when it says so the process is ended.

    Raises:
        KeyboardInterrupt: it was stopped.
    """
    result = TrialProcess()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, *PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(limits.threads),
            start_new_session=True,  # Ctrl-C is for the race, which ends its trials itself
        )
        try:
            reason = _follow(process, request, limits, result, stopped)
        finally:
            _end(process)
        if not result.outcome:
            errors.seek(0)
            last = (errors.read().decode("utf-8", errors="replace").strip().splitlines() or [""])[-1]
            result.outcome = _miss(result, reason or _death(process.returncode, last))
    return result


def run_described(request: Mapping[str, Any], limits: Mapping[str, Any]) -> TrialProcess:
    """Run :func:`run_isolated` with the fields of its arguments, as another machine gets them."""
    return run_isolated(Request(**request), Limits(**limits))


def _follow(
    process: subprocess.Popen[bytes],
    request: Request,
    limits: Limits,
    result: TrialProcess,
    stopped: Callable[[], bool],
) -> str:
    """Read lines until the end; returns why the process has to be ended, empty if it ended by itself."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write((json.dumps(asdict(request)) + "\n").encode())
        process.stdin.flush()  # and stays open: its end tells the trial that the race has ended, in whatever way
    except BrokenPipeError:
        pass  # it has ended: the lines say how
    heard, rest, handle = time.monotonic(), b"", process.stdout.fileno()
    while True:
        if stopped():
            raise KeyboardInterrupt
        result.peak = max(result.peak, _resident(process.pid))
        if result.peak > limits.memory:
            gib = limits.memory / 2**30
            return f"got more than {gib:.3g} GiB of memory; expected at most that: raise --memory if it needs more"
        if time.monotonic() - heard > limits.silence:
            return f"hung: got no evaluation in {limits.silence:g} s; expected one: look for an endless loop"
        if not select.select([handle], [], [], TICK)[0]:
            continue
        piece = os.read(handle, 2**16)
        if not piece:
            process.wait()
            return ""
        heard = time.monotonic()
        *lines, rest = (rest + piece).split(b"\n")
        for line in map(json.loads, lines):
            if "outcome" in line:
                result.outcome = line["outcome"]
            else:
                result.curve.append(line)


def _miss(result: TrialProcess, reason: str) -> dict[str, Any]:
    spent = result.curve[-1]["seconds"] if result.curve else 0.0
    return {"seconds": None, "steps": None, "spent": spent, "best": None, "reason": reason, "warnings": []}


def _death(code: int, last: str) -> str:
    if code < 0:
        return f"crashed: {signal.Signals(-code).name}"
    return f"crashed: exit code {code}" + (f" ({last[:200]})" if last else "")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _resident(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), "VmRSS: 0")
    return int(line.split()[1]) * 1024


def _environment(threads: int) -> Mapping[str, str]:
    path = os.pathsep.join(dict.fromkeys(entry for entry in sys.path if entry))
    return {**os.environ, **dict.fromkeys(THREADS, str(threads)), "PYTHONPATH": path}
