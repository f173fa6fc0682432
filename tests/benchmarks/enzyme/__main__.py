"""Measures one part; see the package's docstring."""

from __future__ import annotations

import argparse
from importlib import import_module

import tests.benchmarks.enzyme
from tests.benchmarks.filling import in_turn


def main() -> int:
    """Choose the part, which reads the other options."""
    parser = argparse.ArgumentParser(
        description=tests.benchmarks.enzyme.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Other options are those of the part: --part NAME -- --help names them.",
    )
    parts = ["gradients", "openmp"]
    parser.add_argument("--part", choices=parts, help="only this one")
    options, others = parser.parse_known_args()
    if options.part is None:
        return in_turn("tests.benchmarks.enzyme", "--part", parts, *others)
    part = import_module(f"tests.benchmarks.enzyme.{options.part}")
    return int(part.main([word for word in others if word != "--"]) or 0)


if __name__ == "__main__":
    raise SystemExit(main())
