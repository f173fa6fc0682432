"""Measures one part; see the package's docstring."""

from __future__ import annotations

import argparse
from importlib import import_module

import tests.benchmarks.operator_overhead
from tests.benchmarks.filling import in_turn


def main() -> int:
    """Choose the part, which reads the other options."""
    parser = argparse.ArgumentParser(
        description=tests.benchmarks.operator_overhead.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Other options are those of the part: --backend NAME -- --help names them.",
    )
    parts = ["pytorch", "jax_tensorflow"]
    parser.add_argument("--backend", choices=parts, help="only this part")
    options, others = parser.parse_known_args()
    if options.backend is None:
        return in_turn("tests.benchmarks.operator_overhead", "--backend", parts, *others)
    part = import_module(f"tests.benchmarks.operator_overhead.{options.backend}")
    return int(part.main([word for word in others if word != "--"]) or 0)


if __name__ == "__main__":
    raise SystemExit(main())
