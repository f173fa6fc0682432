"""Sweeps on a larger machine: cells as tasks of Ray, or as an array of SLURM, in the same folder.

Both need a file system that all machines share.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from deep500.errors import RecipeError
from deep500.results.files import write_atomic

SCRIPT = "sweep.sbatch"
ENGINES = ("processes", "ray", "slurm")


def load_ray() -> Any:
    """Import Ray and join its cluster ($RAY_ADDRESS, or one of this machine).

    Raises:
        RecipeError: it is not installed, with the cure.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise RecipeError(
            "got --engine ray without the package ray; expected it installed: pip install ray, or leave --engine out"
        ) from None
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False)
    return ray


class RayCells:
    """Runs cells as tasks of Ray, one core each; called from as many threads as there are cells at a time."""

    def __init__(self) -> None:
        ray = self.ray = load_ray()

        @ray.remote(num_cpus=1)
        def cell(words: list[str], folder: str, path: list[str]) -> tuple[int, str, str]:
            sys.path[:] = path
            os.chdir(folder)
            from deep500.race.sweeping import run_apart  # on the machine of the task

            return run_apart(words, jobs=2)

        self.cell = cell

    def __call__(self, words: Sequence[str]) -> tuple[int, str, str]:
        """Run ``deep500`` with these words somewhere; returns exit code, output and last error."""
        outcome: tuple[int, str, str] = self.ray.get(self.cell.remote(list(words), str(Path.cwd()), sys.path))
        return outcome


def write_array(path: Path, name: str, cells: int) -> Path:
    """Write a script for ``sbatch`` whose task N runs cell N of the sweep in a folder; returns the script's path."""
    whole = path.resolve()
    python, folder = shlex.quote(sys.executable), shlex.quote(str(Path.cwd()))
    search = os.pathsep.join(dict.fromkeys(entry for entry in sys.path if entry))
    text = f"""#!/bin/bash
#SBATCH --job-name=sweep-{re.sub(r"[^A-Za-z0-9_.-]", "_", name)}
#SBATCH --array=0-{cells - 1}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --output={whole}/slurm-%a.txt
# Each task runs one cell and may be submitted again: finished cells are left, stopped ones go on.
# When all have ended: deep500 sweep --resume {shlex.quote(str(whole))}
cd {folder} || exit 1
export PYTHONPATH={shlex.quote(search)}
exec {python} -m deep500 sweep --resume {shlex.quote(str(whole))} --cell "$SLURM_ARRAY_TASK_ID"
"""
    write_atomic(whole / SCRIPT, text)
    return whole / SCRIPT
