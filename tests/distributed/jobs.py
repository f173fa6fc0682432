"""Run the float64 recipe on ranks as a user does, let a rank fail on purpose, and look at what is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500.results import Record
from deep500.results.checkpoint import list_checkpoints, load_checkpoint
from tests.distributed.ranks import LIMIT

ROOT = Path(__file__).resolve().parents[2]
RECIPE = Path(__file__).with_name("recipe64.py")


@dataclass
class Job:
    """What became of a run: exit code, both outputs."""

    code: int
    output: str
    errors: str


def run(
    folder: Path, *words: str, limit: float = LIMIT, marker: str = "", launcher: Sequence[str] = (), **variables: str
) -> Job:
    """``python <launcher> recipe64.py <words>`` in a folder; ``FAIL_RANK`` and its like decide who fails.

    ``marker`` is a word in the environment of every process of the job, by which :func:`survivors` finds them.
    """
    job = begin(folder, *words, marker=marker, launcher=launcher, **variables)
    try:
        output, errors = job.communicate(timeout=limit)
    finally:
        job.kill()
    return Job(job.returncode, output, errors)


def begin(
    folder: Path, *words: str, marker: str = "", launcher: Sequence[str] = (), **variables: str
) -> subprocess.Popen[str]:
    """Like :func:`run`, without waiting."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "DEEP500_JOB": marker, **variables}
    return subprocess.Popen(
        [sys.executable, *launcher, str(RECIPE), *words],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def survivors(marker: str) -> list[int]:
    """Processes that still have the marker in their environment."""
    processes = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"DEEP500_JOB={marker}".encode() in path.read_bytes().split(b"\0"):
                processes.append(int(path.parent.name))
        except OSError:  # it ended, or is not ours
            continue
    return processes


def outcome(folder: Path) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Of the only run in a folder: the arrays of the last checkpoint, and the epochs' lines without times."""
    (path,) = (folder / "results" / RECIPE.stem).glob("2*")
    record = Record(path)
    arrays = load_checkpoint(list_checkpoints(path / "checkpoints" / "seed-0")[-1])["arrays"]
    timed = ("train_seconds", "test_seconds", "clock", "load", "ranks")
    return arrays, [{k: v for k, v in line.items() if k not in timed} for line in record.epochs()]


def summary(folder: Path) -> dict[str, Any] | None:
    """``summary.json`` of the only run in a folder, None if it has none."""
    summaries = list((folder / "results" / RECIPE.stem).glob("2*/summary.json"))
    return json.loads(summaries[0].read_text(encoding="utf-8")) if summaries else None
