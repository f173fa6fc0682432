"""Error norms, bias and top-k against values that are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from deep500.errors import InputError
from deep500.metrics import (
    CosineError,
    L1Error,
    L2Error,
    MaxError,
    NormDifference,
    dataset_bias,
    heat_map,
    top_k_accuracy,
    variance_between_runs,
)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (L1Error(), 7.0),
        (L2Error(), 5.0),
        (MaxError(), 4.0),
        (NormDifference(3), 91 ** (1 / 3)),
        (L1Error(relative=True), 0.7),
        (MaxError(relative=True), 2.0),
    ],
)
def test_norms(metric, expected):
    reference = [np.full((2, 4), 1.0, np.float32), np.array([2.0])]
    outputs = [reference[0].copy(), np.array([-1.0])]
    outputs[0][1, 2] += 4
    assert metric.compare(outputs, reference) == pytest.approx(expected)
    assert metric.compare(reference, reference) == 0.0 and metric.direction == "lower"


def test_names_and_relative_errors_of_nothing():
    assert [m.name for m in (L2Error(), MaxError(relative=True), CosineError())] == [
        "l2_error",
        "relative_max_error",
        "cosine_error",
    ]
    assert L2Error(relative=True).compare(np.ones(2), np.zeros(2)) == math.inf
    assert L2Error(relative=True).compare(np.zeros(2), np.zeros(2)) == 0.0
    with pytest.raises(InputError, match="at least 1"):
        NormDifference(0.5)
    with pytest.raises(InputError, match="expected the same"):
        MaxError().compare(np.ones(2), np.ones(3))


@given(st.floats(0.01, 100), st.floats(0, math.pi))
def test_cosine_is_the_angle_whatever_the_length(length, angle):
    error = CosineError().compare(length * np.array([math.cos(angle), math.sin(angle)]), np.array([2.0, 0.0]))
    assert error == pytest.approx(1 - math.cos(angle), abs=1e-9)


def test_variance_between_runs_and_its_picture(tmp_path):
    rng = np.random.default_rng(0)
    runs = rng.normal(0, [1.0, 3.0], (2000, 2))
    assert variance_between_runs(runs) == pytest.approx([1, 9], rel=0.1)
    assert not variance_between_runs([np.ones(3)] * 4).any()
    picture = heat_map(np.array([[1.0, np.nan], [2.0, 3.0]]), tmp_path / "map.png")
    assert picture.read_bytes().startswith(b"\x89PNG") and heat_map(5.0, tmp_path / "one.svg").stat().st_size > 1000
    with pytest.raises(InputError, match="two or more"):
        variance_between_runs([np.ones(3)])


def test_bias_is_the_chi_square_of_what_was_drawn():
    rng = np.random.default_rng(1)
    fair = [rng.integers(0, 10, 100) for _ in range(50)]
    counts, p = dataset_bias(fair, 10)
    assert counts.sum() == 5000 and p == pytest.approx(chisquare(counts).pvalue) and p > 0.001
    assert dataset_bias([*fair, np.zeros(500, int)], 10)[1] < 1e-6
    for wrong in ([], [np.array([10])], [np.array([0.5])], [np.array([-1])]):
        with pytest.raises(InputError, match="from 0 to 9"):
            dataset_bias(wrong, 10)


def test_top_k():
    rng = np.random.default_rng(2)
    scores, labels = rng.random((500, 10)), rng.integers(0, 10, 500)
    assert top_k_accuracy(scores, labels, 1) == 100 * np.mean(scores.argmax(1) == labels)
    assert top_k_accuracy(scores, labels, 10) == 100.0
    values = [top_k_accuracy(scores, labels, k) for k in range(1, 11)]
    assert values == sorted(values) and 40 < values[4] < 60
    with pytest.raises(InputError, match="k <= classes"):
        top_k_accuracy(scores, labels, 11)
