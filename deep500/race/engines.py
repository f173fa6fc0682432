"""Sweeps and races on a larger machine: parts as tasks of Ray, or as an array of SLURM, in the same folder.

Both need a file system that all machines share.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from deep500.errors import RecipeError
from deep500.results.files import write_atomic

ENGINES = ("processes", "ray", "slurm")
TICK = 0.1
"""Seconds between two questions whether all stops."""


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


class RayTasks:
    """Runs a function as tasks of Ray, one core each; called from as many threads as there are tasks at a time.

    Args:
        function: at the top level of a module, which the machine of a task imports; takes plain values.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        ray = self.ray = load_ray()
        module, name = function.__module__, function.__name__

        @ray.remote(num_cpus=1)
        def task(arguments: tuple[Any, ...], folder: str, path: list[str]) -> Any:
            sys.path[:] = path
            os.chdir(folder)
            return getattr(import_module(module), name)(*arguments)

        self.task = task

    def __call__(self, *arguments: Any, stopped: Callable[[], bool] = lambda: False) -> Any:
        """Run the function somewhere; raises KeyboardInterrupt, and ends the task, when ``stopped`` says so."""
        reference = self.task.remote(arguments, str(Path.cwd()), sys.path)
        while not self.ray.wait([reference], timeout=TICK)[0]:
            if stopped():
                self.ray.cancel(reference)
                raise KeyboardInterrupt
        return self.ray.get(reference)


def write_array(path: Path, kind: str, option: str, name: str, numbers: Sequence[int]) -> Path:
    """Write a script for ``sbatch`` whose tasks each run one part of a sweep or race; returns its path.

    Args:
        path: the folder.
        kind: ``"sweep"`` or ``"race"``, the command.
        option: of the command, which takes the number of a part.
        name: of the job, beside its kind.
        numbers: of the parts.
    """
    whole = path.resolve()
    python, folder = shlex.quote(sys.executable), shlex.quote(str(Path.cwd()))
    search = os.pathsep.join(dict.fromkeys(entry for entry in sys.path if entry))
    text = f"""#!/bin/bash
#SBATCH --job-name={kind}-{re.sub(r"[^A-Za-z0-9_.-]", "_", name)}
#SBATCH --array={ranges(numbers)}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --output={whole}/slurm-%a.txt
# Each task runs one part and may be submitted again: finished parts are left, stopped ones go on.
# When all have ended: deep500 {kind} --resume {shlex.quote(str(whole))}
cd {folder} || exit 1
export PYTHONPATH={shlex.quote(search)}
exec {python} -m deep500 {kind} --resume {shlex.quote(str(whole))} {option} "$SLURM_ARRAY_TASK_ID"
"""
    script = whole / f"{kind}.sbatch"
    write_atomic(script, text)
    return script


def ranges(numbers: Sequence[int]) -> str:
    """Write numbers as SLURM reads those of an array.

    Example:
        >>> ranges([0, 1, 2, 5, 7, 8])
        '0-2,5,7-8'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
