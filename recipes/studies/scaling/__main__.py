"""Strong and weak scaling of a recipe over processes of this machine: time per step, speed-up, and what it costs in
quality.

python -m recipes.studies.scaling
python -m recipes.studies.scaling --recipe digits_lenet --ranks 1,2,4 --schemes \
    "ConsistentDecentralized,LocalSGD(every=4)"

Strong scaling divides the recipe's batch among the ranks, weak scaling gives each rank one. The base of every speed-up
is the same recipe without a scheme in one process, with its absolute time. Launches of all numbers of ranks take turns.
The quality column is the accuracy of whole trainings on that number of ranks (--seeds 0: none). Exit codes: 0, 1 if the
accuracy falls by more than --tolerance against one rank, else as ``deep500 run``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from tqdm import tqdm

from deep500.compare.processes import usable_cores
from deep500.compare.subject import Setting, Subject
from deep500.errors import Deep500Error, InputError
from deep500.measure import Interval, median_interval, over_launches
from deep500.measure.environment import describe
from deep500.recipe.loader import find_recipe
from deep500.results.ranks import Rank, Ranks
from deep500.results.scaling import STRONG, WEAK, Scaling, ScalingBase, ScalingPoint
from deep500.scaling.page import text, write_page
from deep500.scaling.ranks_job import on_ranks
from deep500.scaling.rig import SchemeChoice, parse_schemes

QUALITY = "test_accuracy"

PlannedPoint: TypeAlias = tuple[str, SchemeChoice, int, int]
"""Points to be measured: mode, scheme, number of ranks and global batch."""


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--recipe", default="digits_lenet", metavar="NAME", help="a file, or a name that 'deep500 list' shows")
    add("--ranks", default="1,2,4", metavar="P,Q", help="numbers of processes (1,2,4)")
    add("--schemes", default="ConsistentDecentralized", metavar="A,B(x=1)", help="how they communicate")
    add("--mode", choices=[STRONG, WEAK, "both"], default="both", help="divide the recipe's batch, or one per rank")
    add("--framework", metavar="NAME", help="the backend (the recipe's)")
    add("--rounds", type=int, default=6, metavar="N", help="launches of every point; from 6 on intervals are over them")
    add("--blocks", type=int, default=10, metavar="N", help="timed blocks of steps per launch (10)")
    add("--seconds", type=float, default=0.3, metavar="S", help="of one block (0.3)")
    add("--seeds", type=int, default=1, metavar="N", help="whole trainings per point, for the quality; 0: none")
    add("--tolerance", type=float, default=1.0, metavar="POINTS", help="by how much the accuracy may fall (1.0)")
    add("--sync", choices=["barrier", "window"], default="barrier", help="how steps timed rank by rank are begun")
    add("--out", type=Path, default=Path("results"), metavar="DIR", help="where results go (./results)")
    add("--dry-run", action="store_true", help="one short launch of 1 and of 2 ranks, strong scaling, no training")
    args = parser.parse_args(argv)
    if args.dry_run:
        args.ranks, args.mode, args.seeds = "1,2", STRONG, 0
        args.rounds, args.blocks, args.seconds = 1, 2, 0.02
    wrong = [f"--{name} {getattr(args, name)}" for name in ("rounds", "blocks") if getattr(args, name) < 1]
    wrong += [f"--seeds {args.seeds}"] if args.seeds < 0 else []
    counts = [word.strip() for word in args.ranks.split(",")]
    wrong += [] if all(word.isdecimal() and int(word) for word in counts) else [f"--ranks {args.ranks}"]
    if wrong:
        parser.error(f"got {', '.join(wrong)}; expected whole numbers of at least 1 (--seeds: 0)")
    args.ranks = sorted({1, *map(int, counts)})
    return args


def points(args: argparse.Namespace, batch: int) -> list[PlannedPoint]:
    """Mode, scheme, ranks and global batch of everything to be measured; what a scheme or a batch cannot do is not."""
    todo = []
    for mode in (STRONG, WEAK) if args.mode == "both" else (args.mode,):
        for scheme in parse_schemes(args.schemes):
            for ranks in args.ranks:
                workers = len(scheme.workers(ranks))
                whole = batch * workers if mode == WEAK else batch
                if ranks >= scheme.kind.least_ranks and whole >= workers:
                    todo.append((mode, scheme, ranks, whole))
    if not todo:
        raise InputError(f"got {args.schemes} on {args.ranks} ranks; expected more ranks, or another scheme")
    return todo


def time_all(args: argparse.Namespace, todo: Sequence[PlannedPoint]) -> list[list[dict[str, Any]]]:
    """Launch every point once per round; answers by point."""
    setting = {"recipe": str(find_recipe(args.recipe)), "overrides": []}
    job = {
        "do": "steps",
        "setting": setting,
        "framework": args.framework,
        "blocks": args.blocks,
        "block_seconds": args.seconds,
        "sync": args.sync,
    }
    answers: list[list[dict[str, Any]]] = [[] for _ in todo]
    rng = np.random.default_rng(0)
    # in turns and in random order, so that drifts of the machine meet all points alike
    turns = [int(n) for _ in range(args.rounds) for n in rng.permutation(len(todo))]
    with tqdm(turns, file=sys.stderr, disable=None, unit="launch") as bar:
        for number in bar:
            _, scheme, ranks, whole = todo[number]
            bar.set_description(f"{scheme} {ranks}")
            more = {} if answers[number] else {"timed": 5 * args.blocks}
            answers[number].append(on_ranks(ranks, {**job, **more, "scheme": str(scheme), "global_batch": whole}))
    return answers


def combined(launches: Sequence[Sequence[float]]) -> Interval:
    """The median over launches, or within them where there are too few."""
    return over_launches([np.array(times) for times in launches]).estimate


def serial_times(answers: Sequence[dict[str, Any]]) -> Interval:
    """Blocks of the steps without a scheme that took turns with those of one rank."""
    return combined(
        [np.array(answer["compute"]).reshape(-1, answer["steps_per_block"]).mean(axis=1).tolist() for answer in answers]
    )


def quality(
    args: argparse.Namespace, scheme: SchemeChoice, ranks: int, whole: int
) -> tuple[float | None, float | None]:
    """Median accuracy of whole trainings on this number of ranks, and the low end of its interval over seeds."""
    if not args.seeds:
        return None, None
    arguments = [f"scheme_kwargs.{name}={value!r}" for name, value in scheme.arguments.items()]
    words = [
        "run",
        args.recipe,
        f"batch_size={whole}",
        f"scheme={scheme.name}",
        *arguments,
        "--open",
        "--ranks",
        str(ranks),
        "--repeat",
        str(args.seeds),
        "--json",
    ]
    words += ["--framework", args.framework] if args.framework else []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "deep500", *words, "--out", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        raise InputError(f"got exit code {done.returncode} of deep500 {' '.join(words)}: {done.stderr[-500:]}")
    metrics = json.loads(done.stdout)["metrics"]
    values = next(metric["values"] for metric in metrics if metric["name"] == QUALITY)
    median = median_interval(values)
    return median.median, median.low


def tables(args: argparse.Namespace, subject: Subject) -> list[Scaling]:
    """Measure everything; one table per mode."""
    todo = points(args, int(subject.plan.values["batch_size"]))
    if not any(ranks == 1 for _, _, ranks, _ in todo):
        raise InputError(f"got {args.schemes}, none of which runs on one rank; expected one that does, for the base")
    answers = time_all(args, todo)
    ones = [answer for (_, _, ranks, _), group in zip(todo, answers, strict=True) if ranks == 1 for answer in group]
    batch = int(subject.plan.values["batch_size"])
    base = ScalingBase(
        f"serial: one process without a scheme, batch {batch}, {subject.framework}",
        "serial-best",
        batch,
        serial_times(ones),
    )
    measured = []
    for mode in dict.fromkeys(mode for mode, *_ in todo):
        entries = []
        for (mode_of, scheme, ranks, whole), group in zip(todo, answers, strict=True):
            if mode_of == mode:
                seconds = combined([answer["seconds"] for answer in group])
                entries.append(
                    ScalingPoint(ranks, whole, str(scheme), seconds, "measured", *quality(args, scheme, ranks, whole))
                )
        measured.append(Scaling(base, tuple(entries), f"{QUALITY} (%)" if args.seeds else None))
        folder = args.out / "scaling" / find_recipe(args.recipe).stem / mode
        folder.mkdir(parents=True, exist_ok=True)
        measured[-1].write(folder)
        last = max((n for n, (mode_of, *_) in enumerate(todo) if mode_of == mode), key=lambda n: todo[n][2])
        rank_table(answers[last][0]["ranks"]).write(folder)
    return measured


def rank_table(answer: dict[str, Any]) -> Ranks:
    """The ranks of one launch."""
    columns = zip(
        answer["seconds"], answer["offsets"], answer["errors"], answer["waiting"], answer["sent"], strict=True
    )
    ranks = tuple(
        Rank(number, median_interval(seconds), offset, error, waiting, sent)
        for number, (seconds, offset, error, waiting, sent) in enumerate(columns)
    )
    return Ranks(ranks, answer["sync"], answer["summary"], answer["imbalance"], answer["rank_p"])


def fallen(measured: Sequence[Scaling], tolerance: float) -> list[str]:
    """Points whose accuracy is lower than on one rank by more than the tolerance."""
    worse = []
    for table in measured:
        on_one_rank = {entry.scheme: entry.quality for entry in table.entries if entry.ranks == 1}
        for entry in table.entries:
            alone = on_one_rank.get(entry.scheme)
            if alone is not None and entry.quality is not None and entry.quality < alone - tolerance:
                where = f"{table.mode}, {entry.scheme} on {entry.ranks} ranks"
                worse.append(f"{where}: {entry.quality:.4g}, was {alone:.4g}")
    return worse


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write tables and page; returns the exit code."""
    chosen = options(argv)
    try:
        subject = Subject.load(Setting(str(find_recipe(chosen.recipe))), chosen.framework)
        measured = tables(chosen, subject)
    except Deep500Error as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    cores = usable_cores()
    about = [f"{describe()['cpu']}, {cores} cores"]
    if max(chosen.ranks) > cores:
        about.append(f"more than {cores} ranks share cores: their times are no statement about a cluster")
    for table in measured:
        print(text(table), end="\n\n")
    worse = fallen(measured, chosen.tolerance)
    about += [f"accuracy falls: {point}" for point in worse]
    print("\n".join(about))
    recipe = find_recipe(chosen.recipe).stem
    print(
        write_page(
            chosen.out / "scaling" / recipe / "scaling.html",
            f"{recipe}: measured scaling",
            about,
            [(table, {}) for table in measured],
        )
    )
    return int(bool(worse))


if __name__ == "__main__":
    raise SystemExit(main())
