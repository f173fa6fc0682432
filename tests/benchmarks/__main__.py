"""``python -m tests.benchmarks``: programs and bars; ``--fill`` runs them, ``--table`` writes docs/figures.md."""

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
    parser.add_argument("--fill", nargs="*", metavar="PROGRAM", help="run these, or all, and write their figures")
    parser.add_argument("--again", action="store_true", help="--fill: also what was measured at this commit")
    parser.add_argument("--busy", action="store_true", help="--fill: although others use the machine")
    parser.add_argument("--wait", type=float, default=0.0, metavar="MIN", help="--fill: minutes to wait for quiet (0)")
    parser.add_argument("--stale", type=int, metavar="DAYS", help="list figures that nobody measured for some days")
    options = parser.parse_args()
    if options.fill is not None:
        from tests.benchmarks.filling import fill

        return fill(options.fill, options.again, options.busy, options.wait)
    if options.stale is not None:
        print("\n".join(catalog.stale(options.stale)))
        return 0
    if options.record:
        program, figure, text = options.record
        catalog.record(program, figure, {"text": text})
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
