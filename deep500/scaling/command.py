"""``deep500 simulate RECIPE --ranks 16,256,4096 --network alpha=..,beta=..``: scaling before there is a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deep500.compare.subject import Setting
from deep500.errors import InputError, ResultsError
from deep500.measure.statistics import Interval, median_interval
from deep500.progress import progress, still
from deep500.recipe.loader import find_recipe
from deep500.results.command import add_json, say_written
from deep500.results.files import read_json, writing
from deep500.results.quiet import BUSY
from deep500.results.record import Record
from deep500.results.scaling import STRONG, WEAK, Scaling
from deep500.results.stats import STATS
from deep500.scaling.model import Interconnect
from deep500.scaling.noise import noise_of
from deep500.scaling.page import text, write_page
from deep500.scaling.plans import GridReplays, fitted_costs, replayed
from deep500.scaling.prediction import Compute, Machine, predict
from deep500.scaling.ranks_job import fitted, on_ranks
from deep500.scaling.rig import Rig, parse_schemes
from deep500.transformations.parallel.costs import StepCosts

SCHEMES = "ConsistentDecentralized,ConsistentParameterServer,InconsistentParameterServer,ConsistentNeighbors,LocalSGD"
MEASURED = "measured"

Tables = Sequence[tuple[Scaling, Mapping[tuple[str, int], str]]]
"""Each with the reasons for which points are missing."""


@dataclass
class Prediction:
    """The result of a simulation: a table per mode, why points are missing, and in words what it rests on."""

    tables: Tables
    about: list[str]


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``simulate``; returns what executes it."""
    add = parser.add_argument
    add("recipe", help="a file, or a name that 'deep500 list' shows")
    add("overrides", nargs="*", metavar="key=value", help="change a MUTABLE key, as for 'deep500 run'")
    add("--ranks", default="16,256,4096", metavar="P,Q", help="numbers of processes (16,256,4096)")
    add(
        "--network",
        required=True,
        metavar="alpha=..,beta=..,gamma=..",
        help="seconds per message, per byte, and per byte of a sum; or: measured, between two processes here",
    )
    add(
        "--noise",
        choices=[MEASURED],
        help="measure what others take of two cores of this machine, and let every rank lose as much (none beyond what "
        "is in the compute times)",
    )
    add("--schemes", default=SCHEMES, metavar="A,B(x=1)", help=f"what to predict ({SCHEMES})")
    add(
        "--plans",
        action="store_true",
        help="instead of schemes: the batch divided, the network (as parallel=auto does), or both, and what wins where",
    )
    add(
        "--plan-memory",
        type=int,
        metavar="BYTES",
        help="of parameters, gradients and optimizer state that a rank may hold (no limit)",
    )
    add("--mode", choices=[STRONG, WEAK, "both"], default="both", help="divide the recipe's batch, or one per process")
    add("--backend", dest="framework", metavar="NAME", help="the backend whose steps are measured (the recipe's)")
    add(
        "--from",
        dest="folder",
        type=Path,
        metavar="DIR",
        help="take compute times of a finished run instead of measuring (weak scaling only)",
    )
    add("--cores", type=int, metavar="N", help="cores there are; more ranks are refused (one for each)")
    add("--rounds", type=int, default=100, metavar="N", help="measured steps per batch size at most (100)")
    add("--seconds", type=float, default=5.0, metavar="S", help="and seconds at most (5)")
    add("--seed", type=int, default=0, metavar="S", help="of the draws of compute times (0)")
    add("--out", type=Path, default=Path("results"), metavar="DIR", help="where results go (./results)")
    add("--dry-run", action="store_true", help="few and short measurements")
    add_json(parser)
    return _simulate


def _simulate(args: argparse.Namespace) -> int:
    with progress("predicting", quiet=args.json, at_once=True), still():
        prediction = predict_recipe(args)
    title = f"{find_recipe(args.recipe).stem}: predicted scaling"
    if not args.json:
        sys.stdout.write("\n".join([title, *prediction.about, ""]) + "\n")
    folder = args.out / "simulate" / find_recipe(args.recipe).stem
    places: list[Path] = []
    for scaling, why in prediction.tables:
        if not args.json:
            sys.stdout.write(text(scaling, why) + "\n\n")
        place = folder / scaling_mode(scaling, args.mode)
        with writing(place):
            place.mkdir(parents=True, exist_ok=True)
        scaling.write(place)
        places.append(place)
    say_written(args, *places, write_page(folder / "scaling.html", title, prediction.about, prediction.tables))
    return 0


def scaling_mode(scaling: Scaling, asked: str) -> str:
    """The name of a table's folder; one without any point is what was asked for."""
    return scaling.mode if scaling.entries or asked == "both" else asked


