"""``deep500 publish check RUN --references RUN ...``: does a run learn significantly faster than reference runs?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from deep500.errors import ResultsError
from deep500.results.command import add_check as add_rules_check
from deep500.results.convergence import FASTER, compare_convergence
from deep500.results.files import to_json


def add_check(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``check``; returns what executes it."""
    execute = add_rules_check(parser)
    about = (
        "does it learn significantly faster than these runs of its recipe? 1 if so: something differs that should not"
    )
    parser.add_argument("--references", type=Path, nargs="+", metavar="RUN", help=about)

    def judge(args: argparse.Namespace) -> int:
        if args.references is None:
            return execute(args)
        if args.folder is None:
            raise ResultsError(
                "got --references without a run; expected the one to judge: deep500 publish check RUN --references ..."
            )
        result = compare_convergence(args.folder, args.references)
        sys.stdout.write((to_json(asdict(result)) if args.json else str(result)) + "\n")
        return int(result.verdict == FASTER)

    return judge
