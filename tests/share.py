"""Which tests a commit runs: an eighth of dear ones and of rows of tables, by a hash of the test and the commit.

A table is a parametrised test, on each backend a table of its own, unless it is marked ``any_backend``: what backends
do there is tested elsewhere. Each has at least one row in every commit. Numbered cases (``tests/fuzz``) are cut into as
many pieces, of which a commit runs one. Tests marked ``slow`` are dear: of those, rows or not, a commit runs an eighth
and nothing is sure. What a commit leaves out, another one runs: nothing is left out for good, and no machine's timings
decide. ``make test-long`` runs all; so does whoever names files or tests.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from deep500.registry import backend_names

ROOT = Path(__file__).resolve().parent.parent
ONE_IN = 8
BACKENDS = frozenset(backend_names())


@cache
def commit() -> str:
    """The commit that is tested; "" where there is no repository."""
    try:
        done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def headline() -> str:
    """What a run of the suite prints first."""
    of = f"commit {commit()[:10]}" if commit() else "no commit"
    what = f"rows of tables and dear tests: about one in {ONE_IN}, the share of {of}"
    return f"{what} (make test-long, or naming a file, runs all)"


def numbers(count: int, commit: str) -> range:
    """A commit's piece of ``count`` numbered cases."""
    piece = -(-count // ONE_IN)
    first = int.from_bytes(hashlib.sha256(commit.encode()).digest()[:8], "big") % ONE_IN * piece
    return range(first, min(first + piece, count))


def left_out(items: Sequence[pytest.Item], commit: str) -> list[pytest.Item]:
    """The rows and dear tests that are not this commit's."""
    left: list[pytest.Item] = []
    tables: dict[tuple[object, ...], list[tuple[int, pytest.Item]]] = {}
    for item in items:
        number = int.from_bytes(hashlib.sha256(f"{commit} {item.nodeid}".encode()).digest()[:8], "big")
        params = getattr(getattr(item, "callspec", None), "params", None)
        if item.get_closest_marker("slow"):
            left += [item] if number % ONE_IN else []
        elif params:
            apart = item.get_closest_marker("any_backend") is None
            backend = next((v for v in params.values() if apart and isinstance(v, str) and v in BACKENDS), "")
            tables.setdefault((item.path, getattr(item, "originalname", ""), backend), []).append((number, item))
    return left + [
        item
        for table in tables.values()
        for number, item in table
        if number % ONE_IN and number != min(other for other, _ in table)
    ]
