"""Figures 1, 2, 3 and 6: coverage of intervals, stopping, the warm-up cut. Truth is known, since the test makes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm, t

from deep500.measure import Budget, Plan, Target, measure
from deep500.measure.dependence import autocorrelation_time
from deep500.measure.quantiles import quantile
from deep500.measure.sampling import Judge, next_size
from deep500.measure.steady import find_steady_state
from tests.benchmarks.measuring.outcome import Options, Outcome, figure, ratio
from tests.measure.test_quantiles import autoregressive
from tests.measure.test_sampling import FakeClock
from tests.measure.test_steady import SHAPES, N, noisy

Draw = Callable[[np.random.Generator, int], np.ndarray]


@dataclass(frozen=True)
class Distribution:
    """How to draw from it, and its quantile function and density."""

    draw: Draw
    ppf: Callable[[float], float]
    pdf: Callable[[float], float]


def _bimodal() -> Distribution:
    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        return np.where(rng.random(n) < 0.6, rng.normal(1.0, 0.05, n), rng.normal(1.5, 0.05, n))

    def cdf(x: float) -> float:
        return float(0.6 * norm.cdf(x, 1.0, 0.05) + 0.4 * norm.cdf(x, 1.5, 0.05))

    return Distribution(
        draw,
        lambda p: float(brentq(lambda x: cdf(x) - p, 0.0, 3.0)),
        lambda x: float(0.6 * norm.pdf(x, 1.0, 0.05) + 0.4 * norm.pdf(x, 1.5, 0.05)),
    )


# fmt: off
DISTRIBUTIONS = {
    "lognormal": Distribution(lambda rng, n: rng.lognormal(0, 1, n), lambda p: math.exp(norm.ppf(p)),
                              lambda x: float(norm.pdf(math.log(x)) / x)),
    "Pareto": Distribution(lambda rng, n: rng.pareto(1.5, n) + 1, lambda p: (1 - p) ** (-1 / 1.5),
                           lambda x: 1.5 * x**-2.5),
    "bimodal": _bimodal(),
    "normal": Distribution(lambda rng, n: rng.normal(0, 1, n), lambda p: float(norm.ppf(p)),
                           lambda x: float(norm.pdf(x))),
}
# fmt: on
SIZES = [(0.5, 10), (0.5, 30), (0.5, 100), (0.5, 1000), (0.9, 50), (0.9, 100), (0.9, 1000), (0.99, 400), (0.99, 2000)]


@figure(
    1,
    "coverage of rank intervals, 4 distributions, 9 sizes, 95 and 99 %",
    ">= nominal - 2 points; mean width <= 1.25 of the asymptotic one at n 1000",
)
def coverage(options: Options) -> Outcome:
    """Every cell by itself; cells too small for their level have no interval, which is the right answer."""
    rng = np.random.default_rng(options.seed + 1)
    short, widths, refused, where = math.inf, [], 0, ""
    cells = [(name, q, n, level) for name in DISTRIBUTIONS for q, n in SIZES for level in (0.95, 0.99)]
    for name, q, n, level in options.each(cells, "figure 1"):
        distribution = DISTRIBUTIONS[name]
        estimates = [quantile(distribution.draw(rng, n), q, level, independent=True) for _ in range(options.trials)]
        if estimates[0].low is None:
            refused += 1
            continue
        truth = distribution.ppf(q)
        points = 100 * (np.mean([e.low <= truth <= e.high for e in estimates]) - level)
        if points < short:
            short, where = points, f"{name}, q {q}, n {n}, {level:.0%}"
        if n == 1000:
            oracle = 2 * norm.ppf((1 + level) / 2) * math.sqrt(q * (1 - q) / n) / distribution.pdf(truth)
            widths.append(float(np.mean([e.high - e.low for e in estimates])) / oracle)
    text = (
        f"worst {short:+.1f} points ({where}), width at most {max(widths):.2f} of the asymptotic one; "
        f"{refused} of {len(cells)} cells refused as too small"
    )
    return Outcome(text, short >= -2 and max(widths) <= 1.25)


@figure(
    2,
    "coverage on AR(1) with spikes, phi .5 .7 .9, n 300 600 2000",
    ">= nominal - 3 points, >= 90 % are given one; the textbook interval must fail at phi .7",
)
def dependent(options: Options) -> Outcome:
    """Both intervals on the same series; where there is too little information an interval is refused and counted."""
    rng, parts, good = np.random.default_rng(options.seed + 2), [], True
    truth = np.median(autoregressive(rng, 2_000_000, 0.0))
    for phi, n in ((0.5, 300), (0.7, 600), (0.9, 2000)):
        series = [autoregressive(rng, n, phi) for _ in range(options.trials)]
        shares, naive = [], math.nan
        for level in (0.95, 0.99):
            estimates = [quantile(x, level=level) for x in options.each(series, f"figure 2, {phi}")]
            given = [e for e in estimates if e.low is not None]
            shares.append(float(np.mean([e.low <= truth <= e.high for e in given])))
            good &= shares[-1] >= level - 0.03 and len(given) >= 0.9 * len(estimates)
            if level == 0.95:
                refused = len(estimates) - len(given)
                textbook = [quantile(x, level=level, independent=True) for x in series]
                naive = float(np.mean([e.low <= truth <= e.high for e in textbook]))
        good &= phi != 0.7 or naive < 0.91
        parts.append(
            f"phi {phi}: {shares[0]:.3f} and {shares[1]:.3f} at 95 and 99 % (textbook {naive:.3f}, {refused} refused)"
        )
    return Outcome("; ".join(parts), bool(good))


SIGMA, REL, LEVEL = 0.15, 0.05, 0.99


def oracle_size(phi: float, trials: int = 200) -> int:
    """The fixed n for a known dependence: half of the intervals with the true tau are tight enough.

    It begins at the n of the asymptotic formula with the true density, at which most intervals have one half that is
    too wide.
    """
    rng = np.random.default_rng(9)
    free = autoregressive(rng, 2_000_000, 0.0, SIGMA)
    middle = float(np.median(free))
    density = np.mean(np.abs(free / middle - 1) < 0.01) / (0.02 * middle)
    tau = autocorrelation_time(autoregressive(rng, 1_000_000, phi, SIGMA) <= middle) if phi else 1.0
    n = math.ceil(tau * max(50.0, (norm.ppf((1 + LEVEL) / 2) * 0.5 / (density * REL * middle)) ** 2))
    while True:
        tight = [_known(autoregressive(rng, n, phi, SIGMA), tau) for _ in range(trials)]
        if np.mean(tight) >= 0.5:
            return n
        n = math.ceil(1.03 * n)


def _known(series: np.ndarray, tau: float) -> bool:
    """Whether the interval of the median with the true autocorrelation time is tight enough."""
    ordered, n = np.sort(series), series.size
    half = t.ppf((1 + LEVEL) / 2, max(2.0, n / tau - 1)) * 0.5 / math.sqrt(n / tau)
    low, high = ordered[math.floor(n * (0.5 - half)) - 1], ordered[math.ceil(n * (0.5 + half))]
    middle = float(np.median(ordered))
    return bool(max(high - middle, middle - low) <= REL * middle)


def _until_tight(plan: Plan, series: np.ndarray) -> tuple[int, float | None, float | None, bool]:
    judge, size = Judge(plan), plan.budget.min_n
    while True:
        _, (estimate,), enough = judge(series[:size])
        if enough or size == series.size:
            return size, estimate.low, estimate.high, enough
        size = min(series.size, next_size(size))


@figure(
    3,
    'sequential "99 % within 5 %", independent and AR(1) .7 .9 with spikes',
    "coverage >= 97 %; median n <= 1.5 of the oracle's; capped runs reported in 100 %",
)
def sequential(options: Options) -> Outcome:
    """Looks as `measure` makes them; the cap by `measure` itself on a clock of the test's."""
    rng, parts, good = np.random.default_rng(options.seed + 3), [], True
    plan = Plan(targets=(Target(0.5, LEVEL, REL),), budget=Budget(max_n=8000))
    truth = float(np.median(autoregressive(rng, 2_000_000, 0.0, SIGMA)))
    for phi in (0.0, 0.7, 0.9):
        runs = [
            _until_tight(plan, autoregressive(rng, 8000, phi, SIGMA))
            for _ in options.each(range(options.trials), f"figure 3, {phi}")
        ]
        reached = [run for run in runs if run[3]]
        share = float(np.mean([low <= truth <= high for _, low, high, _ in reached]))
        factor = float(np.median([size for size, *_ in runs])) / oracle_size(phi)
        good &= share >= 0.97 and factor <= 1.5 and len(reached) > 0
        parts.append(
            f"phi {phi}: {share:.3f}, median n {np.median([r[0] for r in runs]):.0f} ({factor:.2f} of the "
            f"oracle's), {len(runs) - len(reached)} capped"
        )
    short = Plan(targets=(Target(0.5, LEVEL, REL),), budget=Budget(max_n=40, max_s=1e9))
    reports = []
    for _ in range(200):
        clock = FakeClock(autoregressive(rng, 40, 0.7, 0.3))
        measured = measure(clock.work, short, clock=clock)
        reports.append(measured.reached or any("not reached" in p or "no steady" in p for p in measured.problems))
    return Outcome("; ".join([*parts, f"capped at 40: {ratio(sum(reports), 200)} reported"]), good and all(reports))


