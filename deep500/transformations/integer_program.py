"""Integer programs by HiGHS, through SciPy; what HiGHS prints by itself goes to standard error.

Its library has lines that print whatever ``disp`` says, and standard output is for results, such as one JSON object.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STDOUT, STDERR = 1, 2


def solve(cost: Any, **program: Any) -> Any:
    """``scipy.optimize.milp``, see there, with a clean standard output.

    Example:
        >>> from scipy.optimize import Bounds
        >>> solve([1.0, -2.0], integrality=[1, 1], bounds=Bounds(0, 3)).x.tolist()
        [0.0, 3.0]
    """
    from scipy.optimize import milp

    with _printed_to_stderr():
        return milp(cost, **program)


@contextmanager
def _printed_to_stderr() -> Iterator[None]:
    """Within it the whole process writes to standard error where it wrote to standard output."""
    libc = ctypes.CDLL(None)
    if sys.stdout is not None:  # as it is in a process that was begun without one
        sys.stdout.flush()
    libc.fflush(None)
    try:
        before = os.dup(STDOUT)
    except OSError:  # closed: nothing can be written to it
        yield
        return
    os.dup2(STDERR, STDOUT)
    try:
        yield
    finally:
        libc.fflush(None)  # C keeps what it prints until its buffer is full
        os.dup2(before, STDOUT)
        os.close(before)
