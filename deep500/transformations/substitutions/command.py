"""``deep500 optimize``: an ONNX file in, a faster one that is proved and checked to compute the same out."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

from deep500.errors import InputError, OutOfMemory
from deep500.networks.network import Network
from deep500.operators.registry import load_plugins
from deep500.progress import progress, stage, still
from deep500.transformations.substitutions.cost import deployment_names
from deep500.transformations.substitutions.cost.clock import cpu_seconds
from deep500.transformations.substitutions.delivery import Source, deliver
from deep500.transformations.substitutions.file_times import write_fastest
from deep500.transformations.substitutions.operators.own import load_activation
from deep500.transformations.substitutions.optimize import optimize_network, prepare, replay_history
from deep500.transformations.substitutions.report import save_page
from deep500.transformations.substitutions.result import History

FILES = 0.2
"""Share of the budget for the result as a file, beside that which was given; what the search leaves comes to it."""
STOPPED = 5.0
"""Seconds for that where the user asked for an end."""


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``optimize``; returns what executes it."""
    add = parser.add_argument
    add("model", type=Path, help="an ONNX file")
    add("-o", "--out", type=Path, required=True, metavar="FILE", help="where the optimized model goes")
    add(
        "--backend",
        default="onnxruntime",
        help=f"where it shall run: {', '.join(deployment_names())}, ... (onnxruntime)",
    )
    add("--budget", type=float, default=30.0, metavar="S", help="seconds of CPU time (30); 0: search nothing")
    add("--keep", action="store_true", help="interrupted once: end with the best so far instead of nothing")
    add("--alpha", type=float, default=1.05, metavar="A", help="look again at what costs A times the best (1.05)")
    add("--training", action="store_true", help="keep parameters as they are: the model will be trained")
    add("--no-measure", action="store_true", help="price by formula: the same result on every machine")
    add("--size", action="append", default=[], metavar="NAME=N", help="a symbolic size for which times are taken")
    add("--seed", type=int, default=0, metavar="S", help="of the inputs for timing and checking (0)")
    add_rules(parser)
    add("--database", type=Path, metavar="FILE", help="measured times (the user's cache)")
    add("--fresh-prices", action="store_true", help="measure operators anew, whatever is known of them")
    add("--history", type=Path, metavar="FILE", help="write what was done, for --replay")
    add("--report", type=Path, metavar="FILE", help="write a page: times, rules, both graphs side by side")
    add("--replay", type=Path, metavar="FILE", help="do what a history says instead of searching")
    add("--opset", type=int, metavar="N", help="version of ONNX's operators in the result (the model's, if it allows)")
    add("--ir-version", type=int, metavar="N", help="version of the file format (the model's, if that goes)")
    add("--custom-op", action="append", default=[], metavar="PATH", help="a plugin of the model's custom operators")
    add("--quiet", action="store_true", help="no line about progress")
    add("--json", action="store_true", help="print one JSON object and nothing else")
    return execute


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say which rules there are."""
    add = parser.add_argument
    add(
        "--rules",
        action="append",
        default=[],
        metavar="FILE",
        help="a rule file, or rules of your own (.txt), proved before they are used; 'shipped': those that come with "
        "Deep500, which are taken if none are named; may be given several times",
    )
    add("--unproved", action="store_true", help="apply rules without a proof too, unless numbers refute them")
    add("--operator", action="append", default=[], metavar="FILE.py:NAME", help="an activation of your own")


def execute(args: argparse.Namespace) -> int:
    """Optimize or replay, write the model, report the result.

    Raises:
        OutOfMemory: the model alone does not fit.
    """
    try:
        return _execute(args)
    except MemoryError as error:
        if isinstance(error, OutOfMemory):
            raise
        size = args.model.stat().st_size if args.model.is_file() else 0
        raise OutOfMemory(
            f"got {args.model}, {size} bytes, and no memory for it ({error or 'MemoryError'}); expected a model that "
            "fits: take a machine with more"
        ) from error


def _execute(args: argparse.Namespace) -> int:
    load_plugins([str(Path(plugin).expanduser().resolve()) for plugin in args.custom_op])
    for activation in args.operator:
        load_activation(activation)
    if args.replay is not None and args.history is not None:
        raise InputError("got --replay and --history; expected one of them: what is replayed has its history already")
    if args.replay is not None and args.report is not None:
        raise InputError("got --replay and --report; expected one of them: a replay measures nothing to report")
    for path in filter(None, (args.out, args.history, args.report)):
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(f"got {path}; expected the name of a file in a folder that exists: make the folder first")
    network = Network.from_onnx(args.model)
    source = Source.read(args.model, network, _sizes(args.size))

    def write(result: Network, history: History, path: Path = args.out) -> str:
        versions = {"opset": args.opset, "ir_version": args.ir_version}
        return deliver(result, history, source, path, **versions, rules=args.rules or None)

    if args.replay is not None:
        return _replay(args, network, write)
    files = FILES if args.budget > 0 and not args.no_measure else 0.0
    if files:
        prepare(args.backend)
    until = cpu_seconds() + args.budget
    shown = progress("search", quiet=args.quiet or args.json, at_once=True)
    with shown, still(), _stopping(args.keep) as stop:
        optimized = optimize_network(
            network,
            args.backend,
            (1 - files) * args.budget,
            training=args.training,
            alpha=args.alpha,
            rules=args.rules or None,
            unproved=args.unproved,
            database=args.database,
            measure=not args.no_measure,
            seed=args.seed,
            sizes=_sizes(args.size),
            progress=partial(_show, args.budget),
            fresh_prices=args.fresh_prices,
            stop=stop,
        )
    plain = args.history is None and args.opset is None and args.ir_version is None and not args.training
    others = bool(plain and files and not stop())
    left = STOPPED if stop() else max(until - cpu_seconds(), files * args.budget)
    optimized, words = write_fastest(optimized, source, args.out, write, left, others, args.seed)
    if args.report is not None:
        save_page(optimized, args.report, args.rules or None)
    if args.history is not None:
        optimized.history.save(args.history)
    summary = (
        json.dumps({"files": [str(args.out)], "found": f"{optimized}\n{words}"})
        if args.json
        else f"{optimized}\n{words}\n{args.out}"
    )
    sys.stdout.write(summary + "\n")
    return 0


def _replay(args: argparse.Namespace, network: Network, write: Callable[[Network, History], str]) -> int:
    history = History.load(args.replay)
    result = replay_history(network, history, args.rules or None, args.unproved)
    write(result, history)
    sys.stdout.write(f"{len(network.nodes)} -> {len(result.nodes)} operators, as {args.replay} says\n")
    if history.unproved:
        sys.stdout.write(f"NOT PROVED: rules {', '.join(history.unproved)} were applied without a proof\n")
    return 0


def _sizes(pairs: list[str]) -> dict[str, int]:
    sizes = {}
    for word in pairs:
        name, _, number = word.partition("=")
        if not (name and number.isdigit() and int(number) > 0):
            raise InputError(f"got --size {word!r}; expected NAME=N with a whole number above 0: --size N=8")
        sizes[name] = int(number)
    return sizes


@contextlib.contextmanager
def _stopping(keep: bool) -> Iterator[Callable[[], bool]]:
    """Whether the user asked for an end: with ``keep`` the first Ctrl-C or SIGTERM does, the second one is as ever."""
    asked = threading.Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(signum: int, frame: FrameType | None) -> None:
        asked.set()
        for number, handler in before.items():
            signal.signal(number, handler)

    here = keep and threading.current_thread() is threading.main_thread()  # only there signals have handlers
    for number in before if here else ():
        signal.signal(number, ask)
    try:
        yield asked.is_set
    except KeyboardInterrupt as interrupt:
        words = "stopped a second time" if asked.is_set() else "with --keep the best so far would have been written"
        raise KeyboardInterrupt(words) from interrupt
    finally:
        for number, handler in before.items() if here else ():
            signal.signal(number, handler)


def _show(budget: float, seconds: float, best: float, first: float, what: str) -> None:
    """Say on the line how far a search is."""
    whole = f" of {budget:g}" if math.isfinite(budget) else ""
    gained = f"predicted {1e3 * first:.3g} -> {1e3 * best:.3g} ms, " if first else ""
    stage(f"{seconds:.0f}{whole} s, {gained}{what}")
