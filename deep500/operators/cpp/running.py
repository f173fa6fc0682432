"""Start a compiler, and turn what it says into an error that names the user's file."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from deep500.errors import CompileError
from deep500.operators.cpp.spec import BuildSpec

SECONDS = 300.0
FIRST_ZIG_SECONDS = 1200.0
MOST_LINES = 40


def run_compiler(spec: BuildSpec, command: Sequence[str], folder: Path, live: bool, seconds: float) -> None:
    """Run one command of a build.

    Args:
        live: also write what is run and said to standard error.

    Raises:
        CompileError: it fails or takes too long.
    """
    if live:
        sys.stderr.write(f"deep500: {' '.join(command)}\n")
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", cwd=folder, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said = process.communicate(timeout=seconds)[0]
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)  # the compiler's own children too
            if isinstance(error, subprocess.TimeoutExpired):
                raise CompileError(
                    f"C++ operator {spec.name!r}: got no end of {Path(command[0]).name} in {seconds:g} s; expected "
                    "one: simplify the source"
                ) from error
            raise
    if live:
        sys.stderr.write(said)
    if process.returncode:
        raise compile_error(spec, said.replace(f"{folder}{os.sep}", ""))


def compile_error(spec: BuildSpec, said: str) -> CompileError:
    """The error for a compiler's output."""
    name = f"C++ operator {spec.name!r}"
    wanted = re.search(r"D500: (expected [^\n]*?)\"?$", said, re.MULTILINE)
    first = re.search(r"error: (?!.*D500:)", said)
    if wanted and not (first and first.start() < wanted.start()):
        found = re.search(r"(?:forward|backward)_check<.*?, false, (.*)>['’]", said)
        got = "got nothing of the kind" if found is None or found[1] == "void" else f"got {found[1]}"
        return CompileError(f"{name}: {got}; {wanted[1]}: make the class and the descriptors agree")
    return CompileError(f"{name}: got C++ that does not compile; expected C++17: mend it\n{compiler_lines(said)}")


def compiler_lines(said: str) -> str:
    """What the compiler said, without its remarks on the wrapper, at most so many lines."""
    lines = [
        line for line in said.splitlines() if line.strip() and not re.match(r"In file included from operator\.cc", line)
    ]
    return "\n".join([*lines[:MOST_LINES], *(["..."] if len(lines) > MOST_LINES else [])])
