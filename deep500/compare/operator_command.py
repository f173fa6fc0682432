"""The command ``deep500 measure-op``: its options, and from words to :func:`compare_operator`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deep500.compare.frameworks import ROUNDS, silent
from deep500.compare.operators import compare_operator
from deep500.errors import InputError
from deep500.progress import above, progress
from deep500.results.files import to_json


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``measure-op``; returns what executes it."""
    add = parser.add_argument
    add("op", help="an operator of ONNX (MatMul, Conv, ...), or a custom one that 'deep500 list operators' shows")
    add(
        "words",
        nargs="+",
        metavar="INPUT",
        help="shapes of its inputs, such as 8x3x32x32 or 8:int64, or values such as '[4, 6]'; then attributes, such as "
        "pads=1,1,1,1",
    )
    add("--backend", metavar="A,B", help="backends to compare (all that are installed and run it)")
    add("--rounds", type=int, default=ROUNDS, metavar="N", help=f"timed blocks per backend ({ROUNDS}); 0: only check")
    add("--steps", type=int, metavar="N", help="passes per block (0.2 s of them)")
    add("--threads", type=int, metavar="N", help="threads and cores of each process ($OMP_NUM_THREADS, else all)")
    add("--seed", type=int, default=0, metavar="S", help="of the inputs' values (0)")
    add("--custom-op", action="append", default=[], metavar="PATH", help="a plugin with operators of your own")
    add("--out", type=Path, default=Path("results"), metavar="DIR", help="where results go (./results)")
    add("--dry-run", action="store_true", help="one round of one pass: does it work?")
    add("--quiet", action="store_true", help="do not say what is being done")
    add("--json", action="store_true", help="print the result as one JSON object and nothing else")
    return execute


def execute(args: argparse.Namespace) -> int:
    """Compare, print the result, return the exit code: 0 if all compute the same and the gradient is right, else 1."""
    for name, least in (("rounds", 0), ("steps", 1), ("threads", 1), ("seed", 0)):
        value = getattr(args, name)
        if value is not None and value < least:
            raise InputError(f"got --{name} {value}; expected at least {least}: give a larger number")
    say = silent if args.quiet or args.json else lambda text: above(text, sys.stderr)
    with progress(f"measuring {args.op}", quiet=say is silent, at_once=True):
        result = compare_operator(
            args.op,
            [word for word in args.words if "=" not in word],
            dict(map(_attribute, (word for word in args.words if "=" in word))),
            frameworks=None if args.backend is None else [name.strip() for name in args.backend.split(",") if name],
            rounds=args.rounds,
            steps=args.steps,
            threads=args.threads,
            seed=args.seed,
            custom_ops=args.custom_op,
            out=args.out,
            dry_run=args.dry_run,
            say=say,
        )
    text = to_json(result.as_dict()) if args.json else f"{result}\n\nresults: {result.path} (comparison.html)"
    sys.stdout.write(f"{text}\n")
    return result.exit_code


def _attribute(word: str) -> tuple[str, Any]:
    """A name and its value: numbers, lists of them, else text.

    Example:
        >>> _attribute("pads=1,1,1,1"), _attribute("alpha=0.5"), _attribute("mode=constant")
        (('pads', [1, 1, 1, 1]), ('alpha', 0.5), ('mode', 'constant'))
    """
    name, _, text = word.partition("=")
    try:
        return name, json.loads(f"[{text}]" if "," in text and not text.startswith("[") else text)
    except ValueError:
        return name, text
