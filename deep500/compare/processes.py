"""Worker processes: one per framework, warm, asked in turns over pipes; the others wait and take no time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from deep500 import errors
from deep500.errors import ComparisonError, Deep500Error
from deep500.measure.machine import usable_cores

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)
"""Set in every worker to the same number, together with the cores that it may use."""


class Process:
    """A worker process.

    Args:
        name: what messages call it.
        threads: number of threads and of cores that it may use.
        module: its program, which calls :func:`deep500.compare.worker.main`.
        cores: that it may use, if they are others than its threads.

    Example:
        >>> with Process("reference", threads=1) as worker:
        ...     worker.ask("memory")["peak"] > 0
        True
    """

    def __init__(
        self, name: str, threads: int, module: str = "deep500.compare.worker", cores: int | None = None
    ) -> None:
        self.name = name
        self._errors = tempfile.TemporaryFile(mode="w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            env=_environment(threads, threads if cores is None else cores),
            text=True,
            encoding="utf-8",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )

    def ask(self, what: str, **options: Any) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
            Deep500Error: what the worker raised, under its own class.
            ComparisonError: the worker ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"do": what, **options}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: its last words say why
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            raise ComparisonError(
                f"got the end of worker {self.name!r} (exit code {self._process.wait()}) at {what!r}; expected an "
                f"answer; its last words: {self._last_words()}"
            )
        answer = json.loads(line)
        if "error" in answer:
            kind = getattr(errors, answer["error"], Deep500Error)
            raise kind(f"{self.name}: {answer['message']}")
        return answer

    def _last_words(self) -> str:
        self._errors.seek(0)
        return " / ".join(self._errors.read().strip().splitlines()[-3:]) or "none"

    def close(self) -> None:
        """End the process; once more does nothing."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _environment(threads: int, allowed: int) -> Mapping[str, str]:
    """This process's environment and search path, with the numbers of threads and the cores that a worker may use."""
    path = os.pathsep.join(dict.fromkeys(entry for entry in sys.path if entry))
    count = str(threads)
    cores = {"DEEP500_COMPARE_CORES": str(allowed)} if allowed < usable_cores() else {}
    return {**os.environ, **dict.fromkeys(THREAD_VARIABLES, count), **cores, "PYTHONPATH": path}
