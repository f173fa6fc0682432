"""Cases on real ranks: ``mpiexec -n P python -m tests.distributed.ranks MODULE:FUNCTION FILE '{"argument": 1}'``.

A case is a function ``case(comm, **arguments) -> what JSON can hold`` in an importable module (not in a test file), so
that the same case runs on ``Threads(P).run(...)`` too. Rank 0 writes the list of what every rank returned to FILE.
Tests call it through the fixture ``on_ranks`` (see conftest.py beside this file).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from deep500.distributed import launch as launch_module
from deep500.distributed import world
from deep500.errors import Deep500Error

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 3600.0
"""Seconds that a case may take, a safeguard; the ranks' own watchdogs name a hang well before."""


def missing() -> str | None:
    """Why no case can run here; None if they can."""
    try:
        launch_module.check_installed()
        launch_module.find_mpiexec()
    except Deep500Error as error:
        return str(error)
    return None


def environment(ranks: int, limit: float, threads: int = 1) -> dict[str, str]:
    """What our launcher sets, with these threads each and a time-out well before the limit."""
    ours = {"OMP_NUM_THREADS": str(threads), "DEEP500_COMM_TIMEOUT": str(0.4 * limit)}
    return {**launch_module.environment(ranks, os.environ), **ours}


def name_of(case: Callable[..., Any]) -> str:
    """``module:function``, as the command line takes it."""
    return f"{case.__module__}:{case.__qualname__}"


def launch(
    case: str, ranks: int, file: Path, arguments: dict[str, Any], limit: float = LIMIT, threads: int = 1
) -> tuple[int, str]:
    """Run a case; returns mpiexec's exit code and all output. After ``limit`` seconds everything is ended."""
    command = [
        launch_module.find_mpiexec(),
        "-n",
        str(ranks),
        sys.executable,
        "-m",
        "tests.distributed.ranks",
        case,
        str(file),
    ]
    return finish([*command, json.dumps(arguments)], environment(ranks, limit, threads), limit)


def finish(command: list[str], variables: dict[str, str], limit: float) -> tuple[int, str]:
    """Run a launcher to its end; returns its exit code and all output. After ``limit`` seconds everything is ended."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=variables,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.terminate()  # the launcher ends its ranks
        try:
            output, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        return 124, f"{output}\nended after {limit:g} s"
    return process.returncode, output


def main(case: str, file: str, arguments: str) -> None:
    """This rank's part."""
    module, _, function = case.partition(":")
    comm = world()
    results = comm.gather_facts(getattr(import_module(module), function)(comm, **json.loads(arguments)))
    if comm.rank == 0:
        Path(file).write_text(json.dumps(results), encoding="utf-8")
    comm.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
