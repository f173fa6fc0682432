"""``python -m tests.fuzz [--count N] [--seed S] [--from N] [--replay N] [--all]``."""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
from pathlib import Path

MEMORY = 6 * 2**30
"""Bytes of address space: who reads a file of 20 GiB is told."""


def main() -> int:
    """Run; exit code 1 where a command did not end as it should."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500, help="how many are damaged (500)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="N", help="the first number (0)")
    parser.add_argument("--replay", type=int, metavar="N", help="this one alone, with all commands")
    parser.add_argument("--all", action="store_true", help="all commands on each, not one at random")
    words = parser.parse_args()
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    from tests.fuzz.runner import run

    numbers = range(words.first, words.first + words.count) if words.replay is None else [words.replay]
    each = None if words.all or words.replay is not None else 1
    with tempfile.TemporaryDirectory(prefix="deep500-fuzz-") as folder:
        os.environ["DEEP500_CACHE"] = str(Path(folder) / "cache")
        cases = run(Path(folder), words.seed, numbers, each, lambda text: sys.stdout.write(text) and sys.stdout.flush())
    if words.replay is not None:
        print(f"{cases[0].original}: {', '.join(cases[0].done)}; {dict(cases[0].codes)}")
    return int(any(case.faults for case in cases))


if __name__ == "__main__":
    sys.exit(main())
