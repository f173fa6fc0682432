"""Which rule or check notices each broken folder that was sealed anew, and how long ``verify`` takes:
``python -m tests.benchmarks.broken_folders``."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from deep500.report.command import examine_with_page
from deep500.results.rules import FLAGGED, check
from deep500.results.verify import examine
from tests.benchmarks.filling import say
from tests.results.broken_folders import OWN, REVIEWERS, Folder, resealed
from tests.results.test_broken_folders import honest_run
from tests.results.test_honest_folders import CLAIMS, MACHINES, OF_LOAD, RUNS, base_run, problems_of_kind

FIGURES = {
    "broken folders of a reviewer that are flagged": "all of 34",
    "broken folders of our own that are flagged": "all of them, at least 40",
    "honest folders with an alarm": "none of at least 40",
}
"""What is printed, and its bar."""


REVIEWER = "a reviewer's"


def main() -> int:
    """Print a line per folder; returns 1 if one goes unnoticed or an honest one does not."""
    argparse.ArgumentParser(prog="python -m tests.benchmarks.broken_folders", description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        honest = honest_run(place / "honest")
        tables = {REVIEWER: REVIEWERS, "our own": OWN}
        missed = [_missed(honest, place / "broken", kinds, author) for author, kinds in tables.items()]
        alarms = _alarms(place)
        for text, look in (("", examine), (" with the page", examine_with_page)):
            begin = time.perf_counter()
            look(honest)
            print(f"verify{text}: {time.perf_counter() - begin:.2f} s")
    return 1 if any(missed) or alarms else 0


def _missed(honest: Path, place: Path, kinds: dict, whose: str) -> int:
    unnoticed = 0
    for number, (kind, (change, _)) in enumerate(kinds.items()):
        folder = Folder(honest, place / whose / str(number))
        change(folder)
        path = resealed(folder)
        rules = [rule for rule, found in check(path).items() if found.status in FLAGGED]
        said = list(examine_with_page(path).problems)
        unnoticed += not (rules or said)
        print(f"{kind} | {', '.join(rules) or '-'} | {said[0].replace(str(path), '') if said else '-'}")
    said = f"{len(kinds) - unnoticed} of {len(kinds)}"
    say(f"broken folders of {'a reviewer' if whose == REVIEWER else 'our own'} that are flagged", said, not unnoticed)
    return unnoticed


def _alarms(place: Path) -> int:
    base = base_run(place / "base")
    kinds = [(table, kind) for table in (RUNS, CLAIMS, MACHINES) for kind in table]
    found = {}
    for number, (table, kind) in enumerate(kinds):
        rules, problems = problems_of_kind(table, kind, base, place / "good" / str(number))
        if table is MACHINES:  # a run of milliseconds is given the load of seconds, which relations notice
            problems = [text for text in problems if not re.search(OF_LOAD, text)]
        if rules or problems:
            found[kind] = rules, problems
    for kind, problems in found.items():
        print(f"honest, {kind}: {problems}")
    text = f"{len(found)} of {len(kinds)}{': ' if found else ''}{', '.join(found)}"
    say("honest folders with an alarm", text, not found)
    return len(found)


if __name__ == "__main__":
    sys.exit(main())
