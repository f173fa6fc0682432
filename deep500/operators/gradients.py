"""An operator's gradient at one point against differences: every entry of the Jacobian, or sums along directions.

:func:`full` compares entry by entry, which takes as many calls as there are elements. :func:`directional` compares
weighted sums of the outputs along random directions: a number of calls that does not depend on sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from deep500.operators.base import CustomOp
from deep500.operators.differences import (
    BLURRED,
    TRUST,
    Derivative,
    Samples,
    derivative,
    epsilon,
    is_floating,
    sample,
    sizes,
)
from deep500.operators.findings import ComparedEntry


@dataclass
class Finding:
    """The result of comparing a gradient; see :class:`~deep500.operators.findings.OpCheck`."""

    worst: ComparedEntry
    compared: int
    judged: float
    noise: float
    rounding: float


@dataclass
class Point:
    """An operator at one point: its floating outputs as one vector, and its backward as a function of such vectors.

    Attributes:
        op, inputs: the operator and its arrays.
        differentiated: positions of the inputs to differentiate by.
        outputs: what forward gives there.
        value: the floating ones of them in one float64 vector.
        owners: which output each element of ``value`` belongs to.
        rounding: how far ``value`` may be off by its dtype alone.
    """

    op: CustomOp
    inputs: list[np.ndarray]
    differentiated: list[int]
    outputs: list[np.ndarray] = field(init=False)
    value: np.ndarray = field(init=False)
    owners: np.ndarray = field(init=False)
    rounding: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self._kept = [x.copy() for x in self.inputs]
        self.outputs = [np.array(y, order="C") for y in self.op.run(self.inputs)]
        self.floating = [i for i, y in enumerate(self.outputs) if is_floating(y.dtype)]
        self.value = self.evaluate(self.inputs)
        self.owners = np.repeat(np.array(self.floating, int), [self.outputs[i].size for i in self.floating])
        eps = np.array([epsilon(y.dtype) if is_floating(y.dtype) else 0.0 for y in self.outputs])
        self.rounding = np.abs(self.value) * eps[self.owners]

    @property
    def size(self) -> int:
        """Number of floating-point output elements."""
        return self.value.size

    @property
    def epsilon(self) -> float:
        """The coarsest one among inputs and outputs that take part."""
        return max(epsilon(x.dtype) for x in self._parts())

    @property
    def dtype(self) -> str:
        """Names of the dtypes that take part."""
        return ", ".join(dict.fromkeys(x.dtype.name for x in self._parts()))

    def _parts(self) -> list[np.ndarray]:
        return [*(self.inputs[i] for i in self.differentiated), *(self.outputs[i] for i in self.floating)]

    def evaluate(self, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """All floating outputs in one vector."""
        outputs = self.op.run(inputs)
        return np.concatenate([np.zeros(0), *(np.asarray(outputs[i], np.float64).ravel() for i in self.floating)])

    def backward(self, weights: np.ndarray) -> list[np.ndarray]:
        """Gradients of the weighted sum of the outputs by the wanted inputs; weights must be exact in their dtype."""
        grads, start = [], 0
        for i, y in enumerate(self.outputs):
            count = y.size if i in self.floating else 0
            grad = weights[start : start + count].reshape(y.shape) if i in self.floating else np.zeros(y.shape)
            grads.append(np.ascontiguousarray(grad, y.dtype))
            start += count
        gradients = self.op.run_backward(grads, self.inputs, self.outputs)
        return [gradients[i].astype(np.float64) for i in self.differentiated]

    def weights(self, random: np.random.Generator) -> np.ndarray:
        """Random output gradients of size one half to two, either sign, exact in every dtype."""
        return random.integers(8, 32, self.size) / 16 * random.choice([-1.0, 1.0], self.size)

    def place(self, flat: int) -> tuple[int, tuple[int, ...]]:
        """Return which output, and where in it, an element of ``value`` is."""
        output = int(self.owners[flat])
        inside = flat - int(np.searchsorted(self.owners, output))
        return output, tuple(map(int, np.unravel_index(inside, self.outputs[output].shape)))

    def problems(self) -> list[str]:
        """Manners that every operator must have: finite, repeatable, and not writing to its inputs."""
        problems = []
        if not np.isfinite(self.value).all() and self.differentiated:
            problems.append("forward gives values that are not finite at these inputs; check at others")
        if not np.array_equal(self.evaluate(self.inputs), self.value, equal_nan=True):
            problems.append("forward gives other values when called again; expected the same")
        changed = [
            i for i, (x, y) in enumerate(zip(self.inputs, self._kept, strict=True)) if x.tobytes() != y.tobytes()
        ]
        if changed:
            problems.append(f"inputs {changed} were changed by the operator; expected that it only reads them")
        return problems


def merged(findings: Sequence[Finding]) -> Finding:
    """Several findings as one."""
    return Finding(
        max((finding.worst for finding in findings), key=lambda entry: entry.excess),
        sum(finding.compared for finding in findings),
        min(finding.judged for finding in findings),
        max(finding.noise for finding in findings),
        max(finding.rounding for finding in findings),
    )


def over(got: np.ndarray, expected: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Differences over what is allowed; 0 where nothing is expected, infinite where what was got is no number."""
    off = np.abs(got - expected) / np.where(allowed > 0, allowed, np.finfo(np.float64).tiny)
    return np.where(np.isfinite(got), np.where(np.isfinite(expected), off, 0.0), np.inf)


