"""One launch of a worker, with ranks under mpiexec."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from deep500.distributed.launch import launch
from deep500.errors import CommunicationError
from recipes.studies.parallel_gradients.building import FORMS, library

WORKER = f"{__name__.rpartition('.')[0]}.worker"


def answer_of(
    proxy: str, form: str, problem: dict[str, Any], ranks: int = 1, threads: int = 1, **job: Any
) -> dict[str, np.ndarray]:
    """What a worker answers; builds the library if it is not there.

    Args:
        proxy, form: see building.py.
        problem: see hydro.Box and docking.Deal, without ranks.
        ranks, threads: how many; 1 where the form has none.
        job: what it does, see worker.py.

    Raises:
        CommunicationError: a process ended without an answer; its own words are on stderr.
        MissingBackend: there is no MPI.
    """
    about = {"proxy": proxy, "form": form, "problem": problem, "ranks": ranks, "threads": threads, **job}
    about["library"] = str(library(proxy, form))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answer.npz"
        words = ["-m", WORKER, json.dumps(about), str(file)]
        if FORMS[form].mpi:
            code = launch(ranks, words)
        else:
            code = subprocess.run([sys.executable, *words], check=False).returncode
        if code or not file.exists():
            raise CommunicationError(
                f"{proxy}, {FORMS[form].title}, {ranks} ranks, {threads} threads: got exit code {code}; expected an "
                "answer: see above what failed"
            )
        with np.load(file) as found:
            return dict(found)
