"""Plain arithmetic that rules share, on the tensors of every backend."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from deep500.tensors import total


@singledispatch
def reshaped(tensor: Any, shape: Sequence[int]) -> Any:
    """The tensor's elements in another shape; a backend registers its function as for :func:`total`."""
    return tensor.reshape(tuple(shape))


@singledispatch
def transposed(matrix: Any) -> Any:
    """A matrix with its axes exchanged; a backend registers its function as for :func:`total`."""
    return matrix.T


@singledispatch
def norm(tensor: Any) -> Any:
    """Euclidean norm of all elements, a scalar of the same framework; nothing waits for the device.

    The one function of a whole tensor that rules may call and be compiled: there it is that of each parameter.

    Example:
        >>> import numpy as np
        >>> float(norm(np.array([[3.0], [4.0]])))
        5.0
    """
    return total(tensor * tensor) ** 0.5


def sign(tensor: Any) -> Any:
    """-1, 0 or 1 by plain arithmetic, for rules that every backend compiles (a share of it where ``|x| < 1e-30``).

    Example:
        >>> import numpy as np
        >>> sign(np.array([-2.0, 0.0, 3e-9])).tolist()
        [-1.0, 0.0, 1.0]
    """
    return tensor / (abs(tensor) + 1e-37)


def larger(a: Any, b: Any) -> Any:
    """The larger of two by plain arithmetic: ``b`` exactly where it is that, else ``a`` to one rounding.

    Example:
        >>> import numpy as np
        >>> larger(np.array([1.0, 5.0]), 2.0).tolist()
        [2.0, 5.0]
    """
    return b + ((a - b) + abs(a - b)) / 2
