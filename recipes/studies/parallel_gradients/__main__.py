"""Cost and scaling of parallel programs' gradients, after Moses et al. (SC 2022).

python -m recipes.studies.parallel_gradients
python -m recipes.studies.parallel_gradients --proxy hydro --json out.json --plot out.svg --page page.md

A shock-hydrodynamics and a docking proxy, serial, with OpenMP, MPI, both, and RAJA-style loops; gradients by Enzyme.
They are checked on small problems, then timed. It needs ``deep500 tools setup enzyme``, and ``deep500[mpi]`` for
ranks. Exit codes: 0, 1 if a gradient is wrong, else as ``deep500 run``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from deep500.compare.processes import usable_cores
from deep500.errors import Deep500Error
from deep500.measure.environment import describe
from deep500.measure.load import disturbances, load_between, read_load
from recipes.studies.parallel_gradients.measuring import (
    CHECKED,
    QUICK,
    TIMED,
    Checked,
    TimedPoint,
    check,
    checked_points,
    time_all,
    timed_points,
)
from recipes.studies.parallel_gradients.page import write_page
from recipes.studies.parallel_gradients.printing import as_json, plot, tables
from recipes.studies.parallel_gradients.sources import report_sources

PICTURES = (".png", ".svg", ".pdf")


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="small sizes, few ranks and threads, one round: checks, times little")
    add("--proxy", action="append", choices=list(TIMED), help="only this one; may be repeated")
    add("--rounds", type=int, metavar="N", help="launches of every point, in turns; 8, with --quick 1")
    add("--samples", type=int, default=3, metavar="N", help="times taken by every launch (3)")
    add("--workers", type=int, metavar="N", help="most ranks x threads that are timed (the cores there are)")
    add("--no-times", action="store_true", help="check only")
    add(
        "--source",
        action="append",
        type=Path,
        default=[],
        metavar="PATH",
        help="also differentiate the LULESH or miniBUDE that is checked out there; may be repeated",
    )
    add("--json", type=Path, metavar="FILE", help="write everything, every sample too")
    add("--plot", type=Path, metavar="FILE", help="draw times against workers: .png, .svg, .pdf")
    add("--page", type=Path, metavar="FILE", help="write the page of documentation, with these figures")
    args = parser.parse_args(argv)
    args.proxies = args.proxy or list(TIMED)
    args.rounds = (1 if args.quick else 8) if args.rounds is None else args.rounds
    args.workers = (2 if args.quick else usable_cores()) if args.workers is None else args.workers
    for name in ("rounds", "samples", "workers"):
        if getattr(args, name) < 1:
            parser.error(f"got --{name} {getattr(args, name)}; expected at least 1")
    for name in ("json", "plot", "page"):
        file = getattr(args, name)
        if file and not file.absolute().parent.is_dir():
            parser.error(f"got --{name} {file}; expected a file in a folder that exists")
    if args.plot and args.plot.suffix not in PICTURES:
        parser.error(f"got --plot {args.plot}; expected a name that ends with one of {', '.join(PICTURES)}")
    if args.no_times and (args.plot or args.page):
        parser.error("got --no-times with --plot or --page; expected times to show: leave one out")
    return args


def run(args: argparse.Namespace) -> tuple[list[Checked], list[TimedPoint]]:
    """Check, then time.

    Raises:
        MissingEngine: there is no Enzyme.
        MissingBackend: there is no MPI.
        CommunicationError: a launch failed.
    """
    checked, timed = [], []
    for proxy in args.proxies:
        checked += check(proxy, checked_points(2 if args.quick else 8), CHECKED[proxy])
    if args.no_times:
        return checked, timed
    points = timed_points(args.workers)
    total = args.rounds * len(args.proxies) * (2 * len(points) - sum(point.workers == 1 for point in points))
    with tqdm(total=total, file=sys.stderr, disable=None if sys.stderr.isatty() else True, unit="launch") as bar:
        for proxy in args.proxies:
            bar.set_description(proxy)
            problem = (QUICK if args.quick else TIMED)[proxy]
            timed += time_all(proxy, points, problem, args.rounds, args.samples, bar.update)
    return checked, timed


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, measure, print; returns the exit code."""
    chosen = options(argv)
    before = read_load()
    try:
        checked, timed = run(chosen)
        sources = report_sources(chosen.source)
    except Deep500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    environment, disturbed = describe(), disturbances(load_between(before, read_load()))
    heading = [f"{environment['cpu']}, {usable_cores()} cores, {chosen.rounds} rounds; medians with intervals of 95 %"]
    heading += [f"the machine was not quiet: {'; '.join(disturbed)}"] if disturbed else []
    print("\n".join(heading) + "\n\n" + tables(checked, timed) + sources)
    if chosen.json:
        about = {"environment": environment, "rounds": chosen.rounds, "quick": chosen.quick, "disturbed": disturbed}
        chosen.json.write_text(json.dumps(as_json(checked, timed, about), indent=1), encoding="utf-8")
    if chosen.plot:
        plot(timed, chosen.plot)
    if chosen.page:
        write_page(chosen.page, heading, checked, timed)
    return 1 if any(result.wrong for result in checked) else 0


if __name__ == "__main__":
    raise SystemExit(main())
