"""Options that ``deep500 compare`` and ``deep500 measure-op`` share, and how both print their results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from deep500.compare.frameworks import ROUNDS, silent
from deep500.compare.result import ComparisonResult
from deep500.errors import InputError
from deep500.progress import above
from deep500.results.files import to_json

LEAST = {"repeat": 0, "rounds": 0, "steps": 1, "threads": 1, "seed": 0}


def add_effort(parser: argparse.ArgumentParser, steps: str, dry_run: str) -> None:
    """Declare the options; ``steps`` and ``dry_run`` say in words what these are of."""
    add = parser.add_argument
    add("--rounds", type=int, default=ROUNDS, metavar="N", help=f"timed blocks per backend ({ROUNDS}); 0: only check")
    add("--steps", type=int, metavar="N", help=steps)
    add("--threads", type=int, metavar="N", help="threads and cores of each process ($OMP_NUM_THREADS, else all)")
    add("--custom-op", action="append", default=[], metavar="PATH", help="a plugin with operators of your own")
    add("--out", type=Path, default=Path("results"), metavar="DIR", help="where results go (./results)")
    add("--dry-run", action="store_true", help=dry_run)
    add("--quiet", action="store_true", help="do not say what is being done")
    add("--json", action="store_true", help="print the result as one JSON object and nothing else")


def effort_of(args: argparse.Namespace) -> dict[str, Any]:
    """The options as keywords of :class:`~deep500.compare.frameworks.Effort`.

    Raises:
        InputError: a number is too small.
    """
    for name, least in LEAST.items():
        value = getattr(args, name, None)
        if value is not None and value < least:
            raise InputError(f"got --{name} {value}; expected at least {least}: give a larger number")
    say = silent if args.quiet or args.json else _say
    return {name: getattr(args, name) for name in ("rounds", "steps", "threads", "out", "dry_run")} | {"say": say}


def print_result(args: argparse.Namespace, result: ComparisonResult) -> int:
    """Print a comparison as text or JSON; returns its exit code."""
    text = to_json(result.as_dict()) if args.json else f"{result}\n\nresults: {result.path} (comparison.html)"
    sys.stdout.write(f"{text}\n")
    return result.exit_code


def comma_list(text: str) -> list[str]:
    """Words between commas.

    Example:
        >>> comma_list("pytorch, jax,")
        ['pytorch', 'jax']
    """
    return [word.strip() for word in text.split(",") if word.strip()]


def _say(text: str) -> None:
    above(text, sys.stderr)
