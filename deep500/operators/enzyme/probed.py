"""An operator's library as the probe calls it, and its tape: what :mod:`deep500.operators.enzyme.probe` is made of.

It imports NumPy only, as that does.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

STORED = {"bfloat16": "uint16", "bool": "bool"}

TOLERANCE = {"float64": 2e-6, "float32": 1e-2, "float16": 5e-2, "bfloat16": 2e-1}
"""Of a gradient against differences taken in the same dtype, relative to the sum of what is added up."""

EXACTLY = 1e-7
"""Of a gradient against the tape's, relative to its largest element: they are rounded in different orders."""

STAGE = "now: "
"""Starts the lines on standard error that say how far it came, should it crash."""

THREADS = 4

M_PERTURB = -6
"""The option of glibc's mallopt() that fills memory before it is handed out."""


class ProbedLibrary:
    """An operator's library; arrays go in and come out as float64, integers as int64."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)
        self.library.d500_signature.restype = self.library.d500_error.restype = ctypes.c_char_p
        self.library.d500_instance.restype = ctypes.c_void_p
        self.set_threads(THREADS)  # races and what is divided by threads show with several only
        self.signature: dict[str, Any] = json.loads(self.library.d500_signature())
        self.inputs, self.outputs = self.signature["inputs"], self.signature["outputs"]
        self.instance = ctypes.c_void_p()
        self.changed: list[str] = []
        self.fill = 7.0

    def set_threads(self, number: int) -> None:
        """Let OpenMP, where it is in the library, have so many threads."""
        with suppress(AttributeError):
            self.library.omp_set_num_threads(number)

    def open(self, inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> None:
        """Make the operator for these shapes."""
        self.shapes = [tuple(shape) for shape in inputs], [tuple(shape) for shape in outputs]
        sizes = np.array([n for shape in [*inputs, *outputs] for n in (len(shape), *shape)], np.int64)
        self.instance = ctypes.c_void_p(self.library.d500_instance(ctypes.c_void_p(sizes.ctypes.data)))
        if not self.instance:
            raise RuntimeError(self.error())

    def error(self) -> str:
        """The message of the last failure."""
        return (self.library.d500_error() or b"").decode(errors="replace")

    def call(self, kind: str, *groups: tuple[str, list[np.ndarray | None], bool]) -> None:
        """Call an export; each group is its name, its arrays, and whether they may be written."""
        sys.stderr.write(f"{STAGE}{kind} with shapes {self.shapes[0]}\n")
        before = [[None if a is None else a.tobytes() for a in group] for _, group, _ in groups]
        addresses = [
            (ctypes.c_void_p * len(g))(*[None if a is None else a.ctypes.data for a in g]) for _, g, _ in groups
        ]
        if getattr(self.library, f"d500_{kind}")(self.instance, *addresses):
            raise RuntimeError(self.error())
        for (name, group, writable), old in zip(groups, before, strict=True):
            for i, (array, bytes_before) in enumerate(zip(group, old, strict=True)):
                if not writable and array is not None and array.tobytes() != bytes_before:
                    self.changed.append(f"{kind} changed {name} {i}")

    def forward(self, x: list[np.ndarray]) -> list[np.ndarray]:
        """Outputs."""
        outputs: list[np.ndarray | None] = [
            empty(t, s, self.fill) for t, s in zip(self.outputs, self.shapes[1], strict=True)
        ]
        self.call("forward", ("input", encoded(self.inputs, x), False), ("output", outputs, True))
        return decoded(self.outputs, outputs)

    def refill(self, fill: float, bits: int) -> None:
        """Let outputs hold this, and memory that is allocated from now on these bits, where the C library can."""
        self.fill = fill
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(M_PERTURB, bits)

    def backward(self, dy: list[np.ndarray], x: list[np.ndarray], numbers: Sequence[int]) -> list[np.ndarray]:
        """Gradients of the wanted inputs."""
        outputs: list[np.ndarray | None] = [empty(t, s) for t, s in zip(self.outputs, self.shapes[1], strict=True)]
        inputs = encoded(self.inputs, x)
        self.call("forward", ("input", inputs, False), ("output", outputs, True))
        gradients = [
            empty(t, s) if i in numbers else None
            for i, (t, s) in enumerate(zip(self.inputs, self.shapes[0], strict=True))
        ]
        groups = (("output gradient", encoded(self.outputs, dy), False), ("input", inputs, False))
        self.call("backward", *groups, ("output", outputs, False), ("input gradient", gradients, True))
        return decoded(self.inputs, gradients)

    def jvp(self, x: list[np.ndarray], v: list[np.ndarray]) -> list[np.ndarray]:
        """Change of the outputs along v."""
        outputs: list[np.ndarray | None] = [empty(t, s) for t, s in zip(self.outputs, self.shapes[1], strict=True)]
        changes: list[np.ndarray | None] = [empty(t, s) for t, s in zip(self.outputs, self.shapes[1], strict=True)]
        groups = (("input", encoded(self.inputs, x), False), ("tangent", encoded(self.inputs, v), False))
        self.call("jvp", *groups, ("output", outputs, True), ("output tangent", changes, True))
        return decoded(self.outputs, changes)

    def hvp(self, dy: list[np.ndarray], x: list[np.ndarray], v: list[np.ndarray]) -> list[np.ndarray]:
        """Change of the gradient along v."""
        results: list[np.ndarray | None] = [empty(t, s) for t, s in zip(self.inputs, self.shapes[0], strict=True)]
        groups = (("output gradient", encoded(self.outputs, dy), False), ("input", encoded(self.inputs, x), False))
        self.call("hvp", *groups, ("tangent", encoded(self.inputs, v), False), ("result", results, True))
        return decoded(self.inputs, results)


def empty(dtype: str, shape: tuple[int, ...], fill: float = 7.0) -> np.ndarray:
    """An array of noise: what is not overwritten shows. Integers are zero, or one for a negative fill."""
    array = np.full(shape, fill if is_float(dtype) else int(fill < 0))
    return encode(dtype, array)


def is_float(dtype: str) -> bool:
    """Return whether it can have a gradient."""
    return dtype in TOLERANCE


def encode(dtype: str, values: np.ndarray) -> np.ndarray:
    """Values as the library stores them."""
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.array(values, dtype, order="C")


def decode(dtype: str, stored: np.ndarray) -> np.ndarray:
    """Return what the library stored, as float64."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64 if is_float(dtype) else np.int64)


