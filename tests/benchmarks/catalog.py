"""What the benchmark programs say of themselves, and docs/figures.md, the page that is made of it."""

from __future__ import annotations

import ast
import datetime
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent
PAGE = ROOT / "docs" / "figures.md"
RECORDED = FOLDER / "recorded.json"

_HEAD = """# Figures

What we hold ourselves to, and the programs that print it: `python -m tests.benchmarks.NAME` (`--help` names its
options). They are no tests. Ratios are of pairs measured in turns in random order, with intervals of 95 %: a bar is met
if the interval's end on its side is within it. `make figures` runs them all, for hours, on a machine that does nothing
else, goes on where it was stopped, and writes this page: what was measured, when, where, at which commit, and which
bars were **missed**. `make figures ONLY="ranks loader"` runs some. What a program said elsewhere, or with options for a
longer run, is noted with `python -m tests.benchmarks --record PROGRAM FIGURE TEXT`; `--stale 30` lists what nobody
measured for 30 days.
"""

NEVER = "no run on a quiet machine yet"
"""Why a figure is not there, if nothing else is known."""


@dataclass(frozen=True)
class Program:
    """A benchmark program: its module below ``tests.benchmarks``, its docstring, its figures with their bars."""

    name: str
    text: str
    figures: dict[str, str]

    @property
    def summary(self) -> str:
        """The docstring's first paragraph, in one line."""
        return " ".join(self.text.partition("\n\n")[0].split())


def programs() -> list[Program]:
    """All programs, by name; none of them is imported."""
    files = {path.stem: [path] for path in FOLDER.glob("*.py")}
    files |= {path.parent.name: [path, *sorted(path.parent.glob("*.py"))] for path in FOLDER.glob("*/__init__.py")}
    read = [_read(name, paths) for name, paths in sorted(files.items())]
    return [program for program in read if program.figures]


def _read(name: str, paths: list[Path]) -> Program:
    """What the files of a program declare: ``FIGURES``, or functions decorated with ``figure(number, what, bar)``."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    figures: dict[str, str] = {}
    numbered: dict[int, tuple[str, str]] = {}
    for node in (node for tree in trees for node in tree.body):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "FIGURES":
            figures |= ast.literal_eval(node.value)
        for call in getattr(node, "decorator_list", []):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "figure":
                number, what, bar = map(ast.literal_eval, call.args)
                numbered[number] = (what, bar)
    figures |= {f"{number}. {what}": bar for number, (what, bar) in sorted(numbered.items())}
    return Program(name, ast.get_docstring(trees[0]) or "", figures)


def recorded() -> dict[str, dict[str, dict[str, Any]]]:
    """The last recorded figures: program -> figure -> ``text`` or ``why`` there is none, ``met``, ``date``, ..."""
    figures: dict[str, dict[str, dict[str, Any]]] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return figures


def record(program: str, figure: str, facts: dict[str, Any]) -> None:
    """Keep a figure, or why there is none.

    Raises:
        KeyError: there is no such program, or it prints no such figure.
    """
    if figure not in {known.name: known for known in programs()}[program].figures:
        raise KeyError(figure)
    figures = recorded()
    figures.setdefault(program, {})[figure] = facts
    RECORDED.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def cell(facts: dict[str, Any] | None) -> str:
    """A figure for the table: a miss is marked, and what is not there says why."""
    if facts is None or "text" not in facts:
        return f"not measured: {(facts or {}).get('why', NEVER)}".replace("|", "/")
    where = [facts[key] for key in ("date", "machine", "commit") if facts.get(key)]
    where += [f"others {100 * facts['others']:.0f} %"] if facts.get("others") is not None else []
    where += ["**busy machine**"] if facts.get("busy") else []
    mark = "**missed**: " if facts.get("met") is False else ""
    return mark + facts["text"].replace("|", "/") + (f" ({', '.join(where)})" if where else "")


def stale(days: int) -> list[str]:
    """Figures that nobody measured for some days, or ever."""
    known, today = recorded(), datetime.date.today()
    lines = []
    for program in programs():
        for figure in program.figures:
            facts = known.get(program.name, {}).get(figure, {})
            day = re.findall(r"20\d\d-\d\d-\d\d", f"{facts.get('text', '')} {facts.get('date', '')}")
            if "text" not in facts or not day or (today - datetime.date.fromisoformat(max(day))).days > days:
                lines.append(f"{program.name}: {figure}: {cell(facts)}")
    return lines


def page() -> str:
    """The text of docs/figures.md."""
    rows, known = [], recorded()
    for program in programs():
        for number, (figure, bar) in enumerate(program.figures.items()):
            name = f"`{program.name}`" if number == 0 else ""
            rows.append(f"| {name} | {figure} | {bar} | {cell(known.get(program.name, {}).get(figure))} |\n")
    text = (
        f"{_HEAD}\n| program | figure | bar | last recorded |\n|---|---|---|---|\n{''.join(rows)}\n## What they do\n\n"
    )
    return text + "".join(f"- `{program.name}`: {program.summary}\n" for program in programs())
