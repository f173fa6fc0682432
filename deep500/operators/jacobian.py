"""An operator's gradient against differences, entry by entry."""

from __future__ import annotations

import numpy as np

from deep500.operators.differences import BLURRED, TRUST, Derivative, derivative, sample, sizes
from deep500.operators.findings import Entry
from deep500.operators.point import Finding, Point, merged, over


def full(point: Point, random: np.random.Generator, rtol: float, atol: float) -> Finding:
    """Compare every entry of the Jacobian, and one weighted sum of its rows."""
    weights = point.weights(random)
    rows = [point.backward(np.where(np.arange(point.size) == j, weights, 0)) for j in range(point.size)]
    summed = point.backward(weights)
    findings = []
    for k, i in enumerate(point.wanted):
        found = _columns(point, i)
        got = np.stack([row[k].ravel() for row in rows], axis=1) / weights
        findings.append(_entries(point, i, got, found, rtol, atol))
        findings.append(_sums(point, i, summed[k].ravel(), found, weights, rtol, atol))
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
    found = derivative(np.stack(central, 1), np.stack(bend, 1), point.rounding, point.owners)
    per_unit = (part / scale[:, None] for part in (found.value, found.uncertainty, found.rounding, found.jump))
    return Derivative(*per_unit)


def _entries(point: Point, i: int, got: np.ndarray, found: Derivative, rtol: float, atol: float) -> Finding:
    size = np.where(np.isfinite(found.value), np.abs(found.value), 0.0)
    largest = _per_output(point, size)
    noise = TRUST * found.uncertainty + found.jump
    allowed = rtol * size + atol * largest + noise
    element, output_element = divmod(int(over(got, found.value, allowed).argmax()), point.size)
    at = (element, output_element)
    worst = Entry(
        *point.place(output_element),
        i,
        _index(point, i, element),
        float(got[at]),
        float(found.value[at]),
        float(allowed[at]),
    )
    scale = np.maximum(largest, _per_output(point, np.abs(np.nan_to_num(got))))
    clear = (noise <= BLURRED * scale) | (scale == 0)
    scale = np.where(scale > 0, scale, np.inf)
    return Finding(
        worst,
        got.size,
        float(np.mean(clear)),
        float(np.median(np.minimum(found.uncertainty / scale, 1.0))),
        float(np.median(np.minimum(found.rounding / scale, 1.0))),
    )


def _sums(
    point: Point, i: int, got: np.ndarray, found: Derivative, weights: np.ndarray, rtol: float, atol: float
) -> Finding:
    """Gradients add up over outputs: one backward with all weights against the sum of the columns."""
    expected = np.where(np.isfinite(found.value), found.value, 0.0)
    size = np.abs(expected) @ np.abs(weights)
    noise = (TRUST * found.uncertainty + found.jump) @ np.abs(weights)
    allowed = rtol * size + atol * size.max() + noise
    off = over(got, expected @ weights, allowed)
    at = int(off.argmax())
    worst = Entry(
        None, None, i, _index(point, i, at), float(got[at]), float(expected[at] @ weights), float(allowed[at])
    )
    return Finding(worst, got.size, 1.0, 0.0, 0.0)


def _index(point: Point, i: int, flat: int) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(flat, point.inputs[i].shape)))


def _per_output(point: Point, entries: np.ndarray) -> np.ndarray:
    """The largest entry of each output, repeated for its elements."""
    found = np.zeros(entries.shape)
    for i in point.floating:
        mine = point.owners == i
        found[:, mine] = entries[:, mine].max(initial=0.0)
    return found
