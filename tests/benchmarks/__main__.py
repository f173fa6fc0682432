"""``python -m tests.benchmarks``: the programs, what they print and their bars; ``--table`` writes docs/figures.md."""

from __future__ import annotations

import argparse

from tests.benchmarks import catalog


def main() -> int:
    """List, write the page, or note a figure."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--table", action="store_true", help="write docs/figures.md")
    parser.add_argument(
        "--record", nargs=3, metavar=("PROGRAM", "FIGURE", "TEXT"), help="keep a figure that was printed, for the table"
    )
    options = parser.parse_args()
    if options.record:
        catalog.record(*options.record)
    if options.table or options.record:
        catalog.PAGE.write_text(catalog.page(), encoding="utf-8")
        return 0
    for program in catalog.programs():
        print(f"python -m tests.benchmarks.{program.name}\n    {program.summary}")
        for figure, bar in program.figures.items():
            print(f"      - {figure}: {bar}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