def full(point: Point, random: np.random.Generator, rtol: float, atol: float) -> Finding:
    """Compare every entry of the Jacobian, and one weighted sum of its rows."""
    weights = point.weights(random)
    rows = [point.backward(np.where(np.arange(point.size) == j, weights, 0)) for j in range(point.size)]
    summed = point.backward(weights)
    findings = []
    for k, i in enumerate(point.differentiated):
        columns = _columns(point, i)
        got = np.stack([row[k].ravel() for row in rows], axis=1) / weights
        findings.append(_entries(point, i, got, columns, rtol, atol))
        findings.append(_sums(point, i, summed[k].ravel(), columns, weights, rtol, atol))
    return merged(findings)


def _columns(point: Point, i: int) -> Derivative:
    """Derivatives of all outputs (second axis) by all elements of an input (first axis)."""
    x = point.inputs[i]
    scale = sizes(x).ravel()
    central, bend = [], []
    for flat in range(x.size):
        step = np.zeros(x.size)
        step[flat] = scale[flat]
        probe = sample(point.evaluate, point.inputs, point.value, i, step.reshape(x.shape))
        really = np.array([move.ravel()[flat] for move in probe.moved])[:, None] / scale[flat]  # 0: rounded away
        central.append(probe.central / really)
        bend.append(probe.bend / really)
    slopes = derivative(np.stack(central, 1), np.stack(bend, 1), point.rounding, point.owners)
    per_unit = (part / scale[:, None] for part in (slopes.value, slopes.uncertainty, slopes.rounding, slopes.jump))
    return Derivative(*per_unit)


def _entries(point: Point, i: int, got: np.ndarray, columns: Derivative, rtol: float, atol: float) -> Finding:
    size = np.where(np.isfinite(columns.value), np.abs(columns.value), 0.0)
    largest = _per_output(point, size)
    noise = TRUST * columns.uncertainty + columns.jump
    allowed = rtol * size + atol * largest + noise
    element, output_element = divmod(int(over(got, columns.value, allowed).argmax()), point.size)
    at = (element, output_element)
    worst = ComparedEntry(
        *point.place(output_element),
        i,
        _index(point, i, element),
        float(got[at]),
        float(columns.value[at]),
        float(allowed[at]),
    )
    scale = np.maximum(largest, _per_output(point, np.abs(np.nan_to_num(got))))
    clear = (noise <= BLURRED * scale) | (scale == 0)
    scale = np.where(scale > 0, scale, np.inf)
    return Finding(
        worst,
        got.size,
        float(np.mean(clear)),
        float(np.median(np.minimum(columns.uncertainty / scale, 1.0))),
        float(np.median(np.minimum(columns.rounding / scale, 1.0))),
    )


