"""Figures that tests hold already: run those, count what passed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[3]


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
        return ", ".join([*self.failed, *(f"skipped: {name}" for name in self.skipped)][:4])


def run_tests(*words: str) -> Suite:
    """Run pytest in a process of its own; raises RuntimeError if it cannot run at all."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "junit.xml"
        quiet = ["-q", "-p", "no:randomly", "-p", "no:cacheprovider", f"--junitxml={file}"]
        whole = {**os.environ, "DEEP500_TEST_LONG": "1"}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *quiet, *words],
            cwd=ROOT,
            env=whole,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 1) or not file.exists():
            raise RuntimeError(f"pytest ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-200:]}")
        suite = Suite()
        for case in ElementTree.parse(file).iter("testcase"):
            kinds = {child.tag for child in case}
            if kinds & {"failure", "error"}:
                suite.failed.append(case.get("name", ""))
            elif "skipped" in kinds:
                suite.skipped.append(case.get("name", ""))
            else:
                suite.passed += 1
    return suite
