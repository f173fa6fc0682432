"""Launches that scatter, in runs that scatter: how often a difference is found that is none."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import mannwhitneyu

from deep500.measure.comparison import UNRESOLVED, verdict
from deep500.measure.launch_comparison import Floor, compare_launches
from deep500.measure.launches import over_launches
from deep500.measure.quantiles import quantile
from deep500.measure.sequential import FEWEST, anytime_p, depends
from deep500.measure.statistics import Interval
from tests.benchmarks.filling import say
from tests.benchmarks.launches import APART_SIMULATED, BY_PAIRS, DEPENDENT, FOUND, KNOWN, LOOKED

SAMPLES, NOISE = 500, 0.02  # of each launch
BAR = 0.06
"""Of false verdicts."""
EARLIER = 6
SPREADS, COUNTS, RUNS = (0.01, 0.02, 0.05), (1, 3, 12), (0.0, 0.01, 0.03)

Launches = list[np.ndarray]


def tables(trials: int) -> None:
    """False verdicts, power and coverage."""
    print(f"no effect: 'faster' or 'slower' in % of {trials}; {SAMPLES} samples of {NOISE:.0%} a launch")
    print("launches  spread  runs apart | two medians' intervals | launches alone | floor declared | earlier runs")
    cells: dict[tuple[int, float, float], dict[str, float]] = {}
    for cell in itertools.product(COUNTS, SPREADS, RUNS):
        cells[cell] = false_verdicts(*cell, trials)
        shares = "  ".join(f"{100 * share:5.1f}" for share in cells[cell].values())
        print("{:8d}  {:6.0%}  {:10.0%} | ".format(*cell) + shares, flush=True)
    many = [shares["alone"] for (count, _, run), shares in cells.items() if count == COUNTS[-1] and not run]
    few = [shares["alone"] for (count, _, run), shares in cells.items() if count < COUNTS[-1] and not run]
    say(APART_SIMULATED, f"{percent(many)} of {trials}; of fewer {percent(few)}", max(many) <= BAR and not any(few))
    known = [shares["earlier"] for shares in cells.values()]
    say(KNOWN, f"{percent([min(known), max(known)])} of {trials} in {len(known)} cells", max(known) <= BAR)
    print("2 % effect, launches 1 % apart, runs 0 % apart: found, coverage")
    for count in (12, 16, 24):
        found, covered, before = power(count, trials)
        print(f"{count:8d} | {100 * found:.1f} %, {100 * covered:.1f} % (two medians' intervals {100 * before:.1f} %)")
        if count == COUNTS[-1]:
            text = f"{percent([found])} of those compared of {trials}, coverage {percent([covered])}"
            say(FOUND, text, found >= 0.8 and covered >= 0.94)
    print("no effect, launches that depend on those before them (AR): 'faster' or 'slower', and compared at all")
    wrong = []
    for memory in (0.0, 0.3, 0.5, 0.9):
        pairs = [remembered(memory, count, trials) for count in (12, 16, 30)]
        wrong += [share for share, _ in pairs] if memory else []
        shown = ",".join(" {:.1f} of {:.0f} %".format(*(100 * share for share in pair)) for pair in pairs)
        print(f"{memory:8.1f} | 12, 16, 30 launches:{shown}", flush=True)
    say(DEPENDENT, f"{percent(wrong)} of {trials}", max(wrong) <= BAR)
    looked = [in_turns(memory, 0.0, trials) for memory in (0.0, 0.5, 0.9)]
    say(LOOKED, f"{percent(looked)} of {trials}, 24 pairs at most", max(looked) <= BAR)
    seen = [in_turns(0.0, effect, trials) for effect in (1.0, 1.5, 3.0)]
    say(BY_PAIRS, f"{percent(seen)} of {trials}, independent pairs", min(seen) >= 0.8)


def percent(shares: Sequence[float]) -> str:
    """``3.2, 4.5 %``."""
    return f"{', '.join(f'{100 * share:.1f}' for share in shares)} %"


def in_turns(memory: float, effect: float, trials: int, most: int = 24) -> float:
    """Share of comparisons in turns, of pairs with ``x[i] = memory x[i-1] + noise``, that end in a verdict."""
    rng, said_so = np.random.default_rng([3, int(10 * memory), int(10 * effect)]), 0
    for _ in range(trials):
        logs = [rng.standard_normal()]
        for noise in rng.standard_normal(most - 1):
            logs.append(memory * logs[-1] + math.sqrt(1 - memory**2) * noise)
        pairs = effect + np.array(logs)
        said_so += any(anytime_p(pairs[:n]) < 0.05 and not depends(pairs[:n]) for n in range(FEWEST, most + 1))
    return said_so / trials


def remembered(memory: float, count: int, trials: int) -> tuple[float, float]:
    """Shares of pairs of runs, of launches with ``x[i] = memory x[i-1] + noise``, that are unlike, and compared."""
    rng, wrong, compared = np.random.default_rng([2, count, int(10 * memory)]), 0, 0
    for _ in range(trials):
        sides = []
        for _ in range(2):
            levels = [rng.standard_normal() / math.sqrt(1 - memory**2)]
            for noise in rng.standard_normal(count - 1):
                levels.append(memory * levels[-1] + noise)
            sides.append(list(np.exp(0.02 * np.array(levels)[:, None] + NOISE * rng.standard_normal((count, 50)))))
        wrong += said((sides[0], sides[1]), None)
        compared += not compare_launches(*sides).reason
    return wrong / trials, compared / trials


def side(rng: np.random.Generator, count: int, spread: float, run: float, effect: float = 0.0) -> Launches:
    """The launches of one run."""
    levels = math.log1p(effect) + run * rng.standard_normal() + spread * rng.standard_normal(count)
    return list(np.exp(levels[:, None] + NOISE * rng.standard_normal((count, SAMPLES))))


def false_verdicts(count: int, spread: float, run: float, trials: int, seed: int = 0) -> dict[str, float]:
    """Shares of pairs of runs without a difference that are called unlike, by method."""
    rng = np.random.default_rng([seed, count, int(1000 * spread), int(1000 * run)])
    wrong = {"before": 0, "alone": 0, "declared": 0, "earlier": 0}
    for _ in range(trials):
        pair = side(rng, count, spread, run), side(rng, count, spread, run)
        wrong["before"] += of_two_intervals(*pair)
        wrong["alone"] += said(pair, None)
        # what is declared is how far processes lie apart: both kinds of noise
        wrong["declared"] += said(pair, Floor(math.hypot(spread, run)))
        wrong["earlier"] += said(pair, earlier(rng, count, spread, run))
    return {method: number / trials for method, number in wrong.items()}


def earlier(rng: np.random.Generator, count: int, spread: float, run: float) -> Floor:
    """What :data:`EARLIER` runs alike tell of the spread between medians of as many launches."""
    levels = run * rng.standard_normal(EARLIER) + np.median(spread * rng.standard_normal((EARLIER, count)), axis=1)
    return Floor(float(np.std(levels, ddof=1)), EARLIER - 1, "between earlier runs")


def said(pair: tuple[Launches, Launches], floor: Floor | None) -> bool:
    """Whether there is a verdict."""
    found = compare_launches(*pair, floor)
    return not found.reason and verdict(found.ratio, found.p, 0.0, 0.0) != UNRESOLVED


def power(count: int, trials: int, effect: float = 0.02, spread: float = 0.01) -> tuple[float, float, float]:
    """How often an effect is found and covered where pairs are compared, and how often two intervals found it."""
    rng, found, covered, before, compared = np.random.default_rng([1, count]), 0, 0, 0, 0
    for _ in range(trials):
        pair = side(rng, count, spread, 0.0), side(rng, count, spread, 0.0, effect)
        ratio = compare_launches(*pair).ratio
        found += said(pair, None)
        compared += ratio.low is not None
        covered += ratio.low is not None and ratio.high is not None and ratio.low <= 1 + effect <= ratio.high
        before += of_two_intervals(*pair)
    return found / compared, covered / compared, before / trials


def of_two_intervals(first: Launches, second: Launches) -> bool:
    """What was done before: two medians' intervals of 97.5 %, of launches from seven on, else of all samples."""
    sides = [over_launches(launches, level=0.975) for launches in (first, second)]
    few = len(first) < 7
    if few and any(estimate.differ for estimate in sides):
        return False
    values = [np.concatenate(s) if few else np.array([np.median(one) for one in s]) for s in (first, second)]
    a, b = (quantile(value, level=0.975, independent=True) for value in values)
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    ratio = Interval(b.value / a.value, b.low / a.high, b.high / a.low, a.n)
    return verdict(ratio, float(mannwhitneyu(*values).pvalue), 0.0, 0.0) != UNRESOLVED