def _sums(
    point: Point, i: int, got: np.ndarray, columns: Derivative, weights: np.ndarray, rtol: float, atol: float
) -> Finding:
    """Gradients add up over outputs: one backward with all weights against the sum of the columns."""
    expected = np.where(np.isfinite(columns.value), columns.value, 0.0)
    size = np.abs(expected) @ np.abs(weights)
    noise = (TRUST * columns.uncertainty + columns.jump) @ np.abs(weights)
    allowed = rtol * size + atol * size.max() + noise
    off = over(got, expected @ weights, allowed)
    at = int(off.argmax())
    worst = ComparedEntry(
        None, None, i, _index(point, i, at), float(got[at]), float(expected[at] @ weights), float(allowed[at])
    )
    return Finding(worst, got.size, 1.0, 0.0, 0.0)


def _index(point: Point, i: int, flat: int) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(flat, point.inputs[i].shape)))


def _per_output(point: Point, entries: np.ndarray) -> np.ndarray:
    """The largest entry of each output, repeated for its elements."""
    largest = np.zeros(entries.shape)
    for i in point.floating:
        mine = point.owners == i
        largest[:, mine] = entries[:, mine].max(initial=0.0)
    return largest


DIRECTIONS = 3
"""Random directions per input, each with output gradients of its own; one more follows the gradient itself."""

PARTS = 8
"""Into how many parts a direction is cut that noise or kinks leave undecided."""


@dataclass
class Probe:
    """A direction in one input, the weights of the outputs, and the gradient that backward gave for them."""

    weights: np.ndarray
    gradient: np.ndarray
    step: np.ndarray

    @property
    def got(self) -> float:
        """The directional derivative that the gradient gives."""
        return float(np.sum(self.gradient * self.step))

    @property
    def size(self) -> float:
        """Return what is usual for a random direction."""
        return float(np.linalg.norm(self.gradient * self.step))


@dataclass(frozen=True)
class Judged:
    """A probe, its two numbers, whether noise leaves enough to compare them, and what share of a direction it is."""

    probe: Probe
    entry: ComparedEntry
    clear: bool
    noise: float
    rounding: float
    share: float = 1.0


def directional(point: Point, random: np.random.Generator, rtol: float, atol: float) -> Finding:
    """Compare weighted sums of the outputs along a few directions per input; look for the element if one is wrong."""
    probes: dict[int, list[Probe]] = {i: [] for i in point.differentiated}
    for number in range(DIRECTIONS):
        weights = point.weights(random)
        for i, gradient in zip(point.differentiated, point.backward(weights), strict=True):
            scale = sizes(point.inputs[i])
            signs = random.choice([-1.0, 1.0], scale.shape)
            probes[i].append(Probe(weights, gradient, signs * scale))
            if not number:  # finds what is wrong by a factor, however small
                probes[i].append(Probe(weights, gradient, np.sign(np.nan_to_num(gradient)) * scale))
    return merged([_along(point, i, some, rtol, atol) for i, some in probes.items()])


def _along(point: Point, i: int, probes: list[Probe], rtol: float, atol: float) -> Finding:
    """Judge directions in one input; those that cross kinks are tried again in parts, of which fewer do."""
    judgements = []
    for judged in _judge(point, i, probes, rtol, atol):
        parts = _judge(point, i, _parts(judged.probe), rtol, atol) if not judged.clear else []
        judgements += [replace(part, share=1 / len(parts)) for part in parts] or [judged]
    worst = max(judgements, key=lambda judged: judged.entry.excess)
    entry = worst.entry
    if entry.excess > 1:
        element = _located(point, i, worst.probe, rtol, atol)
        entry = element if element.excess > 1 else entry
    return Finding(
        entry,
        len(judgements),
        sum(judged.share for judged in judgements if judged.clear) / len(probes),
        float(np.median([judged.noise for judged in judgements])),
        float(np.median([judged.rounding for judged in judgements])),
    )


