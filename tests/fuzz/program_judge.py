"""A compiled operator of several programs against the tape of each: forward, derivatives, many calls."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deep500.operators.cpp.spec import INCLUDE
from deep500.operators.enzyme.engine import find_clang, find_engine
from tests.fuzz.program_source import ROOM, Program, tape

POINTS = (
    *((5, "normal"), (1, "normal"), (2, "positive"), (16, "large"), (33, "normal"), (64, "negative"), (130, "normal")),
    *((7, "sorted"), (9, "small"), (48, "positive")),
)
"""Sizes, and how numbers are drawn."""
CHANGED: dict[str, Any] = {
    "normal": lambda a: a,
    "positive": lambda a: 0.25 + 0.7 * np.abs(np.tanh(a)),
    "large": lambda a: 6 * a,
    "negative": lambda a: -0.2 - np.abs(a),
    "sorted": lambda a: np.sort(a, -1),
    "small": lambda a: 0.03 * a,
}
ROUNDING = {"float64": 1e-14, "float32": 3e-6}
"""Relative disturbances of inputs: what moves by them is not to be asked for more exactly."""
ALLOWED = {"float64": 1e-9, "float32": 1e-3}
TAPED = np.dtype([("value", np.float64), ("node", np.int64)])


class Oracle:
    """The tape of some programs, compiled by itself."""

    def __init__(self, programs: Sequence[Program], folder: Path) -> None:
        text = tape(list(programs))
        library = folder / f"tape-{hashlib.sha256(text.encode()).hexdigest()[:24]}.so"
        if not library.exists():
            unit = library.with_suffix(".cc")
            unit.write_text(text)
            clang = find_clang(find_engine())
            command = [*clang.command, "-std=c++17", "-O1", "-fPIC", "-shared", "-w", f"-I{INCLUDE}", str(unit)]
            done = subprocess.run([*command, "-o", str(library)], capture_output=True, text=True, check=False)
            if done.returncode:
                raise SyntaxError(f"the generator wrote C++ that does not compile:\n{done.stderr[:3000]}")
        self.library, self.form = ctypes.CDLL(str(library)), programs[0].form

    def forward(self, program: Program, floats: Sequence[np.ndarray], k: np.ndarray) -> np.ndarray | None:
        """Run the program on one row; returns what it writes, None if it throws or fills the tape."""
        n = floats[0].size
        inputs = []
        for i, values in enumerate(floats):
            array = np.zeros(n, TAPED)
            array["value"], array["node"] = values, np.arange(1, 1 + n) + i * n
            inputs.append(array)
        y, room = np.zeros(n, TAPED), np.zeros(ROOM * n, TAPED)
        y["value"] = room["value"] = np.nan
        arrays = [*inputs, *[k] * self.form.indexed, y, *[room] * self.form.scratch]
        self.leaves = len(floats) * n
        self.library.d500_tape_start(ctypes.c_long(self.leaves))
        addresses = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
        if getattr(self.library, f"run_{program.name}")(ctypes.c_size_t(n), *addresses):
            return None
        self.ends = np.ascontiguousarray(y["node"])
        return np.array(y["value"])

    def gradient(self, dy: np.ndarray, floats: Sequence[np.ndarray]) -> list[np.ndarray]:
        """By the inputs of the last forward."""
        gradient, seeds = np.zeros(self.leaves), np.ascontiguousarray(dy, np.float64)
        addresses = [ctypes.c_void_p(array.ctypes.data) for array in (self.ends, seeds)]
        sizes = ctypes.c_long(seeds.size), ctypes.c_long(self.leaves), ctypes.c_int(-1)
        self.library.d500_tape_reverse(*addresses, *sizes, ctypes.c_void_p(gradient.ctypes.data))
        return np.split(gradient, len(floats))

    def both(self, program: Program, floats: Sequence[np.ndarray], k: np.ndarray, dy: np.ndarray) -> Any:
        """Outputs and gradients, None where there are none."""
        y = self.forward(program, floats, k)
        return None if y is None else (y, self.gradient(dy, floats))


@dataclass
class Point:
    """Inputs of all programs: one row each."""

    n: int
    way: str
    floats: list[np.ndarray]
    k: np.ndarray
    dy: np.ndarray

    @property
    def inputs(self) -> list[np.ndarray]:
        return [*self.floats, *([self.k] if self.k.size else [])]


def points(programs: Sequence[Program], dtype: str, seed: int) -> Iterator[Point]:
    """Inputs at which an operator of these programs is judged."""
    form, rows = programs[0].form, len(programs)
    for number, (n, way) in enumerate(POINTS):
        rng = np.random.default_rng([seed, number])
        floats = [CHANGED[way](rng.standard_normal((rows, n))).astype(dtype) for _ in range(1 + form.weighted)]
        k = rng.integers(0, 2 * n, n) if form.indexed else np.zeros(0, np.int64)
        yield Point(n, way, floats, k, rng.standard_normal((rows, n)).astype(dtype))


class Judge:
    """One operator: what is wrong with each program is in ``said``, by the program's name."""

    def __init__(self, op: Any, oracle: Oracle, programs: Sequence[Program], dtype: str) -> None:
        self.op, self.oracle, self.programs, self.dtype = op, oracle, list(programs), dtype
        self.said: dict[str, str] = {}
        self.judged: dict[str, int] = dict.fromkeys((p.name for p in programs), 0)

    def run(self, seed: int) -> None:
        """Judge at all points; what an operator says itself (an error of a call) is raised."""
        for point in points(self.programs, self.dtype, seed):
            y = self.op.forward(point.inputs)
            gradients = self.op.backward([point.dy], point.inputs, y)
            for row, program in enumerate(self.programs):
                self._row(point, row, program, y[0], gradients)
            if point.n in (5, 33):
                self._further(point)
            if point.n == 33:
                self._again(point, y[0], gradients)

    def _row(self, point: Point, row: int, program: Program, y: np.ndarray, gradients: Sequence[Any]) -> None:
        floats = [values[row].astype(np.float64) for values in point.floats]
        expected = self.oracle.both(program, floats, point.k, point.dy[row])
        if expected is None or program.name in self.said or not _finite(expected):
            return
        bounds = self._bounds(program, floats, point, row, expected)
        if bounds is None:
            return
        self.judged[program.name] += 1
        got = [y[row], *(gradients[i][row] for i in range(len(floats)))]
        names = ["forward", *(f"the gradient of input {i}" for i in range(len(floats)))]
        for name, a, b, bound in zip(names, got, [expected[0], *expected[1]], bounds, strict=True):
            self._compare(program, f"{name} at n = {point.n}, {point.way}", a, b, bound)

    def _bounds(self, program: Program, floats: Any, point: Point, row: int, expected: Any) -> list[float] | None:
        """By how much outputs and gradients may be off; None where a disturbance moves them altogether."""
        moves = [0.0] * (1 + len(floats))
        flat = [expected[0], *expected[1]]
        for seed in range(3):
            rng = np.random.default_rng(seed)
            moved = [x * (1 + ROUNDING[self.dtype] * rng.choice([-1, 1], x.shape)) for x in floats]
            other = self.oracle.both(program, moved, point.k, point.dy[row])
            if other is None or not _finite(other):
                return None
            apart = [float(np.abs(a - b).max()) for a, b in zip([other[0], *other[1]], flat, strict=True)]
            moves = [max(pair) for pair in zip(moves, apart, strict=True)]
        scales = [float(np.abs(a).max()) + 1e-3 for a in flat]
        if any(move > 0.05 * scale for move, scale in zip(moves, scales, strict=True)):
            return None
        return [ALLOWED[self.dtype] * scale + 30 * move for move, scale in zip(moves, scales, strict=True)]

    def _compare(self, program: Program, name: str, got: np.ndarray, expected: np.ndarray, bound: float) -> None:
        error = np.abs(np.float64(got) - expected)
        if not error.max() <= bound and program.name not in self.said:
            at = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
            self.said[program.name] = f"{name}, element {at}: {float(got[at]):.9g}; the tape has {expected[at]:.9g}"

    def _further(self, point: Point) -> None:
        """Forward mode against the tape's gradients; Hessian-vector products against their differences."""
        rng = np.random.default_rng(1)
        v = [rng.standard_normal(x.shape).astype(self.dtype) for x in point.floats]
        tangents = [*v, *([np.zeros_like(point.k)] if point.k.size else [])]
        changes = self.op.jvp(point.inputs, tangents)[1][0] if self.op.signature["jvp"] else None
        products = self.op.hvp([point.dy], point.inputs, tangents) if self.op.signature["hvp"] else None
        for row, program in enumerate(self.programs):
            floats, along = ([x[row].astype(np.float64) for x in some] for some in (point.floats, v))
            expected = self.oracle.both(program, floats, point.k, point.dy[row])
            if expected is None or not _finite(expected):
                continue
            if changes is not None:
                got = float((point.dy[row] * np.float64(changes[row])).sum())
                terms = np.concatenate([g * d for g, d in zip(expected[1], along, strict=True)])
                bounds = self._bounds(program, floats, point, row, expected)
                flat = np.isnan(got) and not terms.any()  # as a sigmoid of what has become infinite: 0 times infinity
                if bounds is not None and not flat:
                    bound = 3 * sum(bounds) * float(np.sqrt(sum((d * d).sum() for d in along)))
                    self._compare(program, f"forward mode at n = {point.n}", np.array([got]), terms.sum()[None], bound)
            if products is not None:
                self._hessian(program, floats, along, point, row, [products[i][row] for i in range(len(floats))])

    def _hessian(self, program: Program, floats: Any, along: Any, point: Point, row: int, got: Any) -> None:
        slopes = []
        for h in (1e-3, 1e-4, 1e-5):
            sides = []
            for step in (h, -h):
                moved = [x + step * d for x, d in zip(floats, along, strict=True)]
                other = self.oracle.both(program, moved, point.k, point.dy[row])
                if other is None or not _finite(other):
                    return
                sides.append(np.concatenate(other[1]))
            slopes.append((sides[0] - sides[1]) / (2 * h))
        spread = float(np.abs(slopes[1] - slopes[2]).max())
        scale = float(np.abs(slopes[1]).max()) + 1e-3
        if spread > 1e-2 * scale:
            return  # a kink beside it
        bound = 30 * spread + (1e-4 if self.dtype == "float64" else 2e-2) * scale
        self._compare(program, f"the Hessian-vector product at n = {point.n}", np.concatenate(got), slopes[1], bound)

    def _again(self, point: Point, y: np.ndarray, gradients: Sequence[Any]) -> None:
        """The same calls once more, and from four threads at once."""

        def call(_: int) -> list[np.ndarray]:
            outputs = self.op.forward(point.inputs)
            return [outputs[0], *(g for g in self.op.backward([point.dy], point.inputs, outputs) if g is not None)]

        with ThreadPoolExecutor(4) as pool:
            calls = [call(0), call(1), *pool.map(call, range(8))]
        expected = [y, *(g for g in gradients if g is not None)]
        rounding = 1e-10 if self.dtype == "float64" else 1e-4  # threads add in any order
        for arrays in calls:
            for a, b in zip(arrays, expected, strict=True):
                for row, program in enumerate(self.programs):
                    if np.isfinite(b[row]).all():
                        bound = rounding * (float(np.abs(b[row]).max()) + 1e-3)
                        self._compare(program, "a repeated or concurrent call", a[row], b[row], bound)


def _finite(expected: Any) -> bool:
    return all(np.isfinite(array).all() and np.abs(array).max() < 1e12 for array in (expected[0], *expected[1]))
