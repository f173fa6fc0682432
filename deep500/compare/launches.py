"""One side of a comparison in turns, and its launches: ``deep500 run`` in processes of their own."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from deep500.compare.revision import Revision
from deep500.errors import ResultsError
from deep500.guard import INTERRUPTED
from deep500.recipe.turns import DESCRIPTOR, GO

START = """
import ctypes, sys
getattr(ctypes.CDLL(None), "prctl", lambda *_: None)(1, 15)
sys.path[:] = [p for p in sys.path if p]
from deep500.cli import main
raise SystemExit(main())
"""
"""Program of a launch, which ends (SIGTERM) when the process that started it does: prctl(PR_SET_PDEATHSIG), of Linux.

Not ``-m``, which would prefer the code in the current folder to that of another revision."""


class LaunchFailed(ResultsError):
    """A launch ended without a result; its exit code is the launch's own."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.exit_code = code


@dataclasses.dataclass
class Side:
    """One of the sides that are launched in turns.

    Attributes:
        name: ``base``, ``judged`` or ``control`` (the base again).
        recipe: its file.
        words: that begin the run.
        shown: those of them that the user knows.
        out: where results go.
        root: the folder whose package ``deep500`` is run.
        turns: name of the comparison, and this side's, as the option has it.
        revision: of the code, None for the one at hand.
        summary: what the newest launch printed; ``path`` is the results folder.
        warnings: what it said on stderr.
        apart: seeds that were not trained in turns.
    """

    name: str
    recipe: Path
    words: list[str]
    shown: list[str]
    out: Path
    root: Path
    turns: str
    revision: Revision | None = None
    summary: dict[str, Any] = dataclasses.field(default_factory=dict)
    warnings: str = ""
    apart: Sequence[int] = ()

    def __str__(self) -> str:
        at = "" if self.revision is None else f" at {self.revision}"
        return shlex.join([self.recipe.name, *self.shown]) + at

    @property
    def result(self) -> Path:
        """The results folder."""
        return Path(self.summary["path"])

    def facts(self) -> dict[str, Any]:
        """For JSON."""
        commit = None if self.revision is None else self.revision.commit
        return {
            "run": str(self.result),
            "recipe": self.recipe.name,
            "words": self.shown,
            "commit": commit,
            "verdict": self.summary.get("verdict"),
        }

    def command(self, end: bool = False) -> list[str]:
        """The next launch, or the process that judges and seals the seeds so far."""
        goes_on = ["--resume", str(self.result)] if self.summary else self.words
        once = [] if "--dry-run" in self.words else ["--end"] if end else ["--stop-after", "1"]
        turns = ["--in-turns", f"{self.turns}:{','.join(map(str, self.apart))}"]
        words = ["run", str(self.recipe), *goes_on, *once, *turns, "--out", str(self.out), "--json"]
        return [sys.executable, "-c", START, *words]

    def environment(self) -> dict[str, str]:
        """Of its processes: this code first, whatever the current folder holds."""
        known = [Path(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        path = [self.root, *known, Path.cwd()]
        if self.revision is not None:
            path = [self.revision.moved(entry) for entry in path]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONSAFEPATH": "1"}


def launch_in_turns(
    sides: Sequence[Side], rng: np.random.Generator, say: Callable[[str], None], end: bool = False
) -> None:
    """Train the next seed of every side, in processes of their own that take turns; with ``end`` judge those so far.

    All are started; then one after the other trains an epoch while the others wait, in an order drawn anew for every
    round (:mod:`deep500.recipe.turns`). Sides of several ranks, whose waiting would take cores, are launched one
    after the other.

    Raises:
        LaunchFailed: one ended without a result.
        KeyboardInterrupt: one was interrupted.
    """
    drawn = [sides[place] for place in rng.permutation(len(sides))]
    if any("--ranks" in side.words for side in sides):
        for side in drawn:
            with _started([side], end) as processes:
                _take_turns(processes, rng)
                _take_result(side, processes[0], say)
        return
    with _started(drawn, end) as processes:
        _take_turns(processes, rng)
        for side, process in zip(drawn, processes, strict=True):
            _take_result(side, process, say)


@dataclasses.dataclass
class LaunchProcess:
    """A launch that runs: its process, our end of its socket, and what it prints."""

    process: subprocess.Popen[bytes]
    socket: socket.socket
    out: IO[bytes]
    errors: IO[bytes]

    def ask(self) -> bool:
        """Wait until it wants a turn, or has ended (false)."""
        try:
            return bool(self.socket.recv(1))
        except ConnectionError:
            return False

    def give(self) -> bool:
        """Give it a turn and wait until it wants the next, or has ended (false)."""
        try:
            self.socket.send(GO)
        except ConnectionError:
            return False
        return self.ask()


@contextlib.contextmanager
def _started(sides: Sequence[Side], end: bool) -> Iterator[list[LaunchProcess]]:
    """The next launch of each; whatever still runs at the end is ended."""
    processes: list[LaunchProcess] = []
    try:
        for side in sides:
            ours, theirs = socket.socketpair()
            out, errors = tempfile.TemporaryFile(), tempfile.TemporaryFile()
            environment = {**side.environment(), DESCRIPTOR: str(theirs.fileno())}
            with theirs:
                process = subprocess.Popen(
                    side.command(end), env=environment, stdout=out, stderr=errors, pass_fds=[theirs.fileno()]
                )
            processes.append(LaunchProcess(process, ours, out, errors))
        yield processes
    finally:
        for launched in processes:
            if launched.process.poll() is None:
                launched.process.terminate()
            launched.process.wait()
            for file in (launched.socket, launched.out, launched.errors):
                file.close()


def _take_turns(processes: Sequence[LaunchProcess], rng: np.random.Generator) -> None:
    """Until all have ended: one epoch of each, in an order drawn anew."""
    ready = [process for process in processes if process.ask()]
    while ready:
        drawn = [ready[place] for place in rng.permutation(len(ready))]
        ready = [process for process in drawn if process.give()]


def _take_result(side: Side, launched: LaunchProcess, say: Callable[[str], None]) -> None:
    """Take what a launch that has ended printed."""
    code = launched.process.wait()
    texts = []
    for file in (launched.out, launched.errors):
        file.seek(0)
        texts.append(file.read().decode("utf-8", errors="replace"))
    out, errors = texts
    if code == INTERRUPTED:
        raise KeyboardInterrupt(f"interrupted in a launch of {side.name} ({side})")
    try:
        summary = json.loads(out)
    except ValueError:
        last = (errors.strip().splitlines() or ["it said nothing"])[-1].removeprefix("deep500: error: ")
        if side.revision is not None and "unrecognized arguments" in last:
            last = f"got code that cannot take turns ({last}); expected a revision that knows 'deep500 run --against'"
        raise LaunchFailed(f"{side.name} ({side}): {last}", code if code in (1, 2, 3) else 1) from None
    if errors and errors != side.warnings:
        say(f"{side.name}: {errors.strip()}")
    side.summary, side.warnings = summary, errors
