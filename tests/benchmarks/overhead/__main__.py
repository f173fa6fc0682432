"""Measures one backend; see the package's docstring."""

from __future__ import annotations

import argparse
from importlib import import_module

import tests.benchmarks.overhead
from tests.benchmarks.filling import in_turn
from tests.benchmarks.turns import say_all

BATCHES = {"pytorch": "1,8,64", "jax": "8,64", "tensorflow": "8,64", "onnxruntime": "1,8"}


def main() -> int:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(
        description=tests.benchmarks.overhead.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=BATCHES, help="only this one")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--batches", help="sizes, separated by commas")
    parser.add_argument("--quick", action="store_true", help="few rounds, small batches: does it run, not how fast")
    options = parser.parse_args()
    if options.backend is None:
        quick = ["--quick"] * options.quick
        return in_turn("tests.benchmarks.overhead", "--backend", list(BATCHES), "--rounds", f"{options.rounds}", *quick)
    sizes = [int(size) for size in (options.batches or BATCHES[options.backend]).split(",")]
    if options.quick:
        sizes = [size for size in sizes if size <= 8]
    subject = import_module(f"tests.benchmarks.overhead.{options.backend}")
    print(f"ResNet-20, 272,474 parameters, {subject.version()}, 1 thread")
    return 0 if say_all(subject.comparisons(sizes), 8 if options.quick else options.rounds) else 1


if __name__ == "__main__":
    raise SystemExit(main())
