"""Measures one part; see the package's docstring."""

from __future__ import annotations

import argparse
from importlib import import_module

import tests.benchmarks.operator_overhead


def main() -> int:
    """Choose the part, which reads the other options."""
    parser = argparse.ArgumentParser(
        description=tests.benchmarks.operator_overhead.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Other options are those of the part: --backend NAME -- --help names them.",
    )
    parser.add_argument("--backend", choices=["pytorch", "jax_tensorflow"], default="pytorch")
    options, others = parser.parse_known_args()
    part = import_module(f"tests.benchmarks.operator_overhead.{options.backend}")
    return int(part.main([word for word in others if word != "--"]) or 0)


if __name__ == "__main__":
    raise SystemExit(main())
