"""The gain of differentiating optimized code: seven micro-benchmarks, after Moses and Churavy (NeurIPS 2020).

python -m recipes.studies.enzyme_microbenchmarks
python -m recipes.studies.enzyme_microbenchmarks --rows rows.jsonl --json out.json --plot out.png
python -m recipes.studies.enzyme_microbenchmarks --benchmark gmm --benchmark fft --source path/to/CoDiPack

Each benchmark, in the published layout and in other styles, runs at several sizes as primal and as gradient: by Enzyme
(optimise, then differentiate), by Ref (differentiate, then optimise), by hand, by tools that record a tape, by PyTorch
and by JAX. One thread; variants take turns, each in a process of its own, started anew in every launch. It needs
``deep500 tools setup enzyme``; CppAD's headers are fetched with pip. Exit codes: 0, 1 if a gradient is wrong, else as
``deep500 run``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from deep500.errors import Deep500Error
from deep500.measure.environment import describe
from deep500.measure.load import disturbances, load_between, read_load
from deep500.measure.statistics import MINIMUM_SAMPLES
from deep500.wheels import WheelError
from recipes.studies.enzyme_microbenchmarks import resuming
from recipes.studies.enzyme_microbenchmarks.building import Libraries, libraries
from recipes.studies.enzyme_microbenchmarks.measuring import (
    ENZYME,
    JAX,
    REF,
    TORCH,
    MeasuredBenchmark,
    Where,
    measure,
    variants,
)
from recipes.studies.enzyme_microbenchmarks.plotting import plot
from recipes.studies.enzyme_microbenchmarks.printing import as_json, tables
from recipes.studies.enzyme_microbenchmarks.problems import BENCHMARKS, STYLES, problems
from recipes.studies.enzyme_microbenchmarks.tapes import TapeTool, cppad, from_checkout

LAUNCHES, ROUNDS = MINIMUM_SAMPLES, 5
PICTURES = (".png", ".svg", ".pdf")
CPPAD = "CppAD"
OPTIONAL = (CPPAD, TORCH, JAX)


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--quick", action="store_true", help="one small size and one launch: checks gradients, times little")
    add(
        "--benchmark",
        action="append",
        choices=list(BENCHMARKS),
        metavar="NAME",
        help=f"only this one of {', '.join(BENCHMARKS)}; may be repeated",
    )
    add("--no-styles", action="store_true", help="published layouts only")
    add("--launches", type=int, metavar="N", help=f"times that all processes are started ({LAUNCHES}; with --quick 1)")
    add("--rounds", type=int, metavar="N", help=f"samples of every variant in a launch ({ROUNDS}; with --quick 1)")
    add(
        "--memory",
        type=float,
        default=8.0,
        metavar="GIB",
        help="address space of a variant; what needs more is shown as out of memory (8)",
    )
    add(
        "--source",
        action="append",
        type=Path,
        default=[],
        metavar="PATH",
        help="also measure the CoDiPack or Adept that is checked out there; may be repeated",
    )
    add(
        "--without",
        action="append",
        choices=OPTIONAL,
        default=[],
        metavar="NAME",
        help=f"leave out one of {', '.join(OPTIONAL)}; may be repeated",
    )
    add("--rows", type=Path, metavar="FILE", help="keep finished launches here, and go on from those that are there")
    add("--json", type=Path, metavar="FILE", help="write everything, every sample too")
    add("--plot", type=Path, metavar="FILE", help="draw times against sizes: .png, .svg, .pdf")
    args = parser.parse_args(argv)
    for name, usual in (("launches", LAUNCHES), ("rounds", ROUNDS)):
        if getattr(args, name) is None:
            setattr(args, name, 1 if args.quick else usual)
        if getattr(args, name) < 1:
            parser.error(f"got --{name} {getattr(args, name)}; expected at least 1")
    if args.memory <= 0:
        parser.error(f"got --memory {args.memory}; expected GiB above 0")
    for name in ("rows", "json", "plot"):
        file = getattr(args, name)
        if file and not file.absolute().parent.is_dir():
            parser.error(f"got --{name} {file}; expected a file in a folder that exists")
    if args.plot and args.plot.suffix not in PICTURES:
        parser.error(f"got --plot {args.plot}; expected a name that ends with one of {', '.join(PICTURES)}")
    return args


@dataclass(frozen=True)
class Study:
    """The benchmarks that are measured, and the libraries to measure with."""

    names: list[str]
    libraries: Libraries
    tapes: list[TapeTool]
    missing: dict[str, str]

    def where(self, name: str, without: Sequence[str]) -> dict[str, Where]:
        """A benchmark's variants."""
        places = variants(name, self.libraries, {tape.name: tape.title for tape in self.tapes})
        return {variant: place for variant, place in places.items() if variant not in without}

    def refused(self, name: str) -> dict[str, str]:
        """Return what cannot be built of it, and why."""
        orders = {ENZYME: "enzyme", REF: "ref"}
        refusals = {variant: self.libraries.refused[order] for variant, order in orders.items()}
        by_engine = {variant: "refused by the engine" for variant, texts in refusals.items() if name in texts}
        return by_engine | (self.missing if name in BENCHMARKS else {})


