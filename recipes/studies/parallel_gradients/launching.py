"""One launch of a worker, with ranks under mpiexec."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500.distributed.launch import launch
from deep500.errors import CommunicationError
from recipes.studies.parallel_gradients.building import FORMS, library

WORKER = f"{__name__.rpartition('.')[0]}.worker"
SETTINGS = {
    "KMP_BLOCKTIME": "0",
    "OMP_NUM_THREADS": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
}
"""Threads that wait sleep, so that CPU time is work; what is freed stays with the process."""


@dataclass(frozen=True)
class FormPoint:
    """A form on a number of ranks and threads (of each rank).

    Example:
        >>> FormPoint("hybrid", 2, 4).title, FormPoint("hybrid", 2, 4).workers
        ('MPI+OpenMP 2x4', 8)
    """

    form: str
    ranks: int = 1
    threads: int = 1

    @property
    def workers(self) -> int:
        """Of all kinds."""
        return self.ranks * self.threads

    @property
    def title(self) -> str:
        """For people."""
        form = FORMS[self.form]
        counts = {(True, True): f" {self.ranks}x{self.threads}", (False, False): ""}
        return form.title + counts.get((form.mpi, form.openmp), f" {self.workers}")


def answer_of(proxy: str, point: FormPoint, problem: dict[str, Any], samples: int = 0) -> dict[str, np.ndarray]:
    """Return what a worker answers; builds the library if it is not there.

    Args:
        proxy: see building.py.
        point: form, ranks and threads.
        problem: see hydro.Box and docking.Deal, without ranks.
        samples: how often to take times; 0: check derivatives, see worker.py.

    Raises:
        CommunicationError: a process ended without an answer; its own words are on stderr.
        MissingBackend: there is no MPI.
    """
    job = {"proxy": proxy, "form": point.form, "ranks": point.ranks, "threads": point.threads, "problem": problem}
    job |= {"samples": samples, "library": str(library(proxy, point.form))}
    with tempfile.TemporaryDirectory() as folder, _settings():
        file = Path(folder) / "answer.npz"
        words = ["-m", WORKER, json.dumps(job), str(file)]
        if FORMS[point.form].mpi:
            code = launch(point.ranks, words)
        else:
            code = subprocess.run([sys.executable, *words], check=False).returncode
        if code or not file.exists():
            raise CommunicationError(
                f"{proxy}, {point.title}: got exit code {code}; expected an answer: see above what failed"
            )
        with np.load(file) as arrays:
            return dict(arrays)


@contextmanager
def _settings() -> Iterator[None]:
    """For processes that are started within; and where to find this module."""
    root = str(Path(__file__).resolve().parents[3])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    before = dict(os.environ)
    os.environ.update({**SETTINGS, "PYTHONPATH": path})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
