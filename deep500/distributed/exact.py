"""Sums whose bits do not depend on the order of the terms, on who holds them, or on how they travel.

Pre-rounded accumulation (Demmel and Nguyen 2013, "Fast reproducible floating-point summation"; Arteaga, Fuhrer and
Hoefler 2014, "Designing bit-reproducible portable high-performance applications", IPDPS): all terms agree on one
quantum, a power of two that their largest magnitude and their number decide, each is rounded to a multiple of it, and
the multiples are added as 64-bit integers. Integer sums are associative, so only the two roundings are left: that of
each term, and that of the result.

**Error bound.** With N terms, M their largest magnitude and ``b = 61 - ceil(log2 N)``, the quantum q is at most
``2 M 2**-b``. Each term is rounded by at most q / 2, so the sum before its last rounding is off by at most
``N q / 2 <= N M 2**-b``; the last rounding, to float64, adds half a unit in its last place, and narrower dtypes round
once more. For 12 terms the first part is ``12 M 2**-57``. Where terms cancel, the bound is absolute, not relative to
the result. The quantum is never below the smallest subnormal number: sums of subnormal numbers are exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deep500.distributed.buckets import carrier
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError

_BITS = 61
_LOWEST = -1074  # exponent of the smallest subnormal float64
_NONE = -5000  # exponent of a list without a number other than 0
_PLUS, _MINUS = 1 << 20, 1 << 40  # counts of inf and -inf, beside those of nan, in one integer
MOST_TERMS = (1 << 20) - 1
"""How many terms a sum may have over all ranks."""


def exact_sum(
    comm: Communicator, terms: Sequence[Sequence[np.ndarray]], like: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """The elementwise sum over all terms of all ranks, the same bits however the terms are spread over ranks.

    Not finite elements make what they make in any sum: nan, or inf where only infinities of one sign meet. A sum that
    is 0 is +0. A sum beyond the largest number is inf.

    Args:
        comm: sums integers. Every rank calls this, also one without terms.
        terms: this rank's terms, each a list of floating-point arrays.
        like: arrays of the shapes and dtypes of a term, for ranks without any.

    Returns:
        arrays of the dtypes of ``like``.

    Raises:
        InputError: more than a million terms, or a dtype that is not floating point.

    Example:
        >>> from deep500.distributed import Serial, Threads
        >>> numbers = [np.array([x]) for x in (1e16, 1.0, -1e16, 0.1)]
        >>> one = exact_sum(Serial(), [[x] for x in numbers], [np.zeros(1)])
        >>> two = Threads(2).run(lambda comm: exact_sum(comm, [[x] for x in numbers[comm.rank :: 2]], [np.zeros(1)]))
        >>> one[0].item() == two[0][0].item() == two[1][0].item()
        True
    """
    widths = [carrier(array.dtype) for array in like]
    converted = [[np.asarray(a, w) for a, w in zip(term, widths, strict=True)] for term in terms]
    heads = comm.all_gather(_head(converted, len(like)), control=8 * (2 * len(like) + 1))
    count = int(heads[:, -1].sum())
    if count > MOST_TERMS:
        raise InputError(f"got {count} terms to sum; expected at most {MOST_TERMS}: use fewer, larger blocks")
    bits = _BITS - max(count - 1, 0).bit_length()
    exponents = heads[:, : len(like)].max(axis=0)
    odd = heads[:, len(like) : -1].max(axis=0)
    # the quantum 2**lowest: largest magnitude < 2**exponent, so that a multiple has at most `bits` bits
    lowest = np.maximum(exponents - bits, _LOWEST)
    sizes = [array.size for array in like]
    begins = np.cumsum([0, *sizes])
    spots = [spot for spot in range(len(like)) if odd[spot]]  # what is not finite there is counted behind the sums
    flat = np.zeros(int(begins[-1]) + sum(sizes[spot] for spot in spots), np.int64)
    marks: dict[int, np.ndarray] = {}
    at = int(begins[-1])
    for spot in spots:
        marks[spot] = flat[at : at + sizes[spot]]
        at += sizes[spot]
    for term in converted:
        for place, array in enumerate(term):
            part = flat[begins[place] : begins[place + 1]]
            _add(part, array.ravel(), int(lowest[place]), marks.get(place))
    comm.all_reduce(flat)
    return [
        _value(flat[begins[place] : begins[place + 1]], int(lowest[place]), widths[place], marks.get(place))
        .reshape(array.shape)
        .astype(array.dtype, copy=False)
        for place, array in enumerate(like)
    ]


def _head(terms: list[list[np.ndarray]], count: int) -> np.ndarray:
    """Largest exponent of every array over this rank's terms, whether it holds something not finite, and how many."""
    exponents, odd = np.full(count, _NONE, np.int64), np.zeros(count, np.int64)
    for term in terms:
        for place, array in enumerate(term):
            if not array.size:
                continue
            largest = max(float(array.max()), -float(array.min()))  # nan comes through both
            if not np.isfinite(largest):
                odd[place] = 1
                finite = array[np.isfinite(array)]
                largest = float(np.abs(finite).max()) if finite.size else 0.0
            if largest:
                exponents[place] = max(exponents[place], int(np.frexp(largest)[1]))
    return np.concatenate([exponents, odd, [len(terms)]]).astype(np.int64)


def _add(total: np.ndarray, array: np.ndarray, lowest: int, marks: np.ndarray | None) -> None:
    """Add an array's multiples of ``2**lowest``, and count what is not finite."""
    if marks is not None:
        finite = np.isfinite(array)
        marks += np.isnan(array) + _PLUS * (array == np.inf) + _MINUS * (array == -np.inf)
        array = np.where(finite, array, 0)
    # A power of two scales exactly: float64 holds every float32, and the scaled numbers are below 2**61.
    scaled = _scaled(array.astype(np.float64, copy=False), -lowest)
    np.rint(scaled, out=scaled)
    total += scaled.astype(np.int64)


def _scaled(array: np.ndarray, exponent: int) -> np.ndarray:
    """``array * 2**exponent``, in two steps where one factor would overflow; a new array."""
    if abs(exponent) < 1000:
        return array * 2.0**exponent
    return np.ldexp(array, exponent)


def _value(total: np.ndarray, lowest: int, dtype: np.dtype, marks: np.ndarray | None) -> np.ndarray:
    """The multiples as numbers."""
    with np.errstate(over="ignore", under="ignore"):
        value = np.ldexp(total.astype(np.float64), lowest).astype(dtype)
    if marks is not None:
        minus, plus, nan = marks >= _MINUS, (marks % _MINUS) >= _PLUS, (marks % _PLUS) > 0
        value[plus] = np.inf
        value[minus] = -np.inf
        value[nan | (plus & minus)] = np.nan
    return value
