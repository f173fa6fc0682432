"""Prints every acceptance figure on a line of its own; returns 1 if one was missed.

Figures are independent of each other. All draws have fixed seeds. Timings (7, 11, 17) hold on a machine that does
nothing else; everything that was not measured says why.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings

from tests.benchmarks.filling import say, say_not
from tests.benchmarks.measuring import comparing, frameworks, hardware, recording, records, rules, sampling
from tests.benchmarks.measuring.outcome import FIGURES, Options, Outcome

MODULES = (comparing, frameworks, hardware, records, recording, rules, sampling)


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.measuring", description=__doc__)
    parser.add_argument("--only", type=int, nargs="+", default=sorted(FIGURES), choices=sorted(FIGURES), metavar="N")
    parser.add_argument("--trials", type=int, default=2000, help="of each simulation (default: 2000)")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    options = Options(asked.trials, asked.seed)
    warnings.simplefilter("ignore")  # the tests make errors of them
    missed = 0
    for number, figure in sorted(FIGURES.items()):
        if number not in asked.only:
            continue
        begin = time.perf_counter()
        try:
            outcome = figure.measure(options)
        except Exception as error:  # noqa: BLE001 - one figure that breaks must not take the others with it
            outcome = Outcome("nothing", False, f"{type(error).__name__}: {str(error).splitlines()[0][:200]}")
        missed += outcome.met is False
        seconds = time.perf_counter() - begin
        print(
            f"{number:2d} {figure.what}: {outcome.measured} | bar: {figure.bar} | {outcome.word} [{seconds:.0f} s]",
            flush=True,
        )
        if outcome.met is None:
            say_not(figure.name, f"{outcome.measured}: {outcome.reason}")
        else:
            say(figure.name, outcome.measured + (f" ({outcome.reason})" if outcome.reason else ""), outcome.met)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
