"""The one table of tolerances, and the one comparison, of all tests.

``assert_close(got, want, kind)`` raises; it never returns a verdict that a test could drop. The tolerance follows
from *what* is compared (the kind) and from the coarser dtype of the two sides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# (relative, absolute), for values of the order of one
TOLERANCES: dict[str, dict[str, tuple[float, float]]] = {
    # the same formula in another order of summation
    "forward": {"float64": (1e-10, 1e-12), "float32": (1e-4, 1e-5), "float16": (1e-2, 1e-3), "bfloat16": (5e-2, 1e-2)},
    # a gradient sums over the batch and over the fan-out as well
    "gradient": {"float64": (1e-10, 1e-11), "float32": (1e-3, 1e-5), "float16": (5e-2, 5e-3), "bfloat16": (1e-1, 2e-2)},
    # central differences: truncation h^2 and cancellation eps/h, with h = 1e-6 (only meant for float64)
    "finite_difference": {"float64": (1e-5, 1e-7), "float32": (5e-2, 5e-3)},
    # parameters after about a hundred steps of an optimizer
    "training": {"float64": (1e-6, 1e-9), "float32": (1e-3, 1e-4)},
    # bit for bit: resumed runs, round trips, the same kernels
    "exact": {},
}
"""kind -> dtype -> (rtol, atol); integers and booleans are always compared exactly."""

_COARSER = ("bfloat16", "float16", "float32", "float64")


def as_numpy(value: Any) -> np.ndarray:
    """Any framework's tensor, or number, as a NumPy array, detached from its graph and on the host."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def tolerance(kind: str, *dtypes: Any) -> tuple[float, float]:
    """``(rtol, atol)`` for the coarsest floating dtype given; exact where none is."""
    names = {str(np.dtype(d)) for d in dtypes}
    known = next((name for name in _COARSER if name in names), None)
    if kind == "exact" or known is None:
        return 0.0, 0.0
    return TOLERANCES[kind][known]


def assert_close(got: Any, want: Any, kind: str = "forward", err_msg: str = "", dtype: Any = None) -> None:
    """Raise AssertionError unless ``got`` has the shape and, within the table's tolerance, the values of ``want``.

    Args:
        got, want: tensors of any framework, arrays or numbers; NaN equals NaN, shapes must agree exactly.
        kind: a key of ``TOLERANCES``.
        err_msg: what was compared, such as ``f"{op} on {backend}"``.
        dtype: take the tolerance of this dtype instead of the operands' coarsest.
    """
    got, want = as_numpy(got), as_numpy(want)
    assert got.shape == want.shape, f"{err_msg}: got shape {got.shape}; expected {want.shape}"
    rtol, atol = tolerance(kind, dtype) if dtype is not None else tolerance(kind, got.dtype, want.dtype)
    if rtol == atol == 0.0:
        np.testing.assert_array_equal(got, want, err_msg=err_msg, strict=True)
    else:
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol, atol, err_msg=err_msg)
