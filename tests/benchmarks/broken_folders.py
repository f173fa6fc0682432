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
OF_REVIEWER, OF_OUR_OWN, ALARMS = FIGURES


def main() -> int:
    """Print a line per folder; returns 1 if one goes unnoticed or an honest one does not."""
    argparse.ArgumentParser(prog="python -m tests.benchmarks.broken_folders", description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        honest = honest_run(place / "honest")
        met = say(OF_REVIEWER, *_flagged(honest, place / "of a reviewer", REVIEWERS))
        met &= say(OF_OUR_OWN, *_flagged(honest, place / "of our own", OWN))
        met &= say(ALARMS, *_alarms(place))
        for text, look in (("", examine), (" with the page", examine_with_page)):
            begin = time.perf_counter()
            look(honest)
            print(f"verify{text}: {time.perf_counter() - begin:.2f} s")
    return 0 if met else 1


def _flagged(honest: Path, place: Path, kinds: dict) -> tuple[str, bool]:
    unnoticed = 0
    for number, (kind, (change, _)) in enumerate(kinds.items()):
        folder = Folder(honest, place / str(number))
        change(folder)
        path = resealed(folder)
        rules = [rule for rule, found in check(path).items() if found.status in FLAGGED]
        said = list(examine_with_page(path).problems)
        unnoticed += not (rules or said)
        print(f"{kind} | {', '.join(rules) or '-'} | {said[0].replace(str(path), '') if said else '-'}")
    return f"{len(kinds) - unnoticed} of {len(kinds)}", not unnoticed


def _alarms(place: Path) -> tuple[str, bool]:
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
    return f"{len(found)} of {len(kinds)}{': ' if found else ''}{', '.join(found)}", not found


if __name__ == "__main__":
    sys.exit(main())