def encoded(dtypes: Sequence[str], arrays: Sequence[np.ndarray]) -> list[np.ndarray | None]:
    """:func:`encode` for all."""
    return [encode(t, a) for t, a in zip(dtypes, arrays, strict=True)]


def decoded(dtypes: Sequence[str], arrays: Sequence[np.ndarray | None]) -> list[np.ndarray]:
    """:func:`decode` for all; zeros of no shape for what was not wanted."""
    return [np.zeros(()) if a is None else decode(t, a) for t, a in zip(dtypes, arrays, strict=True)]


TAPED = np.dtype([("value", np.float64), ("node", np.int64)])


class EnzymeTape:
    """Forward with numbers that record what they are computed from, see ``deep500/taped.h``: the exact gradient."""

    def __init__(self, path: str) -> None:
        self.library = ProbedLibrary(path)
        self.tape = self.library.library

    def forward(self, x: list[np.ndarray], active: Sequence[int]) -> list[np.ndarray]:
        """Outputs; elements of the active inputs are the leaves, in order."""
        inputs = [taped(t, values) for t, values in zip(self.library.inputs, x, strict=True)]
        outputs = [taped(t, np.zeros(s)) for t, s in zip(self.library.outputs, self.library.shapes[1], strict=True)]
        self.leaves = 0
        for i in active:
            inputs[i]["node"] = np.arange(1, 1 + x[i].size).reshape(x[i].shape) + self.leaves
            self.leaves += x[i].size
        self.tape.d500_tape_start(ctypes.c_long(self.leaves))
        self.library.call("forward", ("input", [*inputs], True), ("output", [*outputs], True))
        self.ends = [y["node"].ravel() if y.dtype == TAPED else np.zeros(y.size, np.int64) for y in outputs]
        return [y["value"] if y.dtype == TAPED else y for y in outputs]

    def gradient(self, dy: list[np.ndarray], dropped: int = 0) -> np.ndarray:
        """By all leaves; without what goes through a line, if one is dropped."""
        nodes, seeds = np.concatenate(self.ends), np.concatenate([np.float64(g).ravel() for g in dy])
        gradient, pointers = np.zeros(self.leaves), (nodes, seeds)
        addresses = [ctypes.c_void_p(array.ctypes.data) for array in pointers]
        sizes = ctypes.c_long(nodes.size), ctypes.c_long(self.leaves), ctypes.c_int(dropped)
        self.tape.d500_tape_reverse(*addresses, *sizes, ctypes.c_void_p(gradient.ctypes.data))
        return gradient

    def blamed(self, got: np.ndarray, dy: list[np.ndarray]) -> list[int]:
        """Lines such that a gradient is wrong by a multiple of what flows through them, if there are any."""
        seen = ctypes.create_string_buffer(1 << 14)
        self.tape.d500_tape_lines(seen, len(seen))
        exact, lines = self.gradient(dy), []
        for line in (n for n, byte in enumerate(seen.raw) if byte):
            through = exact - self.gradient(dy, line)
            share = through @ (got - exact) / (through @ through + 1e-300)
            if np.abs(got - exact - share * through).max() <= 1e3 * EXACTLY * np.abs(got - exact).max():
                lines.append(line)
        return lines


def taped(dtype: str, values: np.ndarray) -> np.ndarray:
    """Numbers as :class:`EnzymeTape` stores them: those that can have a gradient with a node, which is none yet."""
    if not is_float(dtype):
        return np.array(values, dtype, order="C")
    array = np.zeros(values.shape, TAPED)
    array["value"] = values
    return array
