"""Mixing matrices: with which weight each rank takes over each other rank's parameters.

``W[p, q]`` is what rank p takes of rank q: rank p receives from every q with ``W[p, q] > 0``. A matrix is doubly
stochastic where no entry is negative and every row and every column sums to 1. The rows make ranks that agree stay as
they are, the columns keep the mean over ranks as it is. Symmetry is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import isqrt
from typing import Any

import numpy as np

from deep500.errors import InputError, nearest

TOLERANCE = 1e-12
"""By how much a row or a column may miss 1: what rounding leaves of sums in float64."""


def complete(size: int) -> np.ndarray:
    """Every rank with every rank: all entries ``1 / size``.

    Example:
        >>> complete(2).tolist()
        [[0.5, 0.5], [0.5, 0.5]]
    """
    return np.full((size, size), 1.0 / size)


def ring(size: int) -> np.ndarray:
    """The ranks before and after, and oneself, with equal weights: 1/3, with two ranks 1/2 (as in Lian et al. 2017,
    arXiv 1705.09056).

    Example:
        >>> np.count_nonzero(ring(5), axis=1).tolist()
        [3, 3, 3, 3, 3]
    """
    return _equal(size, lambda p: {(p - 1) % size, (p + 1) % size})


def torus(size: int) -> np.ndarray:
    """A grid that is closed in both directions, as square as ``size`` can be divided; a prime number gives a ring.

    Example (2 x 3: one vertical neighbour, two horizontal ones):
        >>> np.flatnonzero(torus(6)[0]).tolist()
        [0, 1, 2, 3]
    """
    rows = next(n for n in range(isqrt(size), 0, -1) if size % n == 0)
    columns = size // rows

    def neighbours(p: int) -> set[int]:
        row, column = divmod(p, columns)
        vertical = {(row + step) % rows * columns + column for step in (-1, 1)}
        return vertical | {row * columns + (column + step) % columns for step in (-1, 1)}

    return _equal(size, neighbours)


def exponential(size: int) -> np.ndarray:
    """The ranks 1, 2, 4, 8, ... before oneself, with equal weights: few neighbours that agree soon (the static
    exponential graph of Ying et al. 2021, arXiv 2110.13363). Not symmetric in general.

    Example:
        >>> np.flatnonzero(exponential(8)[7]).tolist()
        [3, 5, 6, 7]
    """
    return _equal(size, lambda p: {(p - 2**k) % size for k in range((size - 1).bit_length())})


MIXINGS: Mapping[str, Callable[[int], np.ndarray]] = {
    "complete": complete,
    "exponential": exponential,
    "ring": ring,
    "torus": torus,
}
"""Mixing matrices by name, as functions of the number of ranks."""


def mixing_matrix(mixing: str | Any, size: int) -> np.ndarray:
    """A matrix by name, or the one given, checked.

    Args:
        mixing: a name in :data:`MIXINGS`, or a (size, size) matrix of numbers.
        size: number of ranks.

    Returns:
        the matrix in float64, a copy.

    Raises:
        InputError: no such name, or the matrix is not doubly stochastic; the row or the column is named.

    Example:
        >>> mixing_matrix([[0.9, 0.1], [0.1, 0.9]], 2).tolist()
        [[0.9, 0.1], [0.1, 0.9]]
    """
    if isinstance(mixing, str):
        if mixing not in MIXINGS:
            raise InputError(
                f"got mixing={mixing!r}; expected one of {sorted(MIXINGS)}, or a matrix: {nearest(mixing, MIXINGS)}"
            )
        return MIXINGS[mixing](size)
    try:
        matrix = np.array(mixing, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"got a mixing matrix that is none ({error}); expected {size} rows of {size} numbers"
        ) from error
    if matrix.shape != (size, size):
        raise InputError(
            f"got a mixing matrix of shape {list(matrix.shape)}; expected [{size}, {size}] for {size} ranks: give one "
            "row and one column for each"
        )
    wrong = np.argwhere(~(matrix >= 0) | np.isinf(matrix))
    if len(wrong):
        row, column = wrong[0].tolist()
        raise InputError(
            f"got {matrix[row, column]} in row {row}, column {column} of the mixing matrix; expected weights of at "
            "least 0: correct it"
        )
    for what, sums in (("row", matrix.sum(axis=1)), ("column", matrix.sum(axis=0))):
        worst = int(np.abs(sums - 1).argmax())
        if abs(sums[worst] - 1) > TOLERANCE * size:
            raise InputError(
                f"got a mixing matrix whose {what} {worst} sums to {float(sums[worst])!r}; expected 1 in every row and "
                "every column, else the mean over ranks would not be kept: make it doubly stochastic"
            )
    return matrix


def second_eigenvalue(matrix: np.ndarray) -> float:
    """``|lambda_2|``: the second largest modulus of the eigenvalues of a doubly stochastic matrix.

    Mixing alone multiplies the ranks' distance from their mean by it per step, in the long run; by at most that in
    every step if the matrix is normal, as all of :data:`MIXINGS` are. 1: some ranks never agree.

    Example:
        >>> round(second_eigenvalue(ring(4)), 9), second_eigenvalue(np.eye(3))
        (0.333333333, 1.0)
    """
    if len(matrix) == 1:
        return 0.0
    return float(np.sort(np.abs(np.linalg.eigvals(matrix)))[-2])


def _equal(size: int, neighbours: Callable[[int], Iterable[int]]) -> np.ndarray:
    """Oneself and these ranks with equal weights; doubly stochastic where all ranks have equally many."""
    matrix = np.zeros((size, size))
    for p in range(size):
        members = {p, *neighbours(p)}
        matrix[p, sorted(members)] = 1.0 / len(members)
    return matrix
