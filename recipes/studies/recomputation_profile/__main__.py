"""Cost and gain of recomputation: four networks profiled, planned for several budgets, run, and compared.

python -m recipes.studies.recomputation_profile --quick
python -m recipes.studies.recomputation_profile --network chain --budgets 0.5,0.35,0.3 --out results

The networks are a chain of 20 unlike residual blocks, a U-Net, a transformer, and one of 129 nested regions. For each:
one profiled step, the report of what every recomputation costs, plans for budgets of memory, and steps in turns:
predicted and measured peak and time beside those of equal segments, of every region, of the greedy guide of the
profiling paper and, on PyTorch, of ``activation_memory_budget``. Exit codes: 0, 1 if a plan holds more than its budget
or changes a bit of a gradient, else as ``deep500 run``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from deep500.errors import Deep500Error
from deep500.measure.environment import describe
from deep500.registry import backend_names, is_installed
from deep500.report.recomputation import write_page
from deep500.results.files import write_atomic, writing
from recipes.studies.recomputation_profile.printing import PUBLISHED, profile_table, ways_table
from recipes.studies.recomputation_profile.profiling import Bench, Profiled, ProfileSettings
from recipes.studies.recomputation_profile.subjects import FULL, NAMES, SMALL

BUDGETS, QUICK, TORCH = "0.9,0.7,0.5,0.35,0.3", "0.9,0.7,0.5", (1.0, 0.8, 0.5, 0.3, 0.1)
RECOMPUTE = ("explicit", "checkpoint")


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--network", action="append", choices=NAMES, help="only this one; may be repeated")
    add("--backend", metavar="NAME", help="where steps run (pytorch if it is installed, else reference)")
    add("--recompute", choices=RECOMPUTE, default="explicit", help="how PyTorch follows a plan (explicit)")
    add("--budgets", metavar="A,B", help=f"shares of the peak without recomputation ({BUDGETS}; quick: {QUICK})")
    add("--rounds", type=int, default=8, metavar="N", help="timed steps of every way; from 6 on with intervals (8)")
    add("--no-torch", action="store_true", help="leave PyTorch's activation_memory_budget out")
    add("--quick", action="store_true", help="small networks: shows everything, times say little")
    add("--dry-run", action="store_true", help="as --quick, two budgets, two rounds, without PyTorch's own planner")
    add("--out", type=Path, default=Path("results"), metavar="DIR", help="where results go (./results)")
    args = parser.parse_args(argv)
    if args.dry_run:
        args.budgets, args.rounds, args.no_torch = "0.9,0.7", 2, True
    args.budgets = args.budgets or (QUICK if args.quick else BUDGETS)
    try:
        args.budgets = tuple(float(word) for word in args.budgets.split(","))
    except ValueError:
        args.budgets = (0.0,)
    if not all(0 < budget <= 1 for budget in args.budgets):
        parser.error("got other --budgets than shares above 0, up to 1; expected for instance 0.7,0.5")
    if args.rounds < 1:
        parser.error(f"got --rounds {args.rounds}; expected at least 1")
    args.backend = args.backend or ("pytorch" if is_installed("pytorch") else "reference")
    if args.backend not in backend_names():
        parser.error(f"got --backend {args.backend}; expected one of {', '.join(backend_names())}")
    return args


def settings_of(args: argparse.Namespace) -> ProfileSettings:
    """Return the settings by the options."""
    torch = args.backend == "pytorch"
    return ProfileSettings(
        args.backend,
        args.budgets,
        guided=args.budgets[1:3] or args.budgets,
        torch=TORCH if torch and not args.no_torch else (),
        rounds=args.rounds,
        passes=2 if args.dry_run else 5,
        options={"recompute": args.recompute} if torch else {},
    )


def run(args: argparse.Namespace) -> dict[str, Profiled]:
    """Profile, plan and run every network; by name."""
    subjects = [s for s in (SMALL if args.quick or args.dry_run else FULL) if s.name in (args.network or NAMES)]
    profiled = {}
    with tqdm(subjects, file=sys.stderr, disable=None, unit="network") as bar:
        for subject in bar:
            bar.set_description(subject.name)
            profiled[subject.name] = Bench(subject, settings_of(args)).run()
    return profiled


def write(args: argparse.Namespace, profiled: dict[str, Profiled], about: Sequence[str]) -> Path:
    """A folder per network with the record, the profile and every plan that ran; the page's path."""
    base = args.out / "recomputation_profile"
    for name, result in profiled.items():
        folder = base / name
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        result.record.write(folder)
        write_atomic(folder / "profile.json", json.dumps(result.record.profile.data(), indent=1) + "\n")
        for label, plan in result.plans.items():
            words = "".join(letter if letter.isalnum() else "-" for letter in label)
            plan.save(folder / f"plan-{words}.json")
    records = {f"{name}: {result.record.network}": result.record for name, result in profiled.items()}
    return write_page(base / "recomputation.html", "Recomputation: planned and measured", about, records)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write; returns the exit code."""
    chosen = options(argv)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it warns of tensors that are older than a measurement
    try:
        profiled = run(chosen)
        machine = f"{describe()['cpu']}, backend {chosen.backend}, {chosen.rounds} rounds in turns"
        about = [f"{machine}; times on a processor are CPU seconds of the process", PUBLISHED.replace("\n", " ")]
        page = write(chosen, profiled, about)
    except Deep500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    for name, result in profiled.items():
        print(f"== {name} ==\n{profile_table(result.record)}\n\n{ways_table(result.record)}\n")
    print(f"{about[0]}\n\n{PUBLISHED}\n")
    wrong = [f"WRONG: {name}: {line}" for name, result in profiled.items() for line in result.wrong]
    print("\n".join([*wrong, str(page)]))
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
