"""``deep500 tools conformance``: how many cases of ONNX's own suite a backend passes, a user's own as well."""

from __future__ import annotations

import argparse
import collections
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from deep500.compare.conformance import workers
from deep500.compare.conformance.suite import ORDER, VERDICTS, Result, Suite
from deep500.errors import InputError
from deep500.progress import progress
from deep500.registry import BACKENDS, load_backend, require
from deep500.results.command import add_json
from deep500.results.files import to_json

SURROUNDINGS = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
"""Variables that the workers' frameworks read when they are imported."""


def add_command(parser: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Declare the options of ``conformance``; returns what executes it."""
    add = parser.add_argument
    add("backend", help="a name that 'deep500 list backends' shows, path.py or a module")
    add("--only", default="", metavar="REGEX", help="cases in whose name this is found (all)")
    add("--device", default="cpu", metavar="D", help="where they run: cpu, gpu, gpu:1")
    add("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes at a time (all cores)")
    add(
        "--out", type=Path, default=Path("results/conformance"), metavar="DIR", help="where a line per case and logs go"
    )
    add_json(parser)
    return _conformance


def _conformance(args: argparse.Namespace) -> int:
    if args.backend in BACKENDS:
        require(args.backend)
    else:
        load_backend(args.backend)  # a wrong name is said here, not in the log of a process
    with tempfile.TemporaryDirectory(prefix="deep500-onnx-") as home, progress("judging", quiet=args.json):
        os.environ.update(SURROUNDINGS, ONNX_HOME=home)  # the suite writes its real models there
        suite = Suite(args.device)
        cases = suite.select(args.only)
        if not cases:
            raise InputError(f"got --only {args.only!r}, found in no name of a case; expected part of one: test_relu")
        outcome = workers.run(suite, {args.backend: cases}, args.out, args.jobs)[args.backend]
    counts = collections.Counter(result.verdict for result in outcome.results)
    if args.json:
        lines = [result.line() for result in outcome.results]
        sys.stdout.write(to_json({"backend": args.backend, "counts": counts, "cases": lines}) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(args.backend, outcome.results)) + "\n")
    return 0 if counts["passed"] + counts["unsupported"] == len(cases) else 1


def _lines(backend: str, results: Sequence[Result]) -> list[str]:
    """A table by group, what failed and why, and the operators that are refused."""
    rows: list[tuple[str, ...]] = [("cases", *VERDICTS)]
    for group in (*ORDER, "all"):
        counts = collections.Counter(result.verdict for result in results if group in (result.group, "all"))
        if counts:
            rows.append((group, *(str(counts[verdict]) for verdict in VERDICTS)))
    lines = ["  ".join(cell.rjust(len(VERDICTS[3])) for cell in row) for row in rows]
    lines += [
        f"{result.verdict} {result.case}: {result.message[:160]}"
        for result in results
        if result.verdict not in ("passed", "unsupported")
    ]
    refused = sorted({result.operator for result in results if result.verdict == "unsupported" and result.operator})
    lines += [f"unsupported: {', '.join(refused)}"] if refused else []
    passed = sum(result.verdict == "passed" for result in results)
    return [*lines, f"{backend}: {passed} of {len(results)} cases passed"]
