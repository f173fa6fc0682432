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
from deep500.operators.cpp.spec import INCLUDE, BuildSpec

SECONDS = 300.0
ZIG_SECONDS = 1200.0
ZIG_NOTICE = "deep500: zig is building its own C++ library, this once; that takes one to two minutes\n"
PATIENCE = 5.0
"""Seconds after which a notice is given; builds without special reasons end earlier."""

MOST_LINES = 40
OURS = ("deep500 wrapper of ", "deep500/", "operator.cc", "<scratch space>")
"""Where the compiler's remarks are on our own text, as it names our files."""


def run_compiler(
    spec: BuildSpec, command: Sequence[str], folder: Path, live: bool, seconds: float = SECONDS, notice: str = ""
) -> None:
    """Run one command of a build.

    Args:
        live: also write what is run and said to standard error.
        seconds: when to give up.
        notice: what to write to standard error if it takes longer than usual.

    Raises:
        CompileError: it fails or takes too long.
    """
    if live:
        sys.stderr.write(f"deep500: {' '.join(command)}\n")
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            said = _output(process, seconds, notice)
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
        raise compile_error(spec, said.replace(f"{folder}{os.sep}", "").replace(f"{INCLUDE}{os.sep}", ""))


def _output(process: subprocess.Popen[str], seconds: float, notice: str) -> str:
    """All that it says until it ends."""
    if notice:
        try:
            return process.communicate(timeout=PATIENCE)[0]
        except subprocess.TimeoutExpired:
            sys.stderr.write(notice)
    return process.communicate(timeout=seconds)[0]


def compile_error(spec: BuildSpec, said: str) -> CompileError:
    """The error for a compiler's output: about the class where that does not fit the descriptors, else its lines."""
    said = re.sub(r"^\.+ .*\n", "", said, flags=re.MULTILINE)  # clang -H: the files that it read
    name, kept = f"C++ operator {spec.name!r}", compiler_lines(said)
    wanted = re.search(r"D500: (expected [^\n]*?)\"?$", said, re.MULTILINE)
    if wanted is None or re.search(r": error: |: fatal error: ", kept):
        cure = "add the source or library that has it to other_files" if "undefined" in said else "mend it"
        return CompileError(f"{name}: got C++ that does not compile; expected C++17: {cure}\n{kept or _cut(said)}")
    if not wanted[1].startswith("expected public"):
        return CompileError(f"{name}: got a class that cannot be used; {wanted[1]}")
    found = re.search(r"((?:forward|backward)(?:_cuda)?)_check<.*?, false, (.*?)>(?:['’)]| |$)", said, re.MULTILINE)
    has = found is not None and found[2] != "void"
    got = re.sub(r" ?\([^()]*::\*\)", f" {found[1]}", found[2]) if has and found else "none"
    return CompileError(f"{name}: got {got}; {wanted[1]}: make the class and the descriptors agree")


def compiler_lines(said: str) -> str:
    """What the compiler said of the user's own files; empty if that is nothing."""
    kept: list[str] = []
    context: list[str] = []
    keep = False
    for line in said.splitlines():
        head = re.match(r"(.+?)(?::\d+:(?:\d+:)?|\(\d+\):) (?:fatal error|error|warning|note): ", line)
        if head:
            keep = not head[1].startswith(OURS)
            kept += [*context, line] if keep else []
            context = []
        elif re.match(r"\s+(?:\d+ )?\|", line):  # an excerpt of the source
            kept += [line] if keep else []
        elif line.strip() and not re.match(r"In file included from|\s+from |\d+ errors? generated", line):
            context.append(line)
    return _cut("\n".join(kept))


def _cut(text: str) -> str:
    lines = text.splitlines()
    return "\n".join([*lines[:MOST_LINES], *(["..."] if len(lines) > MOST_LINES else [])])
