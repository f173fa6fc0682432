"""Graph substitutions from generation to gain: the experiments E1 to E6 of TASO's artifact (Jia et al., SOSP 2019).

python -m recipes.studies.graph_substitutions --dry-run
python -m recipes.studies.graph_substitutions --only E1,E5,E6
python -m recipes.studies.graph_substitutions --only E2 --networks nasrnn,bert --backends pytorch --budget 30 --json \
    out.json
python -m recipes.studies.graph_substitutions e2

The last is E2 by deployment, beside the optimizers that people have: see `deployments`. E1 generates rules, E5 proves
them, E6 validates the axioms. E2 optimises whole networks per backend, E3 merges the groups of a convolution, E4
divides substitution from layout in attention. Variants are timed in turns, in this process, with as many threads as
each framework takes: OMP_NUM_THREADS=1 and the like say so. Exit codes: 0, 1 if an answer is wrong or something failed,
else as ``deep500 run``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from deep500.errors import Deep500Error, nearest
from deep500.measure.environment import describe
from deep500.registry import backend_names, is_installed, load_backend
from recipes.studies.graph_substitutions import attention, deployments, grouping, networks, rules
from recipes.studies.graph_substitutions.page import write_page
from recipes.studies.graph_substitutions.settings import Settings
from recipes.studies.graph_substitutions.subjects import SUBJECTS
from recipes.studies.graph_substitutions.timing import CLOCKS

EXPERIMENTS = ("E1", "E5", "E6", "E2", "E3", "E4")
BACKENDS = ("pytorch", "onnxruntime", "reference")
"""By default, as far as they are installed."""
DRY = ("nasrnn-64", "resnext50", "bert", "repvgg-4")
"""Networks of a dry run."""
COMPILED = "nasrnn-64"
"""The one network that torch.compile takes on in a dry run."""


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--dry-run", action="store_true", help="small networks, rules of 2 operators, short timing: fills every table")
    add("--only", metavar="E1,..", help=f"experiments among {','.join(EXPERIMENTS)} (all)")
    add("--networks", metavar="NAME,..", help=f"for E2, among {','.join(SUBJECTS)} (all; dry run: four)")
    add("--backends", metavar="NAME,..", help=f"any of {','.join(backend_names())} ({','.join(BACKENDS)})")
    add("--budget", type=float, metavar="S", help="seconds of one search (120; dry run 0.5)")
    add("--seconds", type=float, metavar="S", help="of timing for one comparison, about (20; dry run 0.1)")
    add("--depth", type=int, metavar="N", help="most operators of a side of a rule (3; dry run 2)")
    add(
        "--no-compile",
        action="store_true",
        help=f"leave torch.compile out, which takes minutes (a dry run: all but {COMPILED})",
    )
    add(
        "--clock",
        choices=sorted(CLOCKS),
        default="wall",
        help="time that passes, or of this process' processors (wall)",
    )
    add("--seed", type=int, default=0, help="of weights, inputs, searches and orders (0)")
    add("--database", type=Path, metavar="FILE", help="measured times of operators, kept for later (the user's cache)")
    add("--json", type=Path, metavar="FILE", help="write everything, every sample too")
    add("--report", type=Path, metavar="FILE", help="write the tables as one page, .html")
    args = parser.parse_args(argv)
    args.only = _names(parser, "--only", args.only, EXPERIMENTS, EXPERIMENTS)
    args.networks = _names(parser, "--networks", args.networks, SUBJECTS, DRY if args.dry_run else tuple(SUBJECTS))
    usual = tuple(name for name in BACKENDS if is_installed(name))
    args.backends = _names(parser, "--backends", args.backends, backend_names(), usual)
    for name, full, dry in (("budget", 120.0, 0.5), ("seconds", 20.0, 0.1), ("depth", 3, 2)):
        if getattr(args, name) is None:
            setattr(args, name, dry if args.dry_run else full)
    if args.budget < 0 or args.seconds <= 0 or args.depth < 1:
        parser.error("got a --budget below 0, --seconds of 0 or a --depth below 1; expected more")
    for option, file in (("--json", args.json), ("--report", args.report)):
        if file and not file.absolute().parent.is_dir():
            parser.error(f"got {option} {file}; expected a file in a folder that exists")
    return args


def _names(
    parser: argparse.ArgumentParser, option: str, text: str | None, known: Any, usual: tuple[str, ...]
) -> tuple[str, ...]:
    if text is None:
        return usual
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known:
            parser.error(f"got {option} {name}; expected some of: {nearest(name, known)}")
    return names or usual


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Run the experiments, in the order of :data:`EXPERIMENTS`; by name: what has ``wrong``, ``as_json()`` and a text.

    Raises:
        Deep500Error: a backend or a prover is not installed.
    """
    compiled = () if args.no_compile else (COMPILED,) if args.dry_run else args.networks
    settings = Settings(
        args.dry_run,
        args.networks,
        args.backends,
        args.budget,
        args.seconds,
        args.depth,
        args.clock,
        compiled,
        args.database,
        args.seed,
    )
    for name in settings.backends:
        load_backend(name)
    results: dict[str, Any] = {}
    if {"E1", "E5"} & set(args.only):
        first, generation = rules.generated(settings)
        results |= {"E1": first} if "E1" in args.only else {}
        results |= {"E5": rules.verified(settings, generation)} if "E5" in args.only else {}
    if "E6" in args.only:
        results["E6"] = rules.validated(settings)
    if "E2" in args.only:
        rows = _measure_all([(n, b) for n in settings.networks for b in settings.backends], networks.measure, settings)
        results["E2"] = networks.Networks(rows, settings)
    if "E3" in args.only:
        sizes = grouping.QUICK_SWEEPS if settings.quick else grouping.SWEEPS
        todo = [(*size, backend) for size in sizes for backend in settings.backends]
        results["E3"] = grouping.Grouping(_measure_all(todo, grouping.sweep, settings))
    if "E4" in args.only:
        results["E4"] = attention.Attention(
            _measure_all([(b,) for b in settings.backends], attention.measure, settings), settings
        )
    return results


def _measure_all(todo: Sequence[tuple[Any, ...]], measure: Callable[..., Any], settings: Settings) -> list[Any]:
    """Measure one after the other, with a progress bar in a terminal."""
    rows = []
    with tqdm(todo, file=sys.stderr, disable=None if sys.stderr.isatty() else True, unit="case") as bar:
        for words in bar:
            bar.set_description(" ".join(map(str, words)))
            rows.append(measure(*words, settings))
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write; returns the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["e2"]:
        return deployments.main(words[1:])
    chosen = options(words)
    try:
        results = run(chosen)
    except Deep500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    environment = describe()
    threads = os.environ.get("OMP_NUM_THREADS", "as each framework takes")
    about = (
        f"{environment['cpu']}, threads: {threads}; float32, batch 1; medians of {chosen.clock} time, 95 % intervals"
    )
    wrong = [f"WRONG: {fault}" for result in results.values() for fault in result.wrong]
    print("\n\n".join([about, *map(str, results.values()), *wrong]))
    if chosen.json:
        known = {
            "environment": environment,
            "threads": threads,
            "options": {**vars(chosen), "json": None, "report": None},
        }
        everything = {"about": known, "wrong": wrong} | {name: result.as_json() for name, result in results.items()}
        chosen.json.write_text(json.dumps(everything, indent=1, default=str), encoding="utf-8")
    if chosen.report:
        write_page(
            chosen.report,
            "Graph substitutions",
            [about, *wrong],
            {name: str(result) for name, result in results.items()},
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
