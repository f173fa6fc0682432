"""What may fail, and why: ``failing/<backend>.txt``. Every case that is not listed there must pass."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from deep500.compare.conformance.suite import Result
from tests.conformance.known import excuse

FOLDER = Path(__file__).parent / "failing"
_PREFIX = "test_"  # of every case: left out of the lists
_HEAD = (
    "# What fails on {backend} and why; all other cases must pass. Written by python -m tests.conformance --update\n"
)
_REFUSED = re.compile(r"'[^']*' \(([\w.]+(?: of \w+)?)")
"""The operator, and its dtype where that is the reason, of each row of an UnsupportedOperator's message."""


@dataclass
class Findings:
    """What speaks against a run (``lost``, ``wrong``), and the passes of cases that are listed as failing."""

    lost: list[Result]
    wrong: list[Result]
    gained: list[str]

    @property
    def ok(self) -> bool:
        """Nothing fails that must pass, and no result is wrong without a reason that is written down."""
        return not self.lost and not self.wrong


def failing(backend: str) -> dict[str, tuple[str, str]]:
    """Verdict and reason of each case that may fail on a backend; empty without a list."""
    path = FOLDER / f"{backend}.txt"
    listed: dict[str, tuple[str, str]] = {}
    reason = ("", "")
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith(" "):
            listed.update({_PREFIX + name: reason for name in line.split()})
        elif not line.startswith("#"):
            verdict, _, why = line.partition(": ")
            reason = (verdict, why)
    return listed


def note(backend: str, results: Iterable[Result]) -> None:
    """Write what failed into the list, strike what passed, and keep what was not judged.

    A case that is excused stays listed when it passes by chance: it is not owed.
    """
    listed = failing(backend)
    for result in results:
        if result.verdict != "passed":
            listed[result.case] = (result.verdict, why(backend, result))
        elif excuse(backend, result.case) is None:
            listed.pop(result.case, None)
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{backend}.txt").write_text(_HEAD.format(backend=backend) + "".join(_lines(listed)), encoding="utf-8")


def _lines(listed: dict[str, tuple[str, str]]) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for case, reason in sorted(listed.items()):
        groups.setdefault(reason, []).append(case.removeprefix(_PREFIX))
    for (verdict, reason), cases in sorted(groups.items()):
        yield f"{verdict}: {reason}\n"
        yield textwrap.fill(" ".join(cases), 118, initial_indent="  ", subsequent_indent="  ") + "\n"


def why(backend: str, result: Result) -> str:
    """The reason in one line: what is written down, the operators that a backend refuses, else its message."""
    text = excuse(backend, result.case)
    if text is not None:
        return text
    if result.verdict == "unsupported":
        return ", ".join(sorted(set(_REFUSED.findall(result.message))))
    return " ".join(result.message.split())[:100]


def examine(backend: str, results: Iterable[Result]) -> Findings:
    """Hold results to the list and to the reasons of :mod:`tests.conformance.known`."""
    results, listed = list(results), failing(backend)
    lost = [r for r in results if r.verdict != "passed" and r.case not in listed and not excuse(backend, r.case)]
    wrong = [r for r in results if r.verdict == "wrong" and r.case in listed and not excuse(backend, r.case)]
    gained = [r.case for r in results if r.verdict == "passed" and r.case in listed and excuse(backend, r.case) is None]
    return Findings(lost, wrong, gained)
