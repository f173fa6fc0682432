"""Try a library's gradient: a program of its own, so that an operator that crashes takes no other process with it.

Reads a job as JSON from standard input and writes findings as JSON to standard output. It imports NumPy only, because
it runs once per build and its start is part of the build's time. See ``verify.py`` for what is done with the findings.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from deep500.operators.enzyme.probed import (
    EXACTLY,
    STAGE,
    TOLERANCE,
    EnzymeTape,
    ProbedLibrary,
    decode,
    encode,
    is_float,
)

STEPS = {"float64": (1e-4, 1e-5, 1e-6), "float32": (0.06, 0.02, 0.006), "float16": (0.3, 0.1), "bfloat16": (0.6, 0.3)}

CLOSENESS = {"float64": 1e-9, "float32": 5e-3, "float16": 5e-2, "bfloat16": 2e-1}
"""Of a gradient against the one of the double-precision twin, relative to its largest element."""

SPACINGS = (1e-3, 1e-4)
"""Between the points that noise is measured at: the smaller result counts, as a kink or a bend only adds to it."""

LONG = [0.1 / 2**k for k in range(18)]
"""Steps for a forward that is noisy, or, at large inputs, bends within the steps that serve otherwise."""

SATURATED = 1e-7
"""Of the usual slope: what a softmax of large inputs leaves of it, rounding of the gradient itself can make."""

BLURRED = 0.1
"""A gradient cannot be judged if its differences may be off by more than this share of it."""

CHAOTIC = 1e-2
"""Share of forward that jumps about over a thousandth: what grows from element to element, as t = 2 t does, has no
differences at larger sizes that could be compared with a slope of 1e14."""

BEND = 10.0
"""By how many times the error allowed in a second derivative its two sides may differ, where there is no kink."""

WIDER = 50.0
"""How much coarser gradients of larger sizes are judged."""

DRAWS: tuple[str, ...] = ("normal", "positive")
BEYOND = "beyond"
SMOOTH = ("negative", "large", "small", "sorted", "falling", "near")
"""Further draws, for lines that those do not reach; the gradient is judged there, too."""

EXACT = ("integral", "zero", "equal")
"""Draws at which branches meet, so that differences say nothing: only what forward does is judged."""
SEED = 500
FILLS = ((7.0, 0x55), (-3.0, 0xAA))
"""Numbers in outputs before forward writes them, and bits of new memory, for one call and another."""

ELEMENTS = 64
"""So many elements of an input are tried one by one where its gradient is wrong, to name the worst."""

EXPLORING = 6.0
"""Seconds of CPU time for draws that look for blocks; what is not reached by then is named like what cannot be."""

PATIENCE, WAITING = 4, 20
"""Seconds of CPU time for what may not end, forward with an input of 0, and of the clock for what waits for ever: what
is built must not depend on how busy the machine is."""


def draw(library: ProbedLibrary, kind: str, rng: np.random.Generator, job: dict[str, Any]) -> list[np.ndarray]:
    """Inputs that the library's dtypes hold exactly; integers are 0 and 1, or 0 where an axis has one element.

    The job's ``whole`` has other limits, by the number of the input; its ``beyond`` the magnitudes of the kind BEYOND.
    """
    least = min((n for shape in library.shapes[0] for n in shape), default=1)
    values = []
    for i, (dtype, shape) in enumerate(zip(library.inputs, library.shapes[0], strict=True)):
        if is_float(dtype):
            array: np.ndarray = rng.uniform(0.25, 0.95, shape) if kind == "positive" else rng.standard_normal(shape)
            if kind == BEYOND:
                array = array * rng.choice([1.0, *job["beyond"]], shape)
            array = CHANGED.get(kind, np.asarray)(array)
        else:
            low, high = job["whole"].get(str(i), (0, 2 if least > 1 else 1))
            array = rng.integers(low, high, shape)
        values.append(decode(dtype, encode(dtype, np.asarray(array))))
    return values


CHANGED: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "negative": lambda a: -0.25 - np.abs(a),
    "large": lambda a: 30 * a,
    "small": lambda a: 1e-3 * a,
    "sorted": lambda a: np.sort(a, None).reshape(a.shape),
    "falling": lambda a: np.sort(a, None)[::-1].reshape(a.shape),
    "near": lambda a: 0.7 + 1e-2 * a,
    "integral": lambda a: np.rint(3 * a),
    "zero": np.zeros_like,
    "equal": lambda a: np.full(a.shape, 0.7),
}
"""How kinds of draws change normal numbers."""


class EnzymeCoverage:
    """Blocks of forward that have run, in the build that counts them; each draw is tried in a process of its own.

    ``never`` are the numbers of those that no draw reached; ``points`` what reached more than draws before it: the
    number of the group of shapes, and the kind. Normal numbers of the first ``usual`` groups are judged anyhow. Of
    other groups, the kinds are tried where normal numbers led on. It ends when all ran that the job's ``blocks`` want.
    """

    def __init__(self, job: dict[str, Any], groups: list[Any], usual: int) -> None:
        self.job = job
        self.library = ProbedLibrary(job["covered"])
        self.blocks = (ctypes.c_uint8 * len(job["blocks"])).in_dll(self.library.library, "d500_blocks")
        self.never, self.points = set(range(len(job["blocks"]))), []
        draws_of_values = (*DRAWS, *([BEYOND] if job["beyond"] else []), *SMOOTH, *EXACT)
        tried = [(group, kind) for kind in draws_of_values for group in range(usual)]
        tried += [(group, DRAWS[0]) for group in range(usual, len(groups))]
        for group, kind in tried:
            if not any(job["blocks"][block] for block in self.never) or spent_by_children() > EXPLORING:
                break
            ran = set(answer_of(partial(self.ran, groups[group], group, kind)) or []) & self.never
            self.never -= ran
            if ran and group >= usual and kind == DRAWS[0]:
                tried += [(group, other) for other in draws_of_values[1:]]
            if ran and (kind != DRAWS[0] or group >= usual):
                self.points.append((group, kind))

    def ran(self, shapes: list[Any], group: int, kind: str) -> list[int]:
        """Numbers of the blocks that one draw runs."""
        rng = draws(group, kind)
        for inputs, outputs in shapes:
            with suppress(RuntimeError):
                self.library.open(inputs, outputs)
                self.library.forward(draw(self.library, kind, rng, self.job))
                break
        return [int(n) for n in np.flatnonzero(np.frombuffer(bytes(self.blocks), np.uint8))]


def spent_by_children() -> float:
    """Seconds of CPU time that processes of draws took."""
    return sum(os.times()[2:4])


def draws(group: int, kind: str) -> np.random.Generator:
    """Random numbers for a kind of draw, the same for the library that counts and for the one that is judged."""
    return np.random.default_rng([SEED, group, *kind.encode()])


def answer_of(function: Callable[[], Any]) -> Any:
    """Return what a function returns, in a process of its own, which may crash or not end: then None."""
    reading, writing = os.pipe()
    spent = int(sum(os.times()[:2])) + 1
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (spent + PATIENCE, spent + PATIENCE))
        signal.alarm(WAITING + 1)  # should nobody be left to end it
        with suppress(Exception):
            os.write(writing, json.dumps(function()).encode())
        os._exit(0)
    os.close(writing)
    answer, deadline = b"", time.monotonic() + WAITING
    while select.select([reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
        piece = os.read(reading, 1 << 16)
        if not piece:
            break
        answer += piece
    os.close(reading)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(answer) if answer else None


class EnzymeProbe:
    """One operator at one point."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.library = ProbedLibrary(job["library"])
        self.reference = ProbedLibrary(job["twin"]) if job["twin"] else self.library
        self.tape = EnzymeTape(job["taped"]) if job["taped"] else None
        self.active = [i for i, t in enumerate(self.library.inputs) if is_float(t) and i not in job["inactive"]]
        self.job = job
        floats = [t for t in (*self.library.inputs, *self.library.outputs) if is_float(t)]
        self.dtype = max(floats, key=lambda t: TOLERANCE[t])  # the coarsest
        reference_floats = [t for t in (*self.reference.inputs, *self.reference.outputs) if is_float(t)]
        self.reference_dtype = max(reference_floats, key=lambda t: TOLERANCE[t])
        self.rng = np.random.default_rng(SEED)
        self.wrong: list[dict[str, Any]] = []
        self.zero: list[int] = []
        self.unclear: list[int] = []
        self.at_zero: list[list[float]] = []
        self.beyond = False  # whether inputs are beyond numbers that are compared with, of which some are very large
        self.exact = 0  # points at which the tape judged

    def find_point(self, examples: list[Any], kinds: Sequence[str] = DRAWS) -> str:
        """Choose shapes and inputs at which forward works and is finite; returns what stood against it, or nothing."""
        notes = []
        for inputs, outputs in examples:
            for kind in kinds:
                sys.stderr.write(f"{STAGE}forward with shapes {inputs}\n")
                try:
                    for library in (self.library, self.reference):
                        library.open(inputs, outputs)
                    self.x = draw(self.library, kind, self.rng, self.job)
                    y = self.library.forward(self.x) + self.reference.forward(self.x)
                except RuntimeError as error:
                    notes.append(f"{inputs}: {error}")
                    continue
                if all(np.isfinite(output).all() for output in y):
                    shapes = zip(self.library.outputs, self.library.shapes[1], strict=True)
                    self.dy = [self.noise(t, s) for t, s in shapes]
                    return ""
                notes.append(f"{inputs}: results that are not finite for {kind} inputs")
        return "; ".join(dict.fromkeys(notes)) or "no shapes fit the descriptors"

    def note(self, part: str, text: str, kind: str = "value", lines: Sequence[int] = ()) -> None:
        """Note what is wrong, and at which sizes of the inputs."""
        sizes = " and ".join("x".join(map(str, x.shape)) or "one number" for x in self.x)
        self.wrong.append({"part": part, "text": f"with inputs of {sizes}, {text}", "kind": kind, "lines": [*lines]})

    def noise(self, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        """Random numbers away from zero that the dtype holds; zeros for integers."""
        if not is_float(dtype):
            return np.zeros(shape, np.int64)
        values = self.rng.uniform(0.5, 1.5, shape) * self.rng.choice((-1.0, 1.0), shape)
        return decode(dtype, encode(dtype, values))

    def run(self) -> None:
        """All checks; what is wrong is noted."""
        self.check_memory()
        if self.wrong:
            return
        self.gradients = self.reference.backward(self.dy, self.x, self.active)
        self.rough = self.roughness()
        for i in self.active:
            self.against_differences(i)
        self.against_tape()
        self.against_reference()
        self.check_further()
        changed = self.library.changed + (self.reference.changed if self.reference is not self.library else [])
        for text in dict.fromkeys(changed):
            self.note(text.split()[0], text, "changed")
        if self.reference_dtype == "float64" and not self.wrong:
            self.look_at_zero()

    def check_memory(self) -> None:
        """Outputs once more, where memory held something else before; and whether forward left its inputs alone."""
        filled = []
        for fill, bits in FILLS:
            self.library.refill(fill, bits)
            filled.append(self.library.forward(self.x))
        for i, (expected, got) in enumerate(zip(*filled, strict=True)):
            if is_float(self.library.outputs[i]):
                self.compare("forward", f"output {i} of a second call", got, expected, kind="unwritten")

    def look_at_zero(self) -> None:
        """:meth:`where_forms_change` for each input, in a process that may hang or crash: not all can take 0."""

        def changes_of_form() -> list[list[float]]:
            self.reference.set_threads(1)  # others of OpenMP are not in the new process, which could wait for them
            return [change for i in self.active for change in self.where_forms_change(i)]

        changes = answer_of(changes_of_form) or []
        finite = [change for change in changes if np.isfinite(change[1]) or self.job["guarded"]]
        self.at_zero = finite
        for i, got, expected in changes[:1] if len(finite) < len(changes) else ():
            text = (
                f"the gradient of input {i} by an element that is 0 is {got}; differences to both sides: {expected:.9g}"
            )
            self.note("backward", text)

    def directions(self, i: int) -> Iterator[list[np.ndarray]]:
        """A random direction of input i, and one along which the parts of its gradient do not cancel."""
        for aligned in (False, True):
            v = [np.zeros(x.shape) for x in self.x]
            v[i] = self.noise("float64", self.x[i].shape)
            if aligned:
                v[i] = np.abs(v[i]) * np.where(self.gradients[i] < 0, -1.0, 1.0)
            yield v

    def along(self, v: list[np.ndarray], h: float) -> list[float]:
        """The terms of <dy, forward> at x + h v."""
        moved = [x + h * d if d.any() else x for x, d in zip(self.x, v, strict=True)]
        # What the dtype made of the step is what counts.
        return [float((dy * y).sum()) for dy, y in zip(self.dy, self.reference.forward(moved), strict=True)]

    def differences(self, v: list[np.ndarray]) -> list[float]:
        """Change of <dy, forward> along v for every step."""
        slopes = []
        for h in STEPS[self.reference_dtype]:
            high, low = ([x + s * h * d if d.any() else x for x, d in zip(self.x, v, strict=True)] for s in (1, -1))
            up, down = self.reference.forward(high), self.reference.forward(low)
            terms = [dy * (a - b) / (2 * h) for dy, a, b in zip(self.dy, up, down, strict=True)]
            slopes.append(float(sum(t.sum() for t in terms)))
        return slopes

    def noise_along(self, v: list[np.ndarray]) -> float:
        """Return how far <dy, forward> jumps about along v: what its sixth differences leave of anything smooth.

        Of independent errors of size s, sixth differences have the size s sqrt(12! / 6!^2) (Hamming 1962, chapter 10).
        """
        sizes = []
        for h in SPACINGS:
            values = [sum(self.along(v, k * h)) for k in range(-4, 5)]
            sizes.append(float(np.sqrt(np.mean(np.diff(values, 6) ** 2) / 924)))
        return min(sizes)

    def run_wide(self, kinds: Sequence[str]) -> None:
        """The gradient once more at larger sizes, coarsely: more elements have more kinks beside them.

        Inputs beyond what is compared with are large, and shorter types then round to anything (a softmax of numbers
        above a hundred): only float64 is judged there.
        """
        self.beyond = kinds[0] == BEYOND
        self.check_memory()
        if self.wrong or kinds[0] in EXACT:
            return
        self.gradients = self.reference.backward(self.dy, self.x, self.active)
        if not self.against_tape(WIDER) and self.roughness() < CHAOTIC:
            for i in self.active:
                self.against_differences(i, WIDER)
        if not set(kinds) <= set(DRAWS) and self.dtype != "float64":
            return
        alone = self.library.backward(self.dy, self.x, self.active)
        for i in self.active:
            self.compare("backward", f"the gradient of input {i}", alone[i], self.gradients[i], WIDER)
        self.check_further(WIDER)

    def check_further(self, factor: float = 1.0) -> None:
        """Forward mode and Hessian-vector products, of which the gradient is known to be right."""
        for part in ("jvp", "hvp"):
            if self.library.signature[part] and not self.wrong:
                getattr(self, f"check_{part}")(factor)

    def roughness(self) -> float:
        """The noise of forward relative to what it adds up."""
        v = [self.noise("float64", x.shape) if i in self.active else np.zeros(x.shape) for i, x in enumerate(self.x)]
        total = sum(float(np.abs(dy * y).sum()) for dy, y in zip(self.dy, self.reference.forward(self.x), strict=True))
        return self.noise_along(v) / (total + 1e-300)

    def long_differences(self, v: list[np.ndarray]) -> tuple[float, float]:
        """The change along v by the step that noise and bends leave the surest, and by how much it may be off."""
        noise = self.noise_along(v)

        def slope(h: float) -> float:
            return (
                8 * sum(a - b for a, b in zip(self.along(v, h), self.along(v, -h), strict=True))
                - sum(a - b for a, b in zip(self.along(v, 2 * h), self.along(v, -2 * h), strict=True))
            ) / (12 * h)

        slopes = [slope(h) for h in LONG]
        pairs = zip(slopes, slopes[1:], LONG, strict=False)
        return min(((a, 4 * noise / h + abs(a - b)) for a, b, h in pairs), key=lambda pair: pair[1])

    def against_differences(self, i: int, factor: float = 1.0) -> None:
        """The reference's gradient of input i against central differences."""
        tolerance = factor * TOLERANCE[self.reference_dtype]
        for v in self.directions(i):
            got = float((self.gradients[i] * v[i]).sum())
            expected = self.differences(v)
            best = min(expected, key=lambda e: abs(e - got))
            off, size = 0.0, float(np.abs(self.gradients[i] * v[i]).sum())
            scale = size + abs(best) + self.noise_floor(factor)
            if not abs(best - got) <= tolerance * scale:
                best, off = self.long_differences(v)
                scale = size + abs(best) + self.noise_floor(factor)
                if factor != 1 and size + abs(best) <= SATURATED * self.usual_slope(i):
                    return
                if np.isfinite(got) and off > BLURRED * scale:
                    self.unclear.append(i)
                    return
            if not abs(best - got) <= tolerance * scale + off:
                text = f"the gradient of input {i} along a direction is {got:.9g}; central differences: {best:.9g}"
                self.note("backward", text + self.worst_element(i))
                return
        if not self.gradients[i].any() and self.gradients[i].size:
            self.zero.append(i)

    def worst_element(self, i: int) -> str:
        """The element of input i whose gradient is farthest from differences, of at most so many, in words."""
        tried: list[tuple[float, str]] = []
        for at in itertools.islice(np.ndindex(self.x[i].shape), ELEMENTS):
            v = [np.zeros(x.shape) for x in self.x]
            v[i][at] = 1.0
            got = float(self.gradients[i][at])
            best = min(self.differences(v), key=lambda slope: abs(slope - got))
            error = np.nan_to_num(abs(best - got), nan=np.inf)
            tried.append((error, f"; the element at {[*at]} is {got:.9g}, differences: {best:.9g}"))
        return max(tried, default=(0.0, ""))[1]

    def against_tape(self, factor: float = 1.0) -> bool:
        """The reference's gradients, element by element, against the tape's; returns whether that could judge.

        Where branches meet, both may be right: the differences along an element must be nearer to the tape's.
        """
        if self.tape is None or self.reference_dtype != "float64":
            return False
        y = self.reference.forward(self.x)  # not in the other process: threads of OpenMP are not there
        judged = answer_of(partial(self.off_the_tape, y, factor * (EXACTLY + 100 * self.rough)))
        if judged is None:
            return False
        self.exact += 1
        for i, at, exact, lines in judged[:1]:
            v = [np.zeros(x.shape) for x in self.x]
            v[i][tuple(at)] = 1.0
            got, place = float(self.gradients[i][tuple(at)]), [int(n) for n in at]
            between = min(self.differences(v), key=lambda slope: abs(slope - exact))
            if not abs(between - exact) >= abs(got - exact) / 4:
                text = f"the gradient of input {i} at {place} is {got:.9g}; a tape of the same source has {exact:.9g}"
                text += ", and what flows through these lines is wrong" if lines else ""
                self.wrong = [w for w in self.wrong if w["part"] != "backward"]
                self.note("backward", text, lines=lines)
        return True

    def off_the_tape(self, expected: list[np.ndarray], tolerance: float) -> list[Any] | None:
        """Inputs with an element whose derivative is not the tape's, the worst: index, tape's, lines to blame."""
        assert self.tape is not None
        self.tape.library.open(*self.reference.shapes)
        for a, b in zip(self.tape.forward(self.x, self.active), expected, strict=True):
            if not np.abs(a - b).max(initial=0) <= tolerance * (np.abs(b).max(initial=0) + 1e-3):
                return None  # it went another way: by rounding, or by a type's own functions
        exact, got = self.tape.gradient(self.dy), np.concatenate([self.gradients[i].ravel() for i in self.active])
        differing, start = [], 0
        for i in self.active:
            shape, part = self.x[i].shape, slice(start, start + self.x[i].size)
            start += self.x[i].size
            error = np.nan_to_num(np.abs(got[part] - exact[part]), nan=np.inf) * np.isfinite(exact[part])
            if error.size and not error.max() <= tolerance * (np.abs(exact[part]).max() + 1e-3):
                worst = int(np.nanargmax(error))
                at = [int(n) for n in np.unravel_index(worst, shape)]
                differing.append([i, at, float(exact[part][worst]), self.tape.blamed(got, self.dy)])
        return differing

    def where_forms_change(self, i: int) -> list[list[float]]:
        """The gradient by an element of input i that is 0, where branches meet, against differences to both sides.

        Where these differ from each other, forward has a kink or a jump there, and any gradient may do.
        """
        if not self.x[i].size:
            return []
        x, v = [a.copy() for a in self.x], np.zeros(self.x[i].shape)
        at = np.unravel_index(self.rng.integers(x[i].size), x[i].shape)
        x[i][at], v[at], h = 0.0, 1.0, STEPS["float64"][1]

        def value(steps: int) -> float:
            moved = [a + steps * h * v if k == i else a for k, a in enumerate(x)]
            return sum(float((dy * y).sum()) for dy, y in zip(self.dy, self.reference.forward(moved), strict=True))

        try:
            values = [value(steps) for steps in (-2, -1, 0, 1, 2)]
            got = float(self.reference.backward(self.dy, x, [i])[i][at])
        except RuntimeError:  # 0 is what forward cannot take
            return []
        left = (3 * values[2] - 4 * values[1] + values[0]) / (2 * h)
        right = (4 * values[3] - 3 * values[2] - values[4]) / (2 * h)
        scale = abs(left) + abs(right) + 100 * self.rough * sum(map(abs, values)) / h + 1e-3
        if not np.isfinite([left, right]).all() or abs(left - right) > 1e-4 * scale:
            return []
        middle = (left + right) / 2
        return [] if abs(got - middle) <= 1e-3 * scale else [[i, got, middle]]

    def noise_floor(self, factor: float) -> float:
        """Below this, differences are rounding; of large inputs, as a softmax of one number, what is left of slopes."""
        return 1e-6 if self.reference_dtype == "float64" and factor == 1 else 1e-3

    def usual_slope(self, i: int) -> float:
        """The size of a slope along input i of a forward that changes by itself where the input does by itself."""
        total = sum(float(np.abs(dy * y).sum()) for dy, y in zip(self.dy, self.reference.forward(self.x), strict=True))
        return total / (float(np.abs(self.x[i]).max(initial=0)) or 1.0)

    def against_reference(self) -> None:
        """The library's gradients against the reference's: all at once, again, and one by one."""
        calls = [self.active, self.active, *([i] for i in self.active)]
        for numbers in calls:
            alone = self.library.backward(self.dy, self.x, numbers)
            for i in numbers:
                self.compare("backward", f"the gradient of input {i}", alone[i], self.gradients[i])

    def compare(
        self, part: str, what: str, got: np.ndarray, expected: np.ndarray, factor: float = 1.0, kind: str = "value"
    ) -> None:
        """Note an element that differs from what it should be."""
        if not got.size:
            return
        error = np.abs(got - expected)
        scale = float(np.abs(expected).max()) + 1e-3
        if not error.max() <= factor * CLOSENESS[self.dtype] * scale:
            at = np.unravel_index(int(np.nanargmax(np.where(np.isnan(error), np.inf, error))), error.shape)
            place = [int(n) for n in at]
            text = f"{what} at {place} is {got[at]:.9g} in {self.dtype}; expected {expected[at]:.9g}"
            if not any(defect["part"] == part for defect in self.wrong):
                self.note(part, text, kind)

    def check_jvp(self, factor: float = 1.0) -> None:
        """Forward mode against the gradient: <dy, J v> = <J' dy, v>."""
        v = [self.noise(t, s) for t, s in zip(self.library.inputs, self.library.shapes[0], strict=True)]
        changes = self.library.jvp(self.x, v)
        got = sum(float((a * b).sum()) for a, b in zip(self.dy, changes, strict=True))
        terms = [self.gradients[i] * v[i] for i in self.active]
        expected, scale = sum(float(t.sum()) for t in terms), sum(float(np.abs(t).sum()) for t in terms) + 1e-3
        if self.beyond and np.isnan(got):  # of forward's own infinity over infinity, as in 1 / (1 + exp(1000))
            return
        if not abs(got - expected) <= factor * (max(CLOSENESS[self.dtype], 1e-7) + 100 * self.rough) * scale:
            text = f"the Jacobian-vector product is {got:.9g} against the output gradients; expected {expected:.9g}"
            self.note("jvp", text)

    def check_hvp(self, factor: float = 1.0) -> None:
        """Hessian-vector product against differences of the reference's gradient."""
        shapes = zip(self.library.inputs, self.library.shapes[0], strict=True)
        v = [self.noise(t, s) if i in self.active else np.zeros(s) for i, (t, s) in enumerate(shapes)]
        products = self.library.hvp(self.dy, self.x, v)
        h = max(STEPS[self.reference_dtype][1], self.rough ** (1 / 3))
        off = 100 * (self.rough / h + h * h) if h > STEPS[self.reference_dtype][1] else 0.0
        moved = ([x + s * h * d if d.any() else x for x, d in zip(self.x, v, strict=True)] for s in (1, -1, 4, -4))
        up, down, far_up, far_down = (self.reference.backward(self.dy, x, self.active) for x in moved)
        for i in self.active:
            allowed = factor * max(1.0, (10 * TOLERANCE[self.reference_dtype] + off) / CLOSENESS[self.dtype])
            expected, far = (up[i] - down[i]) / (2 * h), (far_up[i] - far_down[i]) / (8 * h)
            bend = (up[i] + down[i] - 2 * self.gradients[i]) / h
            bound = allowed * CLOSENESS[self.dtype] * (float(np.abs(expected).max(initial=0)) + 1e-3)
            smooth = (np.abs(expected - far) <= bound) & (np.abs(bend) <= BEND * bound)
            expected = np.where(smooth, expected, products[i])  # a kink is beside it
            self.compare("hvp", f"the Hessian-vector product of input {i}", products[i], expected, allowed)


def main() -> None:
    """Read the job, write the findings; what forward itself prints goes to standard error."""
    findings_to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = json.load(sys.stdin)
    probe, never = EnzymeProbe(job), list[int]()
    unusable = probe.find_point(job["examples"])
    if not unusable:
        probe.run()
        doubtful = list(probe.zero), list(probe.unclear)  # what is said of the small sizes is said once
        judged, wide = probe.reference_dtype == "float64", job["wide"]
        points: list[tuple[list[Any], Sequence[str], np.random.Generator | None]] = [(g, DRAWS, None) for g in wide]
        if job["beyond"]:
            points.append((wide[0] if wide else job["examples"], (BEYOND,), None))
        groups = [job["examples"], *wide, *job["sizes"]]
        coverage = EnzymeCoverage(job, groups, 1 + len(wide)) if job["covered"] and not probe.wrong else None
        points += [(groups[g], (kind,), draws(g, kind)) for g, kind in coverage.points] if coverage else []
        never = sorted(coverage.never) if coverage else []
        for shapes, kinds, rng in points:
            probe.rng = rng or probe.rng
            if judged and not probe.wrong and not probe.find_point(shapes, kinds):
                probe.run_wide(kinds)
        probe.zero, probe.unclear = doubtful
    findings: dict[str, Any] = {
        "wrong": probe.wrong,
        "zero": probe.zero,
        "unclear": probe.unclear,
        "at_zero": probe.at_zero,
    }
    findings |= {"never": never, "exact": probe.exact}
    with findings_to:
        json.dump({"unusable": unusable, **findings}, findings_to)


if __name__ == "__main__":
    main()