def prepare(args: argparse.Namespace) -> Study:
    """Fetch and build what is not there yet.

    Raises:
        MissingEngine: there is no Enzyme.
        InputError: a path of ``--source`` is no tool's.
    """
    tapes, missing = [], {}
    if CPPAD not in args.without:
        try:
            tapes.append(cppad())
        except WheelError as error:
            print(f"warning: no CppAD: {error}", file=sys.stderr)
            missing[CPPAD] = "no wheel"
    tapes += [from_checkout(path) for path in args.source]
    names = args.benchmark or list(BENCHMARKS)
    styles = [] if args.no_styles else [name for name in STYLES if STYLES[name].benchmark in names]
    return Study([*names, *styles], libraries([*names, *styles], tapes), tapes, missing)


def run(
    args: argparse.Namespace, study: Study | None = None, instead: Mapping[tuple[str, str], Where] | None = None
) -> list[MeasuredBenchmark]:
    """Measure launch after launch, benchmark after benchmark, what ``--rows`` does not hold yet.

    Args:
        args: what ``options`` returns.
        study: what ``prepare`` returns; made if None.
        instead: other places of (benchmark, variant): (library or Python module, function).

    Raises:
        MissingEngine, InputError: see ``prepare``; ``--rows`` is of another study.
    """
    study = study or prepare(args)
    paths = sorted(path.parent.name for path in study.libraries.paths.values())
    settings = (args.quick, args.rounds, args.memory, sorted(args.without), sorted(study.missing))
    key = hashlib.sha256(repr((paths, settings)).encode()).hexdigest()[:24]
    finished = resuming.read(args.rows, key) if args.rows else {}
    measured = []
    quiet = None if sys.stderr.isatty() else True  # for tqdm, None is: only in a terminal
    points = [(launch, name) for launch in range(args.launches) for name in study.names]
    with tqdm(points, file=sys.stderr, disable=quiet, unit="launch") as bar:
        for launch, name in bar:
            bar.set_description(name)
            rows = finished.get((name, launch))
            if rows is None:
                where = study.where(name, args.without)
                where |= {variant: place for (at, variant), place in (instead or {}).items() if at == name}
                allocation, memory = study.libraries.paths["allocation"], int(args.memory * 2**30)
                sizes = problems(name, args.quick)
                rows = measure(sizes, where, study.refused(name), allocation, memory, args.rounds, launch)
                if args.rows:
                    resuming.append(args.rows, key, rows)
            measured += rows
    return measured


def _load() -> dict[str, Any]:
    """The machine's load; what was measured ran in processes of its own, which are no others."""
    reading, children = read_load(), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {**reading, "own": reading["own"] + children.ru_utime + children.ru_stime}


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, measure, print; returns the exit code."""
    chosen = options(argv)
    before = _load()
    try:
        study = prepare(chosen)
        measured = run(chosen, study)
    except Deep500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    load = load_between(before, _load())
    environment = describe()
    print(
        f"{environment['cpu']}, one thread; medians of {chosen.launches} launches of {chosen.rounds} rounds, intervals "
        "of at least 95 % over launches"
    )
    if tools := ", ".join(f"{tape.title} {tape.version}" for tape in study.tapes):
        print(f"tapes: {tools}")
    print("".join(f"disturbed: {text}\n" for text in disturbances(load) or ()))
    print(tables(measured))
    if chosen.json:
        about = {
            "environment": environment,
            "load": load,
            "tapes": {tape.title: tape.version for tape in study.tapes},
            "refused": study.libraries.refused,
            **{name: getattr(chosen, name) for name in ("launches", "rounds", "quick", "memory")},
        }
        chosen.json.write_text(json.dumps(as_json(measured, about), indent=1), encoding="utf-8")
    if chosen.plot:
        plot(measured, chosen.plot)
    return 1 if any(row.wrong for row in measured) else 0


if __name__ == "__main__":
    raise SystemExit(main())
