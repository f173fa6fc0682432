"""Sums that do not depend on the order of the terms: their error bound, and what they make of odd numbers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep500.distributed import Serial, Threads
from deep500.distributed.exact import exact_sum

LIKE = [np.zeros(3)]


def total(terms, ranks=1, like=LIKE):
    """The sum on one rank, of terms that are dealt to several; all ranks must agree in every bit."""

    def work(comm):
        return exact_sum(comm, [[term] for term in terms[comm.rank :: comm.size]], like)[0]

    sums = [exact_sum(Serial(), [[term] for term in terms], like)[0]] if ranks == 1 else Threads(ranks).run(work)
    assert len({s.tobytes() for s in sums}) == 1
    return sums[0]


def lists(dtype, **options):
    numbers = st.floats(width=np.dtype(dtype).itemsize * 8, **options)
    row = st.lists(numbers, min_size=3, max_size=3).map(lambda values: np.array(values, dtype))
    return st.lists(row, min_size=1, max_size=12)


@given(terms=lists("float64"), ranks=st.integers(2, 6), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_order_and_ranks_do_not_matter(terms, ranks, seed):
    shuffled = [terms[i] for i in np.random.default_rng(seed).permutation(len(terms))]
    assert total(terms).tobytes() == total(shuffled).tobytes() == total(shuffled, ranks).tobytes()


@given(terms=lists("float64", allow_nan=False, allow_infinity=False))
@settings(max_examples=150, deadline=None)
def test_error_is_within_the_bound(terms):
    bits = 61 - math.ceil(math.log2(len(terms)))
    largest = max(Fraction(abs(float(x))) for term in terms for x in term)
    for got, *column in zip(total(terms), *terms, strict=True):
        true = sum(Fraction(float(x)) for x in column)
        if not math.isfinite(got):
            assert abs(true) > Fraction(1.79e308)
            continue
        slack = len(terms) * largest / 2**bits + Fraction(math.ulp(float(got))) / 2
        assert abs(Fraction(float(got)) - true) <= slack


@given(terms=lists("float32", allow_nan=False, allow_infinity=False, min_value=-1024, max_value=1024))
@settings(max_examples=60, deadline=None)
def test_float32_is_the_exact_sum_rounded(terms):
    terms = [np.round(term * 64) / 64 for term in terms]  # of a range that the integers hold
    want = [np.float32(math.fsum(column)) for column in zip(*[term.tolist() for term in terms], strict=True)]
    got = total(terms, like=[np.zeros(3, "float32")])
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, want)


def test_cancellation_that_every_other_order_loses():
    terms = [np.array([x, x, x]) for x in (1e16, 1.0, -1e16, 0.5)]
    np.testing.assert_array_equal(total(terms), [1.5] * 3)
    assert sum(terms)[0] != 1.5


def test_subnormal_numbers_are_summed_exactly():
    tiny = math.ulp(0.0)
    terms = [np.array([tiny, 3 * tiny, -tiny]), np.array([tiny, -tiny, tiny])]
    assert total(terms).tolist() == [2 * tiny, 2 * tiny, 0.0]


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_what_is_not_finite_stays_where_it_is(ranks):
    inf, nan = math.inf, math.nan
    like = [np.zeros(6)]
    terms = [np.array([inf, -inf, nan, inf, 1.0, 0.0]), np.array([1.0, -inf, inf, -inf, 2.0, -0.0])]
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(total(terms, ranks, like), terms[0] + terms[1])


def test_largest_numbers_and_no_terms():
    top = np.finfo("float64").max
    assert total([np.array([top, top, -top]), np.array([top, -top, -top])]).tolist() == [math.inf, 0.0, -math.inf]
    assert exact_sum(Serial(), [], LIKE)[0].tolist() == [0.0] * 3
