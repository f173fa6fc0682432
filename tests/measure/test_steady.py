"""The warm-up cut on series whose truth is known, and drift refused."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.measure.steady import DRIFTING, SHORT, find_steady_state

N, TRIALS = 200, 150
SHAPES = {
    "flat": (np.ones(N), 0),
    "three compilations": (np.where(np.arange(N) < 3, 20.0, 1.0), 3),
    "ramp": (1 + 0.5 * np.exp(-np.arange(N) / 12), 40),
    "step": (np.where(np.arange(N) < 60, 1.3, 1.0), 60),
}


def noisy(rng: np.random.Generator, shape: np.ndarray) -> np.ndarray:
    spikes = 1 + (rng.random(shape.size) < 0.03) * rng.random(shape.size)
    return shape * np.exp(0.02 * rng.standard_normal(shape.size)) * spikes


@pytest.mark.parametrize("kind", SHAPES)
def test_the_cut_is_where_the_warm_up_ends(kind):
    shape, truth = SHAPES[kind]
    rng = np.random.default_rng(1)
    states = [find_steady_state(noisy(rng, shape)) for _ in range(TRIALS)]
    cuts = np.array([state.cut for state in states])
    assert truth <= np.median(cuts) <= truth + 15
    assert np.mean(cuts < truth - 5) <= 0.05
    assert np.mean([state.is_steady for state in states]) >= 0.95


def test_drift_is_refused():
    rng = np.random.default_rng(2)
    shape = 1 + 0.1 * np.arange(N) / N
    states = [find_steady_state(noisy(rng, shape)) for _ in range(TRIALS)]
    assert np.mean([not state.is_steady for state in states]) >= 0.95
    assert any(state.state == DRIFTING and state.trend > 0.01 for state in states)


def test_short_series_are_not_judged():
    assert find_steady_state([5.0, 1.0, 1.0]).state == SHORT


def test_compilation_that_is_known_of_is_always_cut():
    assert find_steady_state(np.ones(100), earliest=7).cut == 7
