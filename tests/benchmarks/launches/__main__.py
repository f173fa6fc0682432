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
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        for part in asked.only:
            if part == "simulated":
                simulated.tables(asked.trials)
            elif part == "apart":
                real.apart(asked.comparisons, Path(place))
            else:
                getattr(real, part)(asked.comparisons, asked.pairs, Path(place))
    return 0


if __name__ == "__main__":
    sys.exit(main())
