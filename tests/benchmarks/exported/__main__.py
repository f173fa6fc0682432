"""See the package's docstring."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.exported.check import Outcome, optimize
from tests.benchmarks.exported.models import LIGHT, MODELS
from tests.benchmarks.filling import say

FIGURES = {"outputs that open in ONNX Runtime, equal the original, and are faster or the same bytes": "all of 30"}
(FIGURE,) = FIGURES


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.exported", description=__doc__)
    parser.add_argument("--only", default="", metavar="REGEX", help="models whose names it matches")
    parser.add_argument("--light", action="store_true", help="those that the test takes")
    parser.add_argument("--budget", type=float, default=6.0, metavar="S", help="seconds for each (6)")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where files stay")
    parser.add_argument("--formula", action="store_true", help="take the cheapest by formula: more is rewritten")
    options = parser.parse_args()
    names = [name for name in MODELS if re.search(options.only, name) and (name in LIGHT or not options.light)]
    outcomes: list[Outcome] = []
    print(Outcome.header(), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            outcomes.append(optimize(name, folder, options.budget, measure=not options.formula))
            print(outcomes[-1].row(), flush=True)
    bad = [outcome.name for outcome in outcomes if not outcome.good]
    text = f"{len(outcomes) - len(bad)} of {len(outcomes)}" + (f", not {', '.join(bad)}" if bad else "")
    return 0 if say(FIGURE, text, not bad) else 1


if __name__ == "__main__":
    sys.exit(main())
