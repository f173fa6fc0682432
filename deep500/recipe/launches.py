"""``--repeat N``: seeds as processes of their own, in random order, where an interval over launches is claimed.

Seeds that share a process share what lasts in it (caches, memory layout, heat), so that they say less of the next
launch than their number suggests (:mod:`deep500.measure.launches`). From six seeds on, as many as an interval over
launches takes, and with ``--repeat auto``, the command is started again for every seed, one after the other: the first
begins the run, the others go on with it, the last one judges and seals it. A program that calls ``run_recipe`` cannot
be started again, nor can processes that a launcher started: their seeds share a process, and results say so.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from deep500.distributed.launch import started
from deep500.guard import INTERRUPTED
from deep500.measure.launches import launches_needed
from deep500.recipe.options import AUTO, Options

PDEATHSIG = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def are_launches(options: Options, command: Sequence[str] | None) -> bool:
    """Whether the seeds of a run are to be processes of their own, and this process is none of them.

    Args:
        options: of the run.
        command: what starts it again; None: nothing does.
    """
    alone = options.launch is None and options.stop_after is None and options.turns is None and not options.end
    many = options.repeat == AUTO or int(options.repeat) >= launches_needed()
    return command is not None and many and alone and not options.dry_run and not started()


def launch_seeds(command: Sequence[str], run: Path | None) -> Path:
    """Start a command once per seed until its run is finished; returns the run's folder.

    Args:
        command: of a recipe: a file or ``-m`` and a module, and arguments.
        run: the folder of an unfinished run to go on with.

    Raises:
        SystemExit: a launch failed; it has said why.
        KeyboardInterrupt: a launch was interrupted.
    """
    from deep500.results import Record

    sys.stdout.flush()
    with tempfile.TemporaryDirectory(prefix="deep500-launch-") as folder:
        place = Path(folder) / "run"
        while run is None or Record(run).summary() is None:
            goes_on = [] if run is None else ["--resume", str(run)]
            code = _launched([sys.executable, *command, *goes_on, "--launch", str(place)])
            run = Path(os.fsdecode(place.read_bytes())) if place.exists() else run
            if code == INTERRUPTED:  # it has said how to go on
                raise SystemExit(INTERRUPTED)
            if code == -signal.SIGINT:
                raise KeyboardInterrupt("interrupted" + ("" if run is None else f"; go on with: --resume {run}"))
            if run is None or (code and Record(run).summary() is None):
                raise SystemExit(code or 1)
    return run


def _launched(words: Sequence[str]) -> int:
    """The exit code of a process; it ends when this one is stopped."""
    process = subprocess.Popen(words)
    try:
        return process.wait()
    except KeyboardInterrupt:
        return process.wait() or -signal.SIGINT  # a terminal interrupts both; what has just ended well is not the end
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def end_with_parent() -> None:
    """Let the system end this process (SIGTERM) when the one that launched it ends, however that does (Linux)."""
    getattr(ctypes.CDLL(None), "prctl", lambda *_: None)(PDEATHSIG, signal.SIGTERM)


def in_random_order(seeds: Sequence[int]) -> list[int]:
    """Seeds in the order in which they are launched, the same for every process of a run.

    Example:
        >>> sorted(in_random_order([3, 4, 5])) == [3, 4, 5]
        True
    """
    return [seeds[place] for place in np.random.default_rng(seeds[0]).permutation(len(seeds))]
