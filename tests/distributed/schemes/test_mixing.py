"""Mixing matrices are doubly stochastic, connect whom they say, and a wrong one is named by its row or column."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.distributed.schemes.mixing import MIXINGS, mixing_matrix, second_eigenvalue
from deep500.errors import InputError


@pytest.mark.parametrize("size", [*range(1, 10), 12, 16, 17, 36])
@pytest.mark.parametrize("name", MIXINGS)
def test_named_mixings_are_doubly_stochastic_and_connected(name: str, size: int) -> None:
    matrix = mixing_matrix(name, size)
    assert matrix.shape == (size, size) and (matrix >= 0).all()
    np.testing.assert_allclose(matrix.sum(axis=0), 1, rtol=0, atol=1e-14)
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=0, atol=1e-14)
    assert np.array_equal(mixing_matrix(matrix, size), matrix)
    assert np.all(np.linalg.matrix_power(matrix, size) > 0)  # every rank hears of every other
    assert second_eigenvalue(matrix) < 1 - 1e-3
    np.testing.assert_allclose(matrix @ matrix.T, matrix.T @ matrix, atol=1e-14)  # normal


def neighbours(name: str, size: int, rank: int) -> list[int]:
    return [q for q in np.flatnonzero(mixing_matrix(name, size)[rank]).tolist() if q != rank]


def test_who_is_a_neighbour() -> None:
    assert neighbours("ring", 2, 0) == [1] and neighbours("ring", 6, 0) == [1, 5]
    assert neighbours("torus", 9, 4) == [1, 3, 5, 7] and neighbours("torus", 7, 3) == [2, 4]
    assert neighbours("torus", 12, 0) == [1, 3, 4, 8]  # 3 x 4
    assert neighbours("exponential", 8, 0) == [4, 6, 7] and neighbours("exponential", 5, 4) == [0, 2, 3]
    assert neighbours("complete", 4, 1) == [0, 2, 3]


@pytest.mark.parametrize("size", [3, 4, 5, 8])
def test_second_eigenvalues_are_those_of_the_closed_forms(size: int) -> None:
    around = np.exp(2j * np.pi * np.arange(1, size) / size)
    assert second_eigenvalue(mixing_matrix("ring", size)) == pytest.approx(max(abs((1 + around + around**-1) / 3)))
    assert second_eigenvalue(mixing_matrix("complete", size)) == pytest.approx(0, abs=1e-12)
    hops = [2**k for k in range(int(np.ceil(np.log2(size))))]
    want = max(abs((1 + sum(around**hop for hop in hops)) / (1 + len(hops))))
    assert second_eigenvalue(mixing_matrix("exponential", size)) == pytest.approx(want)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ("rings", "got mixing='rings'; expected one of .*did you mean 'ring'"),
        ([[1.0]], r"shape \[1, 1\]; expected \[2, 2\]"),
        ([[0.5, 0.5], [0.5]], "a mixing matrix that is none"),
        ([[0.5, "x"], [0.5, 0.5]], "a mixing matrix that is none"),
        ([[1.5, -0.5], [-0.5, 1.5]], "got -0.5 in row 0, column 1"),
        ([[np.nan, 0.5], [0.5, 0.5]], "got nan in row 0, column 0"),
        ([[0.5, 0.5], [0.5, 0.4]], "row 1 sums to 0.9"),
        ([[0.7, 0.3], [0.5, 0.5]], r"column 0 sums to 1\.2;.*make it doubly stochastic"),
        ([[0.5, 0.5], [0.5, 0.4999999]], r"row 1 sums to 0\.99999989"),
    ],
)
def test_what_is_not_doubly_stochastic_is_refused(matrix: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mixing_matrix(matrix, 2)


def test_an_own_matrix_need_not_be_symmetric() -> None:
    turned = [[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]]
    assert mixing_matrix(turned, 3).tolist() == turned
    assert second_eigenvalue(mixing_matrix(turned, 3)) == pytest.approx(0.5)
    assert second_eigenvalue(np.eye(4)) == pytest.approx(1)  # ranks never agree