def predict_recipe(args: argparse.Namespace) -> Prediction:
    """Measure and predict; the options are those of :func:`add_command`.

    Raises:
        InputError: ranks, network or schemes that make no sense, or no point can be predicted.
        RecipeError, DataError, MissingBackend: as running the recipe would.
        ResultsError: ``--from`` names no finished run of this recipe.
    """
    counts = _counts(args.ranks)
    schemes = parse_schemes(args.schemes)
    net, origin = _network(args.network)
    if args.plan_memory is not None and (not args.plans or args.plan_memory < 1):
        raise InputError(f"got --plan-memory {args.plan_memory}; expected bytes above 0, with --plans: correct it")
    steps, seconds = (8, 1.0) if args.dry_run else (args.rounds, args.seconds)
    rig = Rig(args.framework, Setting(str(find_recipe(args.recipe)), tuple(args.overrides)))
    compute = Compute({}, rig, steps, seconds)
    source = f"compute times: measured here, {rig.subject.framework}"
    if args.folder is not None:
        compute = Compute({rig.batch_size: _recorded(args.folder, rig, find_recipe(args.recipe).stem)})
        compute.steps = steps
        source = f"compute times: the steps of {args.folder}"
    noise = noise_of(on_ranks(2, {"do": "noise"})) if args.noise else None
    machine = Machine(net, args.cores, args.seed, noise)
    modes = [STRONG, WEAK] if args.mode == "both" else [args.mode]
    if args.plans:
        replays, base, scale = _plans(args, rig, compute, net)
        replayed_modes = [replayed(replays, counts, mode, base) for mode in modes]
        winners = [line for *_, lines in replayed_modes for line in lines]
        about = [f"network: {net}{origin}", source, scale, *winners]
        return _labelled(args, rig, [(table, lacking) for table, lacking, _ in replayed_modes], about)
    predictions = [predict(compute, rig, schemes, counts, mode, machine) for mode in modes]
    tables = [table for table in predictions if table[0].entries]
    if not tables:
        why = "; ".join(sorted({reason for _, lacking in predictions for reason in lacking.values()}))
        raise InputError(
            f"got {args.ranks} ranks, none of which can be predicted ({why}); expected fewer, or --mode {WEAK}"
        )
    cores = "each rank has its own core" + ("" if args.cores is None else f", of {args.cores}")
    sizes = ", ".join(
        f"{size} samples {1e3 * float(np.median(t)):.3g} ms (n {t.size})" for size, t in sorted(compute.traces.items())
    )
    if noise is not None:
        cores += (
            f"; noise: a second of work takes {noise.dilation:.4g} s, measured by a fixed quantum on two ranks here"
        )
    note = "intervals are over simulated draws of the measured times, and hold for the model, not for a machine"
    return _labelled(args, rig, tables, [f"network: {net}{origin}", f"{source}; median of {sizes}", cores, note])


def _labelled(
    args: argparse.Namespace,
    rig: Rig,
    tables: Sequence[tuple[Scaling, Mapping[tuple[str, int], str]]],
    about: list[str],
) -> Prediction:
    """The prediction with the labels of what it rests on: of a run, and of what was measured here."""
    run = {} if args.folder is None else Record.open(args.folder).summary() or {}
    busy = rig.disturbed()
    here = [(args.dry_run, "dry run"), (rig.is_stand_in, "stand-in data"), (busy, BUSY)]
    labels = [*dict.fromkeys([*run.get("labels", ()), *(label for applies, label in here if applies)])]
    if busy:
        about = [*about, f"the machine was busy: {'; '.join(busy)}"]
    return Prediction([(table.labelled(labels), lacking) for table, lacking in tables], about)


def _plans(
    args: argparse.Namespace, rig: Rig, compute: Compute, net: Interconnect
) -> tuple[GridReplays, Interval, str]:
    """The recipe's network for plans, its measured step, and in words how the model was fitted to it."""
    network, (batch, *_) = rig.subject.network(), rig.subject.batches(1)
    base, shapes = median_interval(compute.trace(rig.batch_size)), {n: a.shape for n, a in batch.items()}
    costs = fitted_costs(network, shapes, base.median, net)
    times = costs.operation_time / StepCosts().operation_time
    return (
        GridReplays(network, shapes, rig.batch_size, costs, net, args.plan_memory),
        base,
        f"a modelled step of one rank is the measured one, {1e3 * base.median:.3g} ms: nodes take {times:.3g} times "
        "what the planner assumes",
    )


def _counts(text_: str) -> list[int]:
    words = [word.strip() for word in text_.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and int(word) >= 1 for word in words):
        raise InputError(f"got --ranks {text_!r}; expected whole numbers of at least 1, such as --ranks 16,256,4096")
    return sorted({int(word) for word in words})


def _network(text_: str) -> tuple[Interconnect, str]:
    if text_ != MEASURED:
        return Interconnect.parse(text_), ", as given"
    answer = on_ranks(2, {"do": "network"})
    misses = f"misses them by {answer['median']:.0%}, at most {answer['worst']:.0%}"
    return fitted(answer), f", fitted to messages between two ranks of this machine ({answer['library']}; {misses})"


def _recorded(folder: Path, rig: Rig, recipe: str) -> np.ndarray:
    """The steady steps of a finished run, all seeds together."""
    record = Record.open(folder)
    manifest, stats = record.manifest(), folder / STATS
    if manifest["recipe"] != recipe or not stats.exists():
        raise ResultsError(
            f"{folder}: got a run of {manifest['recipe']!r} that may be unfinished; expected a finished "
            f"one of {recipe!r}"
        )
    batch = manifest["resolved"]["recipe"]["batch_size"]
    if batch != rig.batch_size:
        raise ResultsError(f"{folder}: got steps of {batch} samples; expected {rig.batch_size}: add batch_size={batch}")
    launches = read_json(stats)["series"]["step"]["launches"]
    return np.concatenate(
        [record.samples.durations("step", launch["launch"])[launch["cut"]["index"] :] for launch in launches]
    )
