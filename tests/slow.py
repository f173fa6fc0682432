"""Which tests are slow: ``slow_tests.txt`` names those that took long in the last ``make test-long``, which writes it.

Measured is processor time, of child processes too, which says something on a busy machine. A shared fixture counts for
the first test that takes it.
"""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("slow_tests.txt")
LIMIT = 0.2
"""Seconds of processor time."""
_HEAD = "# Tests that took more than 0.2 s of processor time; written by make test-long, read by tests/kinds.py\n"
_PROPERTY = "processor seconds"


def seconds() -> dict[str, float]:
    """What the slow tests took, by name."""
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.is_file() else []
    parts = (line.partition(" ") for line in lines if not line.startswith("#"))
    return {name: float(took) for took, _, name in parts}


def used() -> float:
    """Processor time of this process and of its children that have ended."""
    parts = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in parts)


class Stopwatch:
    """A plugin of every process that runs tests: what a test used goes with its last report."""

    def __init__(self) -> None:
        self.begin = 0.0

    def pytest_runtest_logstart(self) -> None:
        """A test begins."""
        self.begin = used()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
        """Note the time up to here."""
        report = yield
        if call.when == "teardown":
            report.user_properties.append((_PROPERTY, round(used() - self.begin, 2)))
        return report


class Writer:
    """A plugin of the process that sees all reports: writes the file after a run without a selection."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what a test used."""
        for name, value in report.user_properties:
            if name == _PROPERTY:
                self.seconds[report.nodeid] = float(str(value))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file."""
        option = session.config.option
        if not (option.keyword or option.markexpr or option.file_or_dir):
            write(self.seconds)


def write(seconds: dict[str, float]) -> None:
    """Write those above the limit, by name."""
    rows = [f"{value:.1f} {name}\n" for name, value in sorted(seconds.items()) if value > LIMIT]
    FILE.write_text(_HEAD + "".join(rows), encoding="utf-8")
