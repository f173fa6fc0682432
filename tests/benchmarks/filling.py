"""``make figures``: runs the programs one after the other on a quiet machine, and writes what they say into the table.

A program says a figure with :func:`say`, a line of its output. Each is kept with the date, the commit, the machine and
how much of it others took meanwhile. What was measured at this commit is not measured again, so that a stop loses one
program at most. On a machine that is not quiet nothing is measured, unless ``--busy`` says so; the table does, too.
"""

from __future__ import annotations

import datetime
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from deep500.measure.environment import describe
from deep500.measure.load import disturbances, load_between, read_load, shares
from tests.benchmarks import catalog

LINE = re.compile(r"^figure: (?P<name>.*?) = (?P<text>.*) \| (?P<word>met|MISSED|no bar)$", re.MULTILINE)
LOGS = catalog.ROOT / "build" / "figures"
LOOK = 5.0
"""Seconds for which the machine is looked at before a program begins."""


def say(name: str, text: str, met: bool | None = None) -> None:
    """Print a figure so that :func:`fill` finds it; ``met`` is None without a bar."""
    print(f"figure: {name} = {text} | {'no bar' if met is None else 'met' if met else 'MISSED'}", flush=True)


def fill(
    names: Sequence[str], again: bool = False, busy: bool = False, wait: float = 0.0, report: Callable[..., Any] = print
) -> int:
    """Run programs and record their figures; returns 1 if a program failed or a bar was missed, 3 if others work here.

    Args:
        names: of programs; all if empty.
        again: also those whose figures are of this commit.
        busy: measure although others use the machine.
        wait: minutes to wait for quiet before each program.
        report: called with a line of text for every program.
    """
    commit, code = _commit(), 0
    for program in catalog.programs():
        known = catalog.recorded().get(program.name, {})
        new = all(known.get(figure, {}).get("commit") == commit for figure in program.figures)
        if (names and program.name not in names) or (new and not again):
            continue
        if not busy and (disturbing := _disturbed(wait)):
            report(f"{program.name}: not begun, since {'; '.join(disturbing)}: wait, or give --busy")
            return 3
        report(f"{program.name} ...")
        before = _read()
        status, output = _run(program.name)
        facts = {"date": f"{datetime.date.today()}", "commit": commit, **_circumstances(before)}
        lines = {line["name"]: line for line in LINE.finditer(output)}
        ended = f"the program ended with {status}: {(output.strip().splitlines() or [''])[-1][:120]}" if status else ""
        for figure in program.figures:
            line = lines.get(figure)
            if line is not None:
                met = {"met": True, "MISSED": False}.get(line["word"])
                catalog.record(program.name, figure, {"text": line["text"], "met": met, **facts})
            elif not known.get(figure, {}).get("text"):
                why = ended or "the program prints it to be read, --record notes it"
                catalog.record(program.name, figure, {"why": why, **facts})
        catalog.PAGE.write_text(catalog.page(), encoding="utf-8")
        report(f"{program.name}: {len(lines)} of {len(program.figures)} figures; output in {LOGS / program.name}.txt")
        code = max(code, int(bool(status)), int(any(line["word"] == "MISSED" for line in lines.values())))
    return code


def _run(name: str) -> tuple[int, str]:
    """The exit code and the output of a program, which is kept beside its last one."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / f"{name}.txt"
    with path.open("w", encoding="utf-8") as stream:
        words = [sys.executable, "-m", f"tests.benchmarks.{name}"]
        done = subprocess.run(words, stdout=stream, stderr=subprocess.STDOUT, cwd=catalog.ROOT, check=False)
    return done.returncode, path.read_text(encoding="utf-8", errors="replace")


def _read() -> dict[str, Any]:
    """The machine's counters; processes that this one started and waited for are its own."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    load = read_load()
    return {**load, "own": load["own"] + spent.ru_utime + spent.ru_stime}


def _disturbed(wait: float) -> list[str]:
    """Why this is no moment to begin; empty as soon as the machine is quiet for :data:`LOOK` seconds."""
    end = time.monotonic() + 60 * wait
    while True:
        before = _read()
        time.sleep(LOOK)
        found = disturbances(load_between(before, _read())) or []
        if not found or time.monotonic() > end:
            return found
        time.sleep(55)


def _circumstances(before: dict[str, Any]) -> dict[str, Any]:
    load, machine = load_between(before, _read()), describe()
    others = shares(load)["others"]
    return {
        "machine": f"{machine['cpu']}, {machine['usable_cores']} cores",
        "others": None if others is None else round(others, 3),
        "busy": disturbances(load) or [],
    }


def _commit() -> str:
    """The commit, with ``+`` where files of the product or of the programs differ from it."""
    git = ["git", "-C", os.fspath(catalog.ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True).stdout
    places = ["deep500", "frameworks", "tests/benchmarks", f":!{catalog.RECORDED.relative_to(catalog.ROOT)}"]
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *places], check=False).returncode
    return head.strip() + ("+" if changed else "")
