"""When the workshop's tests run: where its sources differ from those that passed last, and in ``make test-long``.

What is proved of the rules of substitutions stays proved until someone edits them, the workshop or its tests;
``workshop_passed.txt`` holds the hash of the sources that passed, and is committed.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "transformations" / "workshop"
SOURCES = [TESTS, *(ROOT / "deep500" / "transformations" / name for name in ("workshop", "substitutions"))]
PASSED = Path(__file__).with_name("workshop_passed.txt")


def digest() -> str:
    """The hash of all sources: their names and contents."""
    hashed = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                hashed.update(f"{path.relative_to(ROOT).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return hashed.hexdigest()


def reason_to_skip() -> str | None:
    """Why the workshop's tests need not run; None if they must."""
    if PASSED.is_file() and PASSED.read_text(encoding="utf-8").strip() == digest():
        return f"the workshop's sources are those that passed ({PASSED.name}); make test-long runs its tests anyway"
    return None


class Outcomes:
    """A plugin of pytest that sees all reports, those of other processes included, and writes the hash at the end."""

    def __init__(self) -> None:
        self.passed: set[Path] = set()
        self.failed = False
        self.digest = digest()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note which of the workshop's files had a test that passed, and whether one failed."""
        if "workshop" in report.keywords:
            self.failed |= report.failed
            if report.when == "call" and report.passed:
                self.passed.add(ROOT / report.nodeid.partition("::")[0])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the hash if all files ran, without a selection, and nothing failed."""
        chosen = session.config.option.keyword or session.config.option.markexpr
        if not self.failed and not chosen and self.passed and self.passed == set(TESTS.rglob("test_*.py")):
            PASSED.write_text(f"{self.digest}\n", encoding="utf-8")
