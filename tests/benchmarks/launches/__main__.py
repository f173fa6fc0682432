"""Simulate or measure what was asked for."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import launches
from tests.benchmarks.launches import real, simulated


def main() -> int:
    """Print one block after the other."""
    about = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.launches", description=launches.__doc__, formatter_class=about
    )
    parts = ("simulated", "apart", "turns", "planted")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--trials", type=int, default=200, help="of each simulation (200)")
    parser.add_argument("--comparisons", type=int, default=2, help="real ones of each kind (2)")
    parser.add_argument("--pairs", type=int, default=24, help="launches of each side in turns at most (24)")
    parser.add_argument("--at-once", type=int, default=1, help="comparisons in turns at the same time (1)")
    parser.add_argument("--minutes", type=float, help="stop a comparison in turns after so many, and count it as it is")
    parser.add_argument("--effects", type=float, nargs="+", default=(0.03, 0.1), help="that are planted (0.03 0.1)")
    parser.add_argument("--folder", type=Path, help="keep what is made here, and go on with it")
    asked = parser.parse_args()
    how = real.How(asked.comparisons, asked.pairs, asked.at_once, asked.minutes)
    with tempfile.TemporaryDirectory() as place:
        folder = (asked.folder or Path(place)).resolve()
        for part in asked.only:
            if part == "simulated":
                simulated.tables(asked.trials)
            elif part == "apart":
                real.apart(asked.comparisons, folder)
            elif part == "turns":
                real.turns(how, folder)
            else:
                real.planted(how, folder, asked.effects)
    return 0


if __name__ == "__main__":
    sys.exit(main())
