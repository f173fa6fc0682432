"""The command ``deep500 bits``: have two runs, models or backends the same bits, and if not, which operator is it?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from deep500.compare.bits import BitsVerdict, compare_networks, compare_replays
from deep500.compare.bits_page import write_page
from deep500.compare.replays import Replay
from deep500.compare.subject import Candidate
from deep500.errors import InputError
from deep500.networks.network import Network
from deep500.operators.registry import load_plugins
from deep500.progress import progress
from deep500.registry import load_backend
from deep500.results.command import add_json
from deep500.results.files import to_json
from deep500.results.record import MANIFEST

DIFFERENT = 1


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``bits``; returns what executes it."""
    add = parser.add_argument
    add("sides", nargs="+", type=Path, metavar="RUN", help="two results folders or two ONNX files; one with --backend")
    add("--backend", metavar="A,B", help="compare these two; of ONNX files: the one that runs them (reference)")
    add("--steps", type=int, metavar="N", help="training steps at most (all)")
    add("--seed", type=int, metavar="S", help="of runs: one of theirs (the first); of models: that of the inputs (0)")
    add("--run", action="store_true", help="of runs: train again by their recipes, which runs code from the folders")
    add("--custom-op", action="append", default=[], metavar="PATH", help="ONNX file: a plugin of its custom operators")
    add("-o", "--out", type=Path, metavar="DIR", help="write a page into this folder")
    add_json(parser)
    return _bits


def _bits(args: argparse.Namespace) -> int:
    backends = args.backend.split(",") if args.backend else []
    if len(args.sides) > 2 or len(backends) > 2 or max(len(args.sides), len(backends)) < 2:
        raise InputError(
            f"got {len(args.sides)} sides and {len(backends)} backends; expected two of either: deep500 bits --run "
            "RUN RUN, or deep500 bits --run RUN --backend A,B"
        )
    if args.steps is not None and args.steps < 1:
        raise InputError(f"got --steps {args.steps}; expected at least 1")
    of_runs = (args.sides[0] / MANIFEST).is_file()
    if of_runs and not args.run:
        raise InputError(
            "got runs, which bits trains again by the recipe files in their folders; expected --run, if you trust who "
            "made them"
        )
    with progress("comparing bits", quiet=args.json):
        verdict = _of_runs(args, backends) if of_runs else _of_models(args, backends)
    sys.stdout.write((to_json(verdict.as_dict()) if args.json else str(verdict)) + "\n")
    if args.out is not None:
        path = write_page(verdict, args.out, _sides(args.sides, backends))
        (sys.stderr if args.json else sys.stdout).write(f"page: {path}\n")
    return DIFFERENT if verdict.parting is not None else 0


def _sides(places: list[Path], backends: list[str]) -> str:
    """Say what was compared: names of two, or one on two backends."""
    names = " and ".join(path.name for path in places)
    return f"{names}{' on ' + ' and '.join(backends) if backends else ''}"


def _of_runs(args: argparse.Namespace, backends: list[str]) -> BitsVerdict:
    chosen: list[str | None] = [*backends] if backends else [None, None]
    folders, names = (args.sides * 2)[:2], (chosen * 2)[:2]
    first, second = (Replay.load(folder, name, args.seed) for folder, name in zip(folders, names, strict=True))
    return compare_replays(first, second, args.steps)


def _of_models(args: argparse.Namespace, backends: list[str]) -> BitsVerdict:
    load_plugins([str(path) for path in args.custom_op])
    networks = [Network.from_onnx(path) for path in (args.sides * 2)[:2]]
    names = ((backends or ["reference"]) * 2)[:2]
    candidates = [Candidate(name, load_backend(name).from_model) for name in names]
    return compare_networks(networks, candidates, seed=args.seed or 0)
