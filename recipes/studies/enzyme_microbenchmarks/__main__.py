"""What is gained by differentiating optimised code: seven micro-benchmarks, after Moses and Churavy (NeurIPS 2020).

python -m recipes.studies.enzyme_microbenchmarks
python -m recipes.studies.enzyme_microbenchmarks --benchmark gmm --benchmark fft --json out.json --plot out.png

Each benchmark runs as primal, as gradient by Enzyme (optimise, then differentiate), by Ref (differentiate, then
optimise) and by a gradient of its own, by hand in C++ or by PyTorch. One thread; variants take turns, each in a process
of its own. It needs ``deep500 setup enzyme``. Exit codes: 0, 1 if a gradient is wrong, else
as ``deep500 run``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tqdm import tqdm

from deep500.errors import Deep500Error
from deep500.measure.environment import describe
from deep500.measure.statistics import MINIMUM_SAMPLES
from recipes.studies.enzyme_microbenchmarks.building import libraries
from recipes.studies.enzyme_microbenchmarks.measuring import Measured, Where, measure, variants
from recipes.studies.enzyme_microbenchmarks.printing import as_json, plot, tables
from recipes.studies.enzyme_microbenchmarks.problems import FULL, QUICK

ROUNDS = 25
PICTURES = (".png", ".svg", ".pdf")


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--quick", action="store_true", help="small sizes and few rounds: checks gradients, times little"
    )
    parser.add_argument(
        "--benchmark",
        action="append",
        choices=list(FULL),
        metavar="NAME",
        help=f"only this one of {', '.join(FULL)}; may be repeated",
    )
    parser.add_argument(
        "--rounds", type=int, help=f"samples of every variant; {ROUNDS}, with --quick {MINIMUM_SAMPLES}"
    )
    parser.add_argument(
        "--memory",
        type=float,
        default=8.0,
        metavar="GIB",
        help="address space of a variant; what needs more is shown as out of memory (8)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything, every sample too")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw Ref/Enzyme of every benchmark: .png, .svg, .pdf"
    )
    chosen = parser.parse_args(argv)
    chosen.rounds = chosen.rounds or (MINIMUM_SAMPLES if chosen.quick else ROUNDS)
    if chosen.rounds < MINIMUM_SAMPLES:
        parser.error(f"got --rounds {chosen.rounds}; expected at least {MINIMUM_SAMPLES}, for an interval")
    if chosen.memory <= 0:
        parser.error(f"got --memory {chosen.memory}; expected GiB above 0")
    for option, file in (("--json", chosen.json), ("--plot", chosen.plot)):
        if file and not file.absolute().parent.is_dir():
            parser.error(f"got {option} {file}; expected a file in a folder that exists")
    if chosen.plot and chosen.plot.suffix not in PICTURES:
        parser.error(f"got --plot {chosen.plot}; expected a name that ends with one of {', '.join(PICTURES)}")
    return chosen


def run(chosen: argparse.Namespace, instead: Mapping[tuple[str, str], Where] | None = None) -> list[Measured]:
    """Build what is not built yet, then measure one benchmark after the other.

    Args:
        chosen: what ``options`` returns.
        instead: other places of (benchmark, variant): (library or Python module, function).

    Raises:
        MissingEngine: there is no Enzyme.
    """
    problems = [(QUICK if chosen.quick else FULL)[name]() for name in chosen.benchmark or FULL]
    built = libraries()
    measured = []
    quiet = None if sys.stderr.isatty() else True  # for tqdm, None is: only in a terminal
    with tqdm(total=len(problems) * chosen.rounds, file=sys.stderr, disable=quiet, unit="round") as bar:
        for problem in problems:
            bar.set_description(problem.title)
            where = variants(problem, built)
            where |= {name: place for (benchmark, name), place in (instead or {}).items() if benchmark == problem.name}
            limit = int(chosen.memory * 2**30)
            measured.append(measure(problem, where, built["allocation"], limit, chosen.rounds, bar.update))
    return measured


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, measure, print; returns the exit code."""
    chosen = options(argv)
    try:
        measured = run(chosen)
    except Deep500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    environment = describe()
    print(f"{environment['cpu']}, one thread, {chosen.rounds} rounds; medians with intervals of 95 %\n")
    print(tables(measured))
    if chosen.json:
        about = {
            "environment": environment,
            "rounds": chosen.rounds,
            "quick": chosen.quick,
            "memory_gib": chosen.memory,
        }
        chosen.json.write_text(json.dumps(as_json(measured, about), indent=1), encoding="utf-8")
    if chosen.plot:
        plot(measured, chosen.plot)
    return 1 if any(benchmark.wrong for benchmark in measured) else 0


if __name__ == "__main__":
    raise SystemExit(main())
