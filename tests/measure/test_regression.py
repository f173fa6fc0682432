"""Quantile regression against R's published figures, an exact linear program, and truth that the test makes."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.optimize import linprog

from deep500.errors import InputError, MissingBackend
from deep500.measure.regression import quantile_regression

# fmt: off
ENGEL = {  # R's quantreg, vignette "Quantile Regression in R" (Koenker): rq(foodexp ~ income), as it prints them
    0.05: (124.88004, 0.34336), 0.25: (95.48354, 0.47410), 0.5: (81.48225, 0.56018), 0.75: (62.39659, 0.64401),
    0.95: (64.10396, 0.70907),
}
# fmt: on


def linear_program(y, design, q):
    """The problem as Koenker and Bassett state it, solved exactly: coefficients and the smallest loss."""
    n, p = design.shape
    cost = np.concatenate([np.zeros(p), np.full(n, q), np.full(n, 1 - q)])
    bounds = [(None, None)] * p + [(0, None)] * (2 * n)
    solution = linprog(cost, A_eq=np.hstack([design, np.eye(n), -np.eye(n)]), b_eq=y, bounds=bounds, method="highs")
    assert solution.status == 0
    return solution.x[:p], solution.fun


def fixtures():
    """Five data sets: name -> values, factors, the design by hand."""
    rng = np.random.default_rng(0)
    income = np.arange(1.0, 102) * 10
    food = 50 + 0.5 * income * (1 + 0.2 * rng.standard_normal(101))
    size, threads = rng.uniform(1, 64, 151), rng.integers(1, 9, 151)
    host = np.array(["a", "b", "c"])[rng.integers(0, 3, 151)]
    seconds = 1e-3 * (1 + 0.01 * size + (host == "b") * 0.1) * rng.lognormal(0, 0.3, 151)
    ones = np.ones(151)
    words = [ones, *(host == other for other in dict.fromkeys(host.tolist()) if other != host[0])]
    return {
        "one number": (food, {"income": income}, np.column_stack([np.ones(101), income])),
        "microseconds": (seconds * 1e-3, {"size": size}, np.column_stack([ones, size])),
        "two numbers": (seconds, {"size": size, "threads": threads}, np.column_stack([ones, size, threads])),
        "words and a number": (seconds, {"host": host, "size": size}, np.column_stack([*words, size])),
        "heavy tail": (rng.pareto(1.5, 151) + 0.1 * size, {"size": size}, np.column_stack([ones, size])),
    }


@pytest.mark.parametrize("q", ENGEL)
def test_engels_food_expenses_as_r_has_them(q):
    engel = pytest.importorskip("statsmodels.datasets").engel.load_pandas().data
    fit = quantile_regression(engel["foodexp"].to_numpy(), {"income": engel["income"].to_numpy()}, q)
    assert np.round(fit.coefficients, 5) == pytest.approx(ENGEL[q], abs=1.1e-5)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("name", fixtures())
def test_it_is_the_exact_solution(name, q):
    pytest.importorskip("statsmodels")
    y, factors, design = fixtures()[name]
    fit = quantile_regression(y, factors, q)
    want, smallest = linear_program(y / y.std(), design, q)
    rest = y - design @ fit.coefficients
    assert np.maximum(q * rest, (q - 1) * rest).sum() / y.std() == pytest.approx(smallest, rel=1e-9)
    assert fit.coefficients / y.std() == pytest.approx(want, rel=1e-6, abs=1e-6)


def launches(rng, effect=0.1, count=8, each=12):
    """Two systems, launches that differ by 5 %, samples that differ by 2 %; the second is slower by ``effect``."""
    level = np.repeat(0.05 * rng.standard_normal(2 * count), each)
    system = np.repeat(["a", "b"], count * each)
    values = 1 + level + 0.02 * rng.standard_normal(level.size) + effect * (system == "b")
    return values, system, np.repeat(np.arange(2 * count), each)


@pytest.mark.long
def test_intervals_cover_where_samples_of_a_launch_go_together():
    pytest.importorskip("statsmodels")
    rng, covered, naive, trials = np.random.default_rng(4), 0, 0, 60
    for trial in range(trials):
        values, system, launch = launches(rng)
        clusters = quantile_regression(values, {"system": system}, 0.5, launch, resamples=60, seed=trial)
        samples = quantile_regression(values, {"system": system}, 0.5, np.arange(192), resamples=20, seed=trial)
        covered += clusters["system[b]"][1] <= 0.1 <= clusters["system[b]"][2]
        naive += samples["system[b]"][1] <= 0.1 <= samples["system[b]"][2]
    assert covered / trials >= 0.88
    assert naive / trials < 0.7, "the test does not bite"


def test_unit_and_order_do_not_matter_and_the_seed_decides_the_errors():
    pytest.importorskip("statsmodels")
    values, system, launch = launches(np.random.default_rng(2))
    fit = quantile_regression(values, {"system": system}, 0.9, launch, resamples=20)
    small = quantile_regression(values * 1e-6, {"system": system}, 0.9, launch, resamples=20)
    assert small.coefficients * 1e6 == pytest.approx(fit.coefficients, rel=1e-9)
    assert small.errors * 1e6 == pytest.approx(fit.errors, rel=1e-4)
    again = quantile_regression(values, {"system": system}, 0.9, launch, resamples=20)
    assert (again.errors == fit.errors).all() and fit.launches == 16
    assert f"system[b]: {fit.coefficients[1]:.4g} (95% CI {fit.low[1]:.4g} to {fit.high[1]:.4g})" in str(fit)


def test_without_several_launches_of_each_there_is_no_interval():
    pytest.importorskip("statsmodels")
    values, system, _ = launches(np.random.default_rng(3))
    fit = quantile_regression(values, {"system": system}, launches=system)
    assert fit.errors is None and fit["system[b]"][1:] == (None, None) and "no interval" in str(fit)
    with pytest.raises(InputError, match=r"expected one of \['\(base\)', 'system\[b\]'\]"):
        fit["system[c]"]


Y = np.arange(6.0)
WRONG = [
    ({"x": [1.0] * 6}, {}, "never change"),
    ({"x": Y, "twice": 2 * Y}, {}, "follow from each other"),
    ({"x": Y[:5]}, {}, r"factor 'x': got shape \(5,\)"),
    ({"x": [*Y[:5], np.nan]}, {}, "finite"),
    ({"x": Y}, {"q": 1.0}, "q=1.0"),
    ({"x": Y}, {"launches": [0, 1]}, "one label per sample"),
]


@pytest.mark.parametrize(("factors", "options", "words"), WRONG)
def test_bad_input(factors, options, words):
    pytest.importorskip("statsmodels")
    with pytest.raises(InputError, match=words):
        quantile_regression(Y, factors, **options)


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.regression.quantile_regression", None)
    with pytest.raises(MissingBackend, match=r"pip install 'deep500\[stats\]'"):
        quantile_regression(Y, {"x": Y})