@figure(
    6,
    "warm-up cut on flat, compilation, ramp, step; drift",
    "median cut within [0, +15] of the truth; more than 5 early <= 5 %; drift refused >= 95 %",
)
def steady(options: Options) -> Outcome:
    """Cuts on the shapes of the tests."""
    rng, parts, good = np.random.default_rng(options.seed + 6), [], True
    for kind, (shape, truth) in SHAPES.items():
        states = [
            find_steady_state(noisy(rng, shape)) for _ in options.each(range(options.trials), f"figure 6, {kind}")
        ]
        cuts = np.array([state.cut for state in states])
        late, early = float(np.median(cuts)) - truth, float(np.mean(cuts < truth - 5))
        wrong = float(np.mean([not state.is_steady for state in states]))
        good &= 0 <= late <= 15 and early <= 0.05
        parts.append(f"{kind} {late:+.0f}, early {100 * early:.1f} %, called unsteady {100 * wrong:.1f} %")
    drift = 1 + 0.1 * np.arange(N) / N
    refused = [not find_steady_state(noisy(rng, drift)).is_steady for _ in range(options.trials)]
    parts.append(f"drift refused {ratio(sum(refused), len(refused))}")
    return Outcome("; ".join(parts), bool(good and np.mean(refused) >= 0.95))
