"""Figures that tests hold already: run those, count what passed."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass, field

import pytest


@dataclass
class Suite:
    """Counts outcomes as pytest reports them."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All tests that were collected."""
        return self.passed + len(self.failed) + len(self.skipped)

    @property
    def all_passed(self) -> bool:
        """Whether there were tests and every one passed; a skip is no pass."""
        return self.passed > 0 and not self.failed and not self.skipped

    @property
    def why(self) -> str:
        """Names of what did not pass."""
        return ", ".join([*self.failed, *(f"skipped: {one}" for one in self.skipped)][:4])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest."""
        name = report.nodeid.rpartition("::")[2]
        if report.failed:
            self.failed.append(name)
        elif report.skipped:
            self.skipped.append(name)
        elif report.when == "call":
            self.passed += 1


def run_tests(*words: str) -> Suite:
    """Run pytest quietly in this process."""
    found = Suite()
    with contextlib.redirect_stdout(io.StringIO()):
        code = pytest.main(["-q", "-p", "no:randomly", "-p", "no:cacheprovider", *words], plugins=[found])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        found.failed.append(f"pytest ended with {code!r}")
    return found