def _judge(point: Point, i: int, probes: list[Probe], rtol: float, atol: float) -> list[Judged]:
    slopes = _measured(point, i, probes)
    judged = []
    for n, probe in enumerate(probes):
        value, off, small, jump = (
            float(x[n]) for x in (slopes.value, slopes.uncertainty, slopes.rounding, slopes.jump)
        )
        largest = float(np.fmax(probe.size, abs(value)))
        noise = TRUST * off + jump
        entry = ComparedEntry(None, None, i, None, probe.got, value, rtol * abs(value) + atol * largest + noise)
        scale = largest or float("inf")
        clear = noise <= BLURRED * largest or largest == 0
        judged.append(Judged(probe, entry, clear, min(off / scale, 1.0), min(small / scale, 1.0)))
    return judged


def _parts(probe: Probe) -> list[Probe]:
    moved = np.flatnonzero(probe.step)
    return [_restricted(probe, part) for part in np.array_split(moved, PARTS) if part.size]


def _measured(point: Point, i: int, probes: list[Probe]) -> Derivative:
    """Derivatives along the probes' directions."""
    samples = [sample(point.evaluate, point.inputs, point.value, i, probe.step, probe.weights) for probe in probes]
    rounding = [float(np.linalg.norm(probe.weights * point.rounding)) for probe in probes]
    central = np.stack([_corrected(probe, taken) for probe, taken in zip(probes, samples, strict=True)], 1)
    bend = np.stack([taken.bend for taken in samples], 1)
    slopes = derivative(central, bend, np.array(rounding)[:, None])
    return Derivative(slopes.value[:, 0], slopes.uncertainty[:, 0], slopes.rounding[:, 0], slopes.jump[:, 0])


def _corrected(probe: Probe, taken: Samples) -> np.ndarray:
    """Central differences, corrected for steps that were rounded to the inputs' dtype."""
    rounded = np.array([np.sum(probe.gradient * (move - probe.step)) for move in taken.moved])[:, None]
    return taken.central - np.where(np.isfinite(rounded), rounded, 0.0)


def _located(point: Point, i: int, probe: Probe, rtol: float, atol: float) -> ComparedEntry:
    """The element where the gradient is wrong, by halving what moves; log2(size) rounds."""
    flat = probe.gradient.ravel()
    chosen = np.flatnonzero(~np.isfinite(flat))[:1]
    if not chosen.size:
        chosen = np.arange(flat.size)
        total = _residual(point, i, probe, chosen)
        while chosen.size > 1:
            half, rest = np.array_split(chosen, 2)
            part = _residual(point, i, probe, half)
            chosen, total = (half, part) if abs(part) >= abs(total - part) else (rest, total - part)
    unit = float(sizes(point.inputs[i]).ravel()[chosen[0]])
    step = np.where(np.arange(flat.size) == chosen[0], unit, 0.0).reshape(probe.step.shape)
    slopes = _measured(point, i, [Probe(probe.weights, probe.gradient, step)])
    expected = float(slopes.value[0]) / unit
    noise = float(TRUST * slopes.uncertainty[0] + slopes.jump[0]) / unit
    where = tuple(map(int, np.unravel_index(chosen[0], step.shape)))
    allowed = rtol * abs(expected) + atol * float(np.nanmax(np.abs(flat))) + noise
    return ComparedEntry(None, None, i, where, float(flat[chosen[0]]), expected, allowed)


def _restricted(probe: Probe, chosen: np.ndarray) -> Probe:
    step = np.zeros(probe.step.size)
    step[chosen] = probe.step.ravel()[chosen]
    return Probe(probe.weights, probe.gradient, step.reshape(probe.step.shape))


def _residual(point: Point, i: int, probe: Probe, chosen: np.ndarray) -> float:
    part = _restricted(probe, chosen)
    return float(_measured(point, i, [part]).value[0]) - part.got
