"""A process for one variant of a benchmark: ``python -m recipes.studies.enzyme_microbenchmarks.worker LIMIT_BYTES``.

It answers pickled requests on standard input, so that its parent survives what happens here: a variant that
runs out of memory, or crashes. Times are of this process's CPU clock.
"""

from __future__ import annotations

import ctypes
import importlib
import pickle
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

OUT_OF_MEMORY = "out of memory"
Gradient = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


class Variant:
    """A gradient (or the primal) with its inputs.

    Args:
        where: path of a library, or name of a Python module.
        name: of the function in it.
        inputs: the problem's x, c and n.
    """

    def __init__(self, where: str, name: str, inputs: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        self.inputs = inputs
        self.call = (
            _from_library(where, name) if where.endswith(".so") else getattr(importlib.import_module(where), name)
        )

    def value(self, x: np.ndarray | None = None) -> np.ndarray:
        """The result at x, or at the problem's own."""
        return np.asarray(self.call(self.inputs[0] if x is None else x, *self.inputs[1:]))

    def checked(self) -> tuple[np.ndarray, bool, float]:
        """The result, whether two calls have left the inputs as they were, and MiB by which the first raised the most
        memory that this process has held.
        """
        before, most = [array.tobytes() for array in self.inputs], _most_memory()
        self.value()
        grown = (_most_memory() - most) / 1024
        result = self.value()
        return result, before == [array.tobytes() for array in self.inputs], grown

    def seconds(self, calls: int) -> float:
        """Processor time of one call."""
        start = time.process_time()
        for _ in range(calls):
            self.call(*self.inputs)
        return (time.process_time() - start) / calls


def _most_memory() -> int:
    """KiB; not getrusage's figure, which a process inherits from the one that started it."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(text.partition("VmHWM:")[2].split()[0])


def _from_library(path: str, name: str) -> Gradient:
    """Call ``double NAME(x, c, n)`` for a primal, else ``void NAME(x, dx, c, n, size of x)``."""
    function = getattr(ctypes.CDLL(path), name)
    is_primal = name.endswith("_primal")
    function.restype = ctypes.c_double if is_primal else None
    function.argtypes = [ctypes.c_void_p] * 3 if is_primal else [*[ctypes.c_void_p] * 4, ctypes.c_int64]

    def call(x: np.ndarray, c: np.ndarray, n: np.ndarray) -> Any:
        if is_primal:
            return function(x.ctypes.data, c.ctypes.data, n.ctypes.data)
        dx = np.zeros_like(x)
        function(x.ctypes.data, dx.ctypes.data, c.ctypes.data, n.ctypes.data, x.size)
        return dx

    return call


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer (method, arguments) until the other side closes; ``make`` makes the variant, again for other inputs."""
    variant: Variant | None = None
    while True:
        try:
            method, arguments = pickle.load(requests)  # from the process that started this one
        except EOFError:
            return
        try:
            if method == "make":
                variant, answer = Variant(*arguments), None
            else:
                answer = getattr(variant, method)(*arguments)
        except MemoryError:
            answer = OUT_OF_MEMORY
        except ModuleNotFoundError as error:
            answer = f"no {error.name}"
        except (ImportError, OSError) as error:  # a library that cannot be loaded
            if not re.search("llocate memory|failed to map", str(error)):
                raise
            answer = OUT_OF_MEMORY
        pickle.dump(answer, answers)
        answers.flush()


if __name__ == "__main__":
    limit = int(sys.argv[1])
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    serve(sys.stdin.buffer, sys.stdout.buffer)
