"""Is what is called a result one? Coverage of intervals where one is given, and how often one is, on twelve processes.

``python -m tests.benchmarks.standing [--trials N] [--sizes N ...] [--only PROCESS ...]``. Every series is judged as
``measure`` and ``stats.json`` judge it: warm-up cut, steady state, dependence. A cell is ``share given: coverage``;
where few are given, the 95 % interval of the coverage (Clopper and Pearson) stands beside it. A random walk and a drift
have no quantile, so there every interval is a false one. In "two states" with n 100 one series in five never leaves its
state: it *is* an independent series of another level, and whoever gives those an interval gives one here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.stats import binomtest

from deep500.measure.quantiles import quantile
from deep500.measure.steady import find_steady_state
from tests.benchmarks.filling import say, say_ratio
from tests.measure.processes import PROCESSES, WITHOUT_TRUTH, truth

FIGURES = {
    "coverage of what is called a result, 12 processes, 6 sizes, 3 quantiles, 2 levels": (
        "at least nominal - 3 points in every cell in which more than 5 % are given one"
    ),
    "share of random walks, drifts and steps that are called a result": "at most 5 % from n 100 on",
    "share of independent series that are": "at least 85 % at n 100, 95 % from n 300 on; AR(.5) at n 300: 90 %",
    "milliseconds of a judgement at n 1000": "at most 5",
}
COVERAGE, FALSE, INDEPENDENT, MILLISECONDS = FIGURES
SIZES, QUANTILES, LEVELS = (10, 30, 100, 300, 1000, 3000), (0.5, 0.9, 0.99), (0.95, 0.99)
INDEPENDENT_PROCESSES = ("lognormal", "Pareto 1.5", "bimodal")
ASKED = {"n 100": 0.85, "from n 300 on": 0.95, "AR(.5), n 300": 0.9}
"""Shares of series that must be given an interval of the median."""
SHORTFALL, HARDLY_ANY, FEW = 0.03, 0.05, 0.2
"""Points that coverage may miss; the share up to which a cell counts as empty; and up to which its error is printed."""


@dataclass
class Cell:
    """Series of one process and size: how many there were, how many got an interval, how many of these held."""

    level: float
    trials: int = 0
    given: int = 0
    covered: int = 0

    def add(self, low: float | None, high: float | None, value: float) -> None:
        """Count one more series."""
        self.trials += 1
        if low is not None and high is not None:
            self.given += 1
            self.covered += low <= value <= high

    @property
    def share(self) -> float:
        """Of series with an interval."""
        return self.given / self.trials

    @property
    def holds(self) -> bool:
        """Whether coverage is as promised, or may be where few intervals were given, or hardly any was."""
        if self.share <= HARDLY_ANY:
            return True
        covered = self.error[1] if self.share <= FEW else self.covered / self.given
        return covered >= self.level - SHORTFALL

    @property
    def error(self) -> tuple[float, float]:
        """The 95 % interval of the coverage."""
        found = binomtest(self.covered, self.given).proportion_ci()
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        if not self.given:
            return "none given"
        text = f"{100 * self.share:.3g} %: {self.covered / self.given:.3f}"
        if self.share <= FEW:
            text += " [{:.2f}, {:.2f}]".format(*self.error)
        return text if self.holds else f"{text} !"


@dataclass
class Row:
    """All cells of one process and size, and seconds of the processor per judgement of all cells."""

    process: str
    n: int
    cells: dict[tuple[float, float], Cell] = field(default_factory=dict)
    seconds: float = 0.0


def row(process: str, n: int, trials: int, seed: int = 0, quantiles: Sequence[float] = QUANTILES) -> Row:
    """Draw and judge ``trials`` series."""
    rng, found = np.random.default_rng((seed, n, list(PROCESSES).index(process))), Row(process, n)
    found.cells = {(q, level): Cell(level) for q in quantiles for level in LEVELS}
    for _ in range(trials):
        samples = PROCESSES[process](rng, n)
        begin = time.process_time()
        steady = find_steady_state(samples)
        kept = samples[steady.cut :]
        estimates = {key: quantile(kept, *key, steady=steady) for key in found.cells}
        found.seconds += (time.process_time() - begin) / trials
        for (q, level), estimate in estimates.items():
            found.cells[q, level].add(estimate.low, estimate.high, truth(process, q))
    return found


def main() -> int:
    """Print the table and its figures; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.standing", description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="series of each process and size (default: 1000)")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), metavar="N")
    parser.add_argument("--only", nargs="+", default=list(PROCESSES), choices=list(PROCESSES), metavar="PROCESS")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    heads = [f"q {q:g}, {100 * level:g} %" for q in QUANTILES for level in LEVELS]
    print(f"| process | n | {' | '.join(heads)} | ms |\n|{'---|' * (len(heads) + 3)}", flush=True)
    rows = []
    for process in asked.only:
        for n in asked.sizes:
            rows.append(row(process, n, asked.trials, asked.seed))
            cells = " | ".join(map(str, rows[-1].cells.values()))
            print(f"| {process} | {n} | {cells} | {1e3 * rows[-1].seconds:.2g} |", flush=True)
    return 0 if say_figures(rows, asked.trials) else 1


def say_figures(rows: Sequence[Row], trials: int) -> bool:
    """Those of which there are rows; whether every bar is met."""
    honest = [found for found in rows if found.process not in WITHOUT_TRUTH]
    held = {
        f"{found.process}, n {found.n}, q {q:g} at {level:.0%}": cell.holds
        for found in honest
        for (q, level), cell in found.cells.items()
    }
    wrong = [name for name, holds in held.items() if not holds]
    text = f"{len(wrong)} of {len(held)} cells of {trials} miss it"
    text += f": {'; '.join(wrong[:6])}{' ...' * (len(wrong) > 6)}" if wrong else ""
    met = not held or say(COVERAGE, text, not wrong)
    false = {f"{r.process}, n {r.n}": r for r in rows if r.process in WITHOUT_TRUTH and r.n >= 100}
    most = {name: max(cell.share for cell in found.cells.values()) for name, found in false.items()}
    met &= not most or say_ratio(FALSE, most, at_most=0.05)
    least: dict[str, float] = {}
    for found in honest:
        if group := asked_of(found.process, found.n):
            least[group] = min(least.get(group, 1.0), *(found.cells[0.5, level].share for level in LEVELS))
    text = ", ".join(f"{group}: {share:.1%}" for group, share in least.items())
    met &= not least or say(INDEPENDENT, text, all(share >= ASKED[group] for group, share in least.items()))
    took = {found.process: 1e3 * found.seconds for found in rows if found.n == 1000}
    return (not took or say_ratio(MILLISECONDS, took, at_most=5, unit="ms")) and met


def asked_of(process: str, n: int) -> str:
    """The row of :data:`ASKED` that a process and size belong to; empty if to none."""
    if process == "AR(.5)":
        return "AR(.5), n 300" if n == 300 else ""
    return ("n 100" if n == 100 else "from n 300 on" if n >= 300 else "") if process in INDEPENDENT_PROCESSES else ""


if __name__ == "__main__":
    sys.exit(main())
