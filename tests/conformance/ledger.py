"""What may not get worse: ``passed/<backend>.txt`` names the cases that passed once, one per line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.known import excuse
from tests.conformance.suite import Result

FOLDER = Path(__file__).parent / "passed"
_PREFIX = "test_"  # of every case: left out of the lists


@dataclass
class Findings:
    """What speaks against a run (``lost``, ``wrong``), and the passes that the list does not have yet."""

    lost: list[Result]
    wrong: list[Result]
    gained: list[str]

    @property
    def ok(self) -> bool:
        """Nothing passes that once did not, and no result is wrong without a reason that is written down."""
        return not self.lost and not self.wrong


def ever_passed(backend: str) -> set[str]:
    """Names of the cases that the backend passed once; empty without a list."""
    path = FOLDER / f"{backend}.txt"
    return {_PREFIX + name for name in path.read_text().split()} if path.exists() else set()


def note(backend: str, cases: Iterable[str]) -> None:
    """Write the list, without what chance decides: a case that is excused when it fails is not owed when it passes."""
    FOLDER.mkdir(exist_ok=True)
    names = sorted(case.removeprefix(_PREFIX) for case in cases if excuse(backend, case) is None)
    (FOLDER / f"{backend}.txt").write_text("".join(f"{name}\n" for name in names))


def examine(backend: str, results: Iterable[Result]) -> Findings:
    """Hold results to the list and to the reasons of :mod:`tests.conformance.known`."""
    results, before = list(results), ever_passed(backend)
    lost = [r for r in results if r.verdict != "passed" and r.case in before]
    wrong = [r for r in results if r.verdict == "wrong" and r.case not in before and not excuse(backend, r.case)]
    gained = [
        r.case for r in results if r.verdict == "passed" and r.case not in before and excuse(backend, r.case) is None
    ]
    return Findings(lost, wrong, gained)
