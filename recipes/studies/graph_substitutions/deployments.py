"""E2 by deployment: whole networks, ours beside the optimizers that people have, where networks are deployed.

python -m recipes.studies.graph_substitutions e2
python -m recipes.studies.graph_substitutions e2 --networks nasrnn,vit --deployments onnxruntime,jax --full
python -m recipes.studies.graph_substitutions e2 --docs docs/graph_substitutions_experiments.md

A row is one network in one deployment: ONNX Runtime with all of its own optimizations, PyTorch eager, PyTorch with
torch.compile, JAX, TensorFlow. The network as it is, ours, and those of onnxsim, onnxoptimizer, onnxslim, onnxscript's
optimizer, as far as these are installed, run in turns in one process; each is built several times, since executors of
one network differ by where their arrays lie. What does the same work as another is run once. Rows are appended to a
file; what is there is not measured again, so that a run that was ended goes on. OMP_NUM_THREADS=1 says one thread.
Exit codes: 0, 1 if an answer is wrong or something failed, 2 for bad usage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from tqdm import tqdm

import deep500 as d5
from deep500.errors import nearest
from deep500.measure.environment import describe
from deep500.measure.statistics import Interval, median_interval
from deep500.networks import Network, create
from deep500.networks.hashing import content_hash
from deep500.transformations.substitutions.cost import deployment, work_hash
from deep500.transformations.substitutions.simplifiers import SIMPLIFIERS
from deep500.transformations.workshop.substitutions.experiments import table
from recipes.studies.graph_substitutions.exported import build
from recipes.studies.graph_substitutions.networks import WRONG, cell, line
from recipes.studies.graph_substitutions.timing import CLOCKS, CompiledRunner, difference, in_turns

DEPLOYMENTS = ("onnxruntime", "pytorch", "pytorch-compiled", "jax", "tensorflow")
INSTANCES = {"onnxruntime": 3, "pytorch": 3, "pytorch-compiled": 3}
"""So often a network is built for a row, at small size; twice where this is not said, since every twin is compiled."""
ORIGINAL, OURS = "original", "ours"
BEGIN, END = "<!-- E2 begins: written by the recipe -->", "<!-- E2 ends -->"
FLOOR = 0.98
"""Ours may never be slower than the best of the others by more."""
BARS = {"onnxruntime": 1.05, "pytorch": 1.15, "pytorch-compiled": 1.05}
"""Goal for the geometric mean of original / ours."""
IMAGE, BIG = (3, 64, 64), (3, 224, 224)

ROUNDS = 200
"""Of a row at most."""

Sizes = Mapping[str, Any]
# fmt: off
NETWORKS: Mapping[str, tuple[str, Sizes, Sizes]] = {
    "resnet50": ("resnet50", dict(shape=IMAGE, blocks=(2, 2)), dict(shape=BIG)),
    "resnext50": ("resnext50", dict(shape=IMAGE, blocks=(2, 2)), dict(shape=BIG)),
    "nasnet_a": ("nasnet_a", dict(shape=(3, 32, 32), cells=1, groups=1, filters=16, stem=16, last_reduction=False),
                 dict(shape=BIG)),
    "nasrnn": ("nasrnn", dict(shape=(3, 64)), dict(shape=(5, 512))),
    "bert": ("bert", dict(shape=(32, 128), width=128, heads=4, layers=2), dict(shape=(64, 768))),
    "repvgg": ("repvgg", dict(shape=IMAGE, blocks=(2, 3), widths=(32, 64)), dict(shape=BIG)),
    "mobileone": ("repvgg", dict(shape=IMAGE, blocks=(1, 2), widths=(32, 64), branches=4),
                  dict(shape=BIG, branches=4)),
    "convnext": ("convnext", dict(shape=IMAGE, blocks=(2, 2), widths=(32, 64)), dict(shape=BIG)),
    "vit": ("vit", dict(shape=IMAGE, width=128, heads=4, layers=2), dict(shape=BIG)),
    "gpt2": ("gpt2", dict(shape=(32, 128), heads=4, layers=2), dict(shape=(64, 768))),
    "unet": ("unet", dict(shape=IMAGE, width=16, levels=2), dict(shape=(3, 256, 256), width=64, levels=4)),
}
# fmt: on
"""By name: a model of the zoo or of `exported`, and its options at small and at full size."""


def network(name: str, full: bool = False, seed: int = 0) -> Network:
    """One of `NETWORKS` at batch 1.

    Example:
        >>> network("vit").inputs["input"].shape
        (1, 3, 64, 64)
    """
    model, small, large = NETWORKS[name]
    options = dict(large if full else small)
    classes = 1000 if full else 10
    if model in ("convnext", "vit", "gpt2"):
        return build(model, classes, options.pop("shape"), seed, **options)
    return create(model, batch=1, classes=classes, seed=seed, **options)


# -- what people have -------------------------------------------------------------------------------------------------
def _onnxoptimizer(model: onnx.ModelProto) -> onnx.ModelProto:
    result: onnx.ModelProto = import_module("onnxoptimizer").optimize(model)
    return result


PEERS: Mapping[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {
    "onnxsim": SIMPLIFIERS["onnxsim"],
    "onnxoptimizer": _onnxoptimizer,
    "onnxslim": SIMPLIFIERS["onnxslim"],
    "onnxscript": SIMPLIFIERS["onnxscript"],
}


def peers(original: Network) -> tuple[dict[str, Network], dict[str, str]]:
    """Return what each of the other optimizers makes of a network, and why some made nothing."""
    results, absent = dict[str, Network](), dict[str, str]()
    for name, optimize in PEERS.items():
        if find_spec(name) is None:
            absent[name] = "not installed"
            continue
        try:
            results[name] = Network.from_onnx(optimize(original.to_onnx()))
        except Exception as error:  # noqa: BLE001  # each has its own
            absent[name] = f"failed: {line(error)}"
    return results, absent


# -- one row ----------------------------------------------------------------------------------------------------------
def measure(name: str, where: str, args: argparse.Namespace) -> dict[str, Any]:
    """Optimise one network for one deployment and time it beside the others, as a row of the file."""
    row: dict[str, Any] = {"network": name, "deployment": where, "full": args.full, "clock": args.clock}
    original = network(name, args.full, args.seed)
    try:
        deployment(where).prepare()
        begin = time.perf_counter()
        optimized = d5.optimize_network(
            original, where, args.budget, seed=args.seed, database=args.database or ":memory:"
        )
        whole = time.perf_counter() - begin
        variants, absent = peers(original)
        variants = {ORIGINAL: original, OURS: optimized.network, **variants}
        row |= {
            "nodes": {which: len(net.nodes) for which, net in variants.items()},
            "search": optimized.seconds,
            "whole": whole,
            "budget": args.budget,
            "load": os.getloadavg()[0],
            "date": datetime.now().astimezone().isoformat(timespec="minutes"),
            "steps": len(optimized.history.steps),
            "chosen": optimized.chosen,
            "reason": optimized.reason,
            "absent": absent,
        }
        row |= _timed(variants, where, args)
    except Exception as error:  # noqa: BLE001  # each framework has its own; one row must not end the others
        row["failure"] = line(error)
    return row


def _timed(variants: Mapping[str, Network], where: str, args: argparse.Namespace) -> dict[str, Any]:
    """Samples of all variants; networks that do the same work are run once, and a peer that fails is left out."""
    runs, same, apart, absent = dict[str, CompiledRunner](), dict[str, str](), dict[str, float](), dict[str, str]()
    known: dict[str, str] = {}
    answers: list[np.ndarray] | None = None
    place, instances = deployment(where), 1 if args.full else INSTANCES.get(where, 2)
    for which, net in variants.items():
        twin = known.setdefault(work_hash(net), which)
        if twin != which:
            same[which] = twin  # as fast; the answers may be wrong nevertheless
            if answers is not None and content_hash(net) != content_hash(variants[twin]):
                alone = CompiledRunner(net, place.backend, args.seed, **place.options)
                apart[which] = difference(alone.outputs(), answers)
            continue
        try:
            runner = CompiledRunner(net, place.backend, args.seed, instances, **place.options)
            runner()
            got = runner.outputs()
        except Exception as error:
            if which in (ORIGINAL, OURS):
                raise
            absent[which] = f"failed: {line(error)}"
            continue
        answers = answers or got
        apart[which] = difference(got, answers)
        runs[which] = runner
    if len(runs) > 1:
        timed = in_turns(runs, args.seconds, args.clock, args.seed, ROUNDS)
        samples = {which: list(map(float, values)) for which, values in timed.samples.items()}
    else:
        samples = {}
    return {"same": same, "samples": samples, "difference": apart, "failed": absent}


# -- what rows say ----------------------------------------------------------------------------------------------------
def samples(row: Mapping[str, Any], which: str) -> np.ndarray | None:
    """Seconds of every round of a variant; ones where nothing had to be timed; None: not measured."""
    first = row["same"].get(which, which)
    if not row["samples"]:
        return np.ones(2) if first == ORIGINAL else None
    return np.asarray(row["samples"][first]) if first in row["samples"] else None


def ratio(row: Mapping[str, Any], which: str, other: str) -> Interval | None:
    """Time of one variant over that of another, paired in every round."""
    first, second = samples(row, which), samples(row, other)
    if first is None or second is None:
        return None
    if first is second or row["same"].get(which, which) == row["same"].get(other, other):
        return median_interval([1.0])
    return median_interval(first / second)


def best(row: Mapping[str, Any]) -> str:
    """The fastest of all but ours: of those that are faster than the original beyond noise, else the original.

    The least of several noisy medians is below 1 where nothing is faster, so medians alone would not do.
    """
    ratios = {which: ratio(row, which, ORIGINAL) for which in PEERS}
    faster = {n: r.median for n, r in ratios.items() if r is not None and r.high is not None and r.high < 1}
    return min(faster, key=lambda which: faster[which], default=ORIGINAL)


def wrong(row: Mapping[str, Any]) -> str:
    """Say what is wrong with a row; empty if nothing is."""
    where = f"{row['network']} in {row['deployment']}"
    if "failure" in row:
        return f"{where}: {row['failure']}"
    apart = row["difference"].get(OURS, 0.0)
    return "" if apart <= WRONG else f"{where}: answers differ by {apart:.1e}"


def mean(rows: Sequence[Mapping[str, Any]], which: str = OURS) -> Interval | None:
    """Geometric mean of original / ours (or another) over rows, made within every round; rounds that all rows have."""
    logs = []
    for row in rows:
        both = samples(row, ORIGINAL), samples(row, which)
        if both[0] is None or both[1] is None:
            continue
        stayed = row["same"].get(which) == ORIGINAL
        logs.append(np.zeros(ROUNDS) if stayed else np.log(both[0] / both[1]))
    if not logs:
        return None
    rounds = min(map(len, logs))
    return median_interval(np.exp(np.mean([gain[:rounds] for gain in logs], axis=0)))


def as_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table for each deployment, with its mean and the bars."""
    parts = []
    for where in dict.fromkeys(row["deployment"] for row in rows):
        mine = [row for row in rows if row["deployment"] == where]
        good = [row for row in mine if "failure" not in row]
        head = (f"E2, {where}", "nodes", "original ms", "ours", *PEERS, "best of others / ours", "search s", "all s")
        cells = [_cells(row) for row in mine]
        lines = [table(head, cells)]
        gain = mean(good)
        if gain is not None:
            bar = f", the bar is {BARS[where]}" if where in BARS else ""
            lines.append(f"geometric mean of original / ours over {len(good)} networks: {cell(gain)}{bar}")
            least = min(good, key=_least)
            lines.append(f"least best of others / ours: {_least(least):.3g} ({least['network']}), the bar is {FLOOR}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _least(row: Mapping[str, Any]) -> float:
    gain = ratio(row, best(row), OURS)
    return float("nan") if gain is None else gain.median


def _cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    if "failure" in row:
        return (row["network"], "failed", *[""] * (len(PEERS) + 5))
    shown = []
    for which in (OURS, *PEERS):
        gain = ratio(row, ORIGINAL, which)
        reason = {**row["absent"], **row["failed"]}.get(which, "not measured").partition(":")[0]
        same = "the same" if row["same"].get(which) == ORIGINAL else None
        shown.append(same or (reason if gain is None else cell(gain)))
    first = samples(row, ORIGINAL)
    alone = f"{1e3 * float(np.median(first)):.3g}" if row["samples"] and first is not None else "-"
    beside, name = ratio(row, best(row), OURS), best(row)
    nodes = f"{row['nodes'][ORIGINAL]} -> {row['nodes'][OURS]}"
    best_peer = "-" if beside is None else f"{cell(beside)} ({name})"
    return (row["network"], nodes, alone, *shown, best_peer, f"{row['search']:.1f}", f"{row['whole']:.0f}")


# -- the command line -------------------------------------------------------------------------------------------------
def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse what follows ``e2``."""
    parser = argparse.ArgumentParser(prog="graph_substitutions e2", description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--networks", default=",".join(NETWORKS), metavar="NAME,..", help=f"among {','.join(NETWORKS)} (all)")
    add("--deployments", default=",".join(DEPLOYMENTS), metavar="NAME,..", help=f"({','.join(DEPLOYMENTS)})")
    add("--full", action="store_true", help="networks at the sizes of their papers: hours, and gigabytes")
    add("--budget", type=float, default=30.0, metavar="S", help="seconds of one search (30)")
    add("--seconds", type=float, default=5.0, metavar="S", help="of timing for one row, about (5)")
    add("--clock", choices=sorted(CLOCKS), default="wall", help="time that passes, or of the processors (wall)")
    add("--rows", type=Path, default=Path("e2.jsonl"), metavar="FILE", help="rows so far, which are kept (e2.jsonl)")
    add("--no-measure", action="store_true", help="tables of the rows that are there, and no others")
    add("--docs", type=Path, metavar="FILE", help="write the tables into this page, between its marks")
    add("--database", type=Path, metavar="FILE", help="measured times of operators (none is kept)")
    add("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    for option, known in (("networks", tuple(NETWORKS)), ("deployments", DEPLOYMENTS)):
        names = [name for name in getattr(args, option).split(",") if name]
        for name in names:
            if name not in known:
                parser.error(f"got --{option} {name}; expected some of: {nearest(name, known)}")
        setattr(args, option, names)
    if args.docs and (not args.docs.is_file() or BEGIN not in args.docs.read_text(encoding="utf-8")):
        parser.error(f"got --docs {args.docs}; expected a page with the line {BEGIN}")
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what is not in the file of rows yet, print the tables, write them."""
    chosen = options(argv)
    rows = [json.loads(text) for text in chosen.rows.read_text().splitlines()] if chosen.rows.is_file() else []
    rows = [row for row in rows if row["full"] == chosen.full and "failure" not in row]
    todo = [(name, where) for where in chosen.deployments for name in chosen.networks]
    known = {(row["network"], row["deployment"]) for row in rows}
    with tqdm(
        [pair for pair in todo if pair not in known and not chosen.no_measure],
        file=sys.stderr,
        disable=None,
        unit="row",
    ) as bar:
        for name, where in bar:
            bar.set_description(f"{name} in {where}")
            rows.append(measure(name, where, chosen))
            with chosen.rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    rows = sorted(
        (row for row in rows if (row["network"], row["deployment"]) in todo), key=lambda row: _place(todo, row)
    )
    about = f"{describe()['cpu']}, threads: {os.environ.get('OMP_NUM_THREADS', 'as each framework takes')}"
    about += f"; {'full' if chosen.full else 'small'} size, batch 1, float32; medians of {chosen.clock} time with 95 %"
    faults = [f"WRONG: {fault}" for fault in map(wrong, rows) if fault]
    text = "\n\n".join([f"{about} intervals; time of the original over that of each", as_text(rows), *faults])
    print(text)
    if chosen.docs:
        before, _, rest = chosen.docs.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        chosen.docs.write_text(f"{before}{BEGIN}\n```text\n{text}\n```\n{END}{after}", encoding="utf-8")
    return 1 if faults else 0


def _place(todo: Sequence[tuple[str, str]], row: Mapping[str, Any]) -> int:
    return todo.index((row["network"], row["deployment"]))
