"""The command ``deep500 measure-op``: its options, and from words to :func:`compare_operator`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

from deep500.compare.effort import add_effort, comma_list, effort_of, print_result
from deep500.compare.operators import compare_operator
from deep500.progress import progress


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
    add("--seed", type=int, default=0, metavar="S", help="of the inputs' values (0)")
    add_effort(parser, "passes per block (0.2 s of them)", "one round of one pass: does it work?")
    return execute


def execute(args: argparse.Namespace) -> int:
    """Compare, print the result, return the exit code: 0 if all compute the same and the gradient is right, else 1."""
    effort = effort_of(args)
    with progress(f"measuring {args.op}", quiet=args.quiet or args.json, at_once=True):
        result = compare_operator(
            args.op,
            [word for word in args.words if "=" not in word],
            dict(map(_attribute, (word for word in args.words if "=" in word))),
            frameworks=None if args.backend is None else comma_list(args.backend),
            seed=args.seed,
            custom_ops=args.custom_op,
            **effort,
        )
    return print_result(args, result)


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
