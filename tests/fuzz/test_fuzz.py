"""A commit's piece of five hundred damaged folders and files, twenty thousand every night: none ends in a traceback."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import HANG
from tests.fuzz import mutations

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


def fuzz(*words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, whose memory is limited and which is watched for what it writes."""
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=HANG,
        check=False,
    )


def test_five_hundred_damaged_folders_end_in_one_line_each(numbers: Callable[[int], range]) -> None:
    some = numbers(500)
    done = fuzz("--count", str(len(some)), "--from", str(some.start), "--seed", "15")
    assert done.returncode == 0 and "faults: none" in done.stdout, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.long
def test_twenty_thousand_damaged_folders_end_in_one_line_each() -> None:
    done = fuzz("--count", "20000", "--seed", "500")
    assert done.returncode == 0 and "faults: none" in done.stdout, done.stdout[-4000:] + done.stderr[-4000:]


def test_a_seed_and_a_number_make_the_same_damage() -> None:
    text = b'{"a": [1, {"b": "c"}], "d": 0.5}\n'
    for change in (*mutations.BYTES, mutations.structure, mutations.lines):
        first, second = (change(text, random.Random("1:7")) for _ in range(2))
        assert first == second
    changed = {mutations.structure(text, random.Random(number)) for number in range(3000)}
    assert len(changed) > 100 and any(b"1e400" in one for one in changed) and any(b"[[[[[[" in one for one in changed)
