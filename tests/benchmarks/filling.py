"""``make figures``: runs the programs one after the other on a quiet machine, and writes what they say into the table.

A program says each of its figures with :func:`say`, a line of its output, or why it cannot with :func:`say_not`. They
are kept with the date, the commit, the machine and how much of it others took meanwhile. What was measured at this
commit is not measured again, so that a stop loses one program at most. On a machine that is not quiet nothing is
measured, unless ``--busy`` says so; the table does, too.
"""

from __future__ import annotations

import datetime
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deep500.measure.environment import describe
from deep500.measure.load import disturbances, load_between, read_load, shares
from deep500.measure.statistics import Interval
from tests.benchmarks import catalog

LINE = re.compile(r"figure: (?P<name>.*?) = (?P<text>.*) \| (?P<word>met|MISSED|no bar|not measured)$", re.MULTILINE)
"""A figure; before it may stand what a library of C has in its buffer."""
LOGS = catalog.ROOT / "build" / "figures"
LOOK = 5.0
"""Seconds for which the machine is looked at before a program begins."""


def say(name: str, text: str, met: bool | None = None, word: str = "") -> bool:
    """Print a figure so that :func:`fill` finds it; ``met`` is None without a bar. Returns whether no bar is missed."""
    word = word or ("no bar" if met is None else "met" if met else "MISSED")
    print(f"figure: {name} = {' '.join(text.split())} | {word}", flush=True)
    return met is not False


def say_not(name: str, why: str) -> None:
    """Say why a figure cannot be measured here."""
    say(name, why, word="not measured")


def say_ratio(
    name: str,
    ratios: Interval | Mapping[str, Interval | float],
    at_most: float | None = None,
    at_least: float | None = None,
    unit: str = "",
) -> bool:
    """Say medians with their intervals: the bar is met where the interval's end on its side is, of each of them.

    Without an interval no bar is met; a bare number is its own. Of more than four, the least and the largest are said.
    """
    named = ratios if isinstance(ratios, Mapping) else {"": ratios}
    each = {key: one if isinstance(one, Interval) else Interval(one, one, one, 1) for key, one in named.items()}
    if not each:
        return say(name, "nothing", False)
    over = [] if at_most is None else [key for key, one in each.items() if one.high is None or one.high > at_most]
    over += [] if at_least is None else [key for key, one in each.items() if one.low is None or one.low < at_least]
    if len(each) <= 4:
        text = "; ".join(f"{key}: {with_ends(one)}".removeprefix(": ") for key, one in each.items())
    else:
        order = sorted(each, key=lambda key: each[key].median)
        text = " to ".join(f"{with_ends(each[key])} ({key})" for key in (order[0], order[-1]))
        unit += f", {len(each)} in all" + (f", bar missed by {', '.join(over)}" if over else "")
    counts = sorted({one.n for one in each.values() if not one.low == one.high == one.median})
    text += f"{' ' * unit[:1].isalpha()}{unit}" + (f"; n {counts[0]}" if counts else "")
    text += f" to {counts[-1]}" if counts[1:] else ""
    return say(name, text, None if at_most is None and at_least is None else not over)


def with_ends(ratio: Interval) -> str:
    """``1.02 [0.99, 1.05]``."""
    median, *ends = [f"{value:.4g}" if abs(value) < 9999.5 else f"{value:,.0f}" for value in ratio if value is not None]
    if ratio.low == ratio.high == ratio.median:
        return median
    return f"{median} [{', '.join(ends)}]" if len(ends) == 2 else f"{median} (no interval)"


def in_turn(program: str, option: str, values: Sequence[str], *words: str) -> int:
    """Run a program once with each value of an option, in processes of their own: no framework disturbs another."""
    sys.stdout.flush()
    base = [sys.executable, "-m", program, *words, option]
    return max(abs(subprocess.run([*base, value], check=False).returncode) for value in values)


def fill(
    names: Sequence[str], again: bool = False, busy: bool = False, wait: float = 0.0, report: Callable[..., Any] = print
) -> int:
    """Run programs and record their figures; returns 3 if others work here, 1 if a program failed, missed a bar or did
    not say all of its figures.

    Args:
        names: of programs; all if empty.
        again: also those whose figures are of this commit.
        busy: measure although others use the machine.
        wait: minutes to wait for quiet before each program.
        report: called with a line of text for every program.
    """
    commit, code = commit_here(), 0
    for program in catalog.programs():
        known = catalog.recorded().get(program.name, {})
        new = all(known.get(figure, {}).get("commit") == commit for figure in program.figures)
        if (names and program.name not in names) or (new and not again):
            continue
        if not busy and (disturbing := _disturbed(wait)):
            report(f"{program.name}: not begun, since {'; '.join(disturbing)}: wait, or give --busy")
            return 3
        report(f"{program.name} ...")
        before, began = _read(), time.monotonic()
        status, output = _run(program.name)
        facts = {"date": f"{datetime.date.today()}", "commit": commit, **_circumstances(before)}
        lines = {line["name"]: line for line in LINE.finditer(output)}
        ended = f"the program ended with {status}: {(output.strip().splitlines() or [''])[-1][:120]}" if status else ""
        for figure in program.figures:
            line = lines.get(figure)
            if line is not None and line["word"] != "not measured":
                met = {"met": True, "MISSED": False}.get(line["word"])
                catalog.record(program.name, figure, {"text": line["text"], "met": met, **facts})
            elif not known.get(figure, {}).get("text"):
                why = line["text"] if line is not None else ended or "the program did not say it"
                catalog.record(program.name, figure, {"why": why, **facts})
        catalog.PAGE.write_text(catalog.page(), encoding="utf-8")
        said = f"{len(lines)} of {len(program.figures)} figures in {(time.monotonic() - began) / 60:.0f} min"
        report(f"{program.name}: {said}; output in {LOGS / program.name}.txt")
        missed = any(line["word"] == "MISSED" for line in lines.values()) or not set(program.figures) <= set(lines)
        code = max(code, int(bool(status)), int(missed))
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


def commit_here() -> str:
    """The commit, with ``+`` where files of the product or of the programs differ from it."""
    git = ["git", "-C", os.fspath(catalog.ROOT)]
    head = subprocess.run([*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=True).stdout
    places = ["deep500", "frameworks", "tests/benchmarks", f":!{catalog.RECORDED.relative_to(catalog.ROOT)}"]
    changed = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *places], check=False).returncode
    return head.strip() + ("+" if changed else "")
