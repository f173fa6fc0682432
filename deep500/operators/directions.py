"""An operator's gradient against differences along directions: a number of calls that does not depend on sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from deep500.operators.differences import BLURRED, TRUST, Derivative, Samples, derivative, sample, sizes
from deep500.operators.findings import Entry
from deep500.operators.point import Finding, Point, merged

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
        """What the gradient says of the direction."""
        return float(np.sum(self.gradient * self.step))

    @property
    def size(self) -> float:
        """What is usual for a random direction."""
        return float(np.linalg.norm(self.gradient * self.step))


@dataclass(frozen=True)
class Judged:
    """A probe, its two numbers, whether noise leaves enough to tell them apart, and what share of a direction it is."""

    probe: Probe
    entry: Entry
    clear: bool
    noise: float
    rounding: float
    share: float = 1.0


def directional(point: Point, random: np.random.Generator, rtol: float, atol: float) -> Finding:
    """Compare weighted sums of the outputs along a few directions per input; look for the element if one is wrong."""
    probes: dict[int, list[Probe]] = {i: [] for i in point.wanted}
    for number in range(DIRECTIONS):
        weights = point.weights(random)
        for i, gradient in zip(point.wanted, point.backward(weights), strict=True):
            scale = sizes(point.inputs[i])
            signs = random.choice([-1.0, 1.0], scale.shape)
            probes[i].append(Probe(weights, gradient, signs * scale))
            if not number:  # finds what is wrong by a factor, however small
                probes[i].append(Probe(weights, gradient, np.sign(np.nan_to_num(gradient)) * scale))
    return merged([_along(point, i, some, rtol, atol) for i, some in probes.items()])


def _along(point: Point, i: int, probes: list[Probe], rtol: float, atol: float) -> Finding:
    """Judge directions in one input; those that cross kinks are tried again in parts, of which fewer do."""
    found = []
    for judged in _judge(point, i, probes, rtol, atol):
        parts = _judge(point, i, _parts(judged.probe), rtol, atol) if not judged.clear else []
        found += [replace(part, share=1 / len(parts)) for part in parts] or [judged]
    worst = max(found, key=lambda judged: judged.entry.excess)
    entry = worst.entry
    if entry.excess > 1:
        element = _located(point, i, worst.probe, rtol, atol)
        entry = element if element.excess > 1 else entry
    return Finding(
        entry,
        len(found),
        sum(one.share for one in found if one.clear) / len(probes),
        float(np.median([one.noise for one in found])),
        float(np.median([one.rounding for one in found])),
    )


def _judge(point: Point, i: int, probes: list[Probe], rtol: float, atol: float) -> list[Judged]:
    found = _measured(point, i, probes)
    judged = []
    for n, probe in enumerate(probes):
        value, off, small, jump = (float(x[n]) for x in (found.value, found.uncertainty, found.rounding, found.jump))
        largest = float(np.fmax(probe.size, abs(value)))
        noise = TRUST * off + jump
        entry = Entry(None, None, i, None, probe.got, value, rtol * abs(value) + atol * largest + noise)
        scale = largest or float("inf")
        clear = noise <= BLURRED * largest or largest == 0
        judged.append(Judged(probe, entry, clear, min(off / scale, 1.0), min(small / scale, 1.0)))
    return judged


def _parts(probe: Probe) -> list[Probe]:
    moved = np.flatnonzero(probe.step)
    return [_restricted(probe, part) for part in np.array_split(moved, PARTS) if part.size]


def _measured(point: Point, i: int, probes: list[Probe]) -> Derivative:
    """Derivatives along the probes' directions."""
    samples = [sample(point.evaluate, point.inputs, point.value, i, one.step, one.weights) for one in probes]
    rounding = [float(np.linalg.norm(one.weights * point.rounding)) for one in probes]
    central = np.stack([_corrected(one, taken) for one, taken in zip(probes, samples, strict=True)], 1)
    bend = np.stack([taken.bend for taken in samples], 1)
    found = derivative(central, bend, np.array(rounding)[:, None])
    return Derivative(found.value[:, 0], found.uncertainty[:, 0], found.rounding[:, 0], found.jump[:, 0])


def _corrected(probe: Probe, taken: Samples) -> np.ndarray:
    """Central differences, less what comes of steps that were rounded to the inputs' dtype."""
    rounded = np.array([np.sum(probe.gradient * (move - probe.step)) for move in taken.moved])[:, None]
    return taken.central - np.where(np.isfinite(rounded), rounded, 0.0)


def _located(point: Point, i: int, probe: Probe, rtol: float, atol: float) -> Entry:
    """The element where the gradient is wrong, found by halving what moves; log2(size) rounds."""
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
    found = _measured(point, i, [Probe(probe.weights, probe.gradient, step)])
    expected = float(found.value[0]) / unit
    noise = float(TRUST * found.uncertainty[0] + found.jump[0]) / unit
    where = tuple(map(int, np.unravel_index(chosen[0], step.shape)))
    allowed = rtol * abs(expected) + atol * float(np.nanmax(np.abs(flat))) + noise
    return Entry(None, None, i, where, float(flat[chosen[0]]), expected, allowed)


def _restricted(probe: Probe, chosen: np.ndarray) -> Probe:
    step = np.zeros(probe.step.size)
    step[chosen] = probe.step.ravel()[chosen]
    return Probe(probe.weights, probe.gradient, step.reshape(probe.step.shape))


def _residual(point: Point, i: int, probe: Probe, chosen: np.ndarray) -> float:
    part = _restricted(probe, chosen)
    return float(_measured(point, i, [part]).value[0]) - part.got
