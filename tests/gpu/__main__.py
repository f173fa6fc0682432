"""``python -m tests.gpu``: the check of the GPU paths on a machine with a card, in three parts of at most ten minutes.

Every case runs in a process of its own, because an assertion of a kernel poisons the process that it happens in. With
``--fake`` the cases that can run on the stand-in for a card (:mod:`tests.gpu.standin`) do, and the others say that they
did not. It ends with a table; the exit status is the number of failures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence

from tests.gpu import runs

SECONDS = 150
"""A case may take so long, and a part four times as much."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description="check the GPU paths")
    parser.add_argument("parts", nargs="*", type=int, help="1, 2 and 3 if not told")
    parser.add_argument("--fake", action="store_true", help="on a stand-in for a card")
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.case:
        print(json.dumps(runs.run(given.case, given.fake)))
        return 0
    rows = []
    for part in given.parts or (1, 2, 3):
        begin = time.monotonic()
        for name in (n for n, case in runs.CASES.items() if case.part == part and given.only in n):
            left = 4 * SECONDS - (time.monotonic() - begin)
            verdict, said = (
                ("not run", "the part's ten minutes are over") if left < 1 else _child(name, given.fake, left)
            )
            rows.append(verdict)
            print(f"| {part} | {name} | {verdict} | {said} |", flush=True)
    counts = ", ".join(f"{rows.count(verdict)} {verdict}" for verdict in dict.fromkeys(rows))
    print(f"\n{'stand-in for a card' if given.fake else 'card'}: {counts or 'nothing was asked for'}")
    return rows.count("failed")


def _child(name: str, fake: bool, left: float) -> tuple[str, str]:
    """One case in a process of its own: its verdict, and what it measured or why it failed."""
    if fake and not runs.CASES[name].fake:
        return "not run", "needs a card"
    command = [sys.executable, "-m", "tests.gpu", "--case", name, *(["--fake"] if fake else [])]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=min(SECONDS, left), check=False, env={**os.environ}
        )
    except subprocess.TimeoutExpired:
        return "failed", f"took more than {min(SECONDS, left):.0f} s"
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        return "failed", (last[0] if last else f"exit status {done.returncode}")[:200].replace("|", "/")
    return "passed", "; ".join(f"{key} {value}" for key, value in json.loads(done.stdout.splitlines()[-1]).items())


if __name__ == "__main__":
    sys.exit(main())
