"""An operator at one point, as checks of its gradient see it: one vector of values, and a backward of such vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from deep500.operators.base import CustomOp
from deep500.operators.differences import epsilon, is_floating
from deep500.operators.findings import Entry


@dataclass
class Finding:
    """What comparing a gradient found; see :class:`~deep500.operators.findings.OpCheck`."""

    worst: Entry
    compared: int
    judged: float
    noise: float
    rounding: float


@dataclass
class Point:
    """An operator at one point: its floating outputs as one vector, and its backward as a function of such vectors.

    Attributes:
        op, inputs: the operator and its arrays.
        wanted: positions of the inputs to differentiate by.
        outputs: what forward gives there.
        value: the floating ones of them in one float64 vector.
        owners: which output each element of ``value`` belongs to.
        rounding: how far ``value`` may be off by its dtype alone.
    """

    op: CustomOp
    inputs: list[np.ndarray]
    wanted: list[int]
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
        return [*(self.inputs[i] for i in self.wanted), *(self.outputs[i] for i in self.floating)]

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
        found = self.op.run_backward(grads, self.inputs, self.outputs)
        return [found[i].astype(np.float64) for i in self.wanted]

    def weights(self, random: np.random.Generator) -> np.ndarray:
        """Random output gradients of size one half to two, either sign, exact in every dtype."""
        return random.integers(8, 32, self.size) / 16 * random.choice([-1.0, 1.0], self.size)

    def place(self, flat: int) -> tuple[int, tuple[int, ...]]:
        """Which output, and where in it, an element of ``value`` is."""
        output = int(self.owners[flat])
        inside = flat - int(np.searchsorted(self.owners, output))
        return output, tuple(map(int, np.unravel_index(inside, self.outputs[output].shape)))

    def problems(self) -> list[str]:
        """Manners that every operator must have: finite, repeatable, and not writing to its inputs."""
        found = []
        if not np.isfinite(self.value).all() and self.wanted:
            found.append("forward gives values that are not finite at these inputs; check at others")
        if not np.array_equal(self.evaluate(self.inputs), self.value, equal_nan=True):
            found.append("forward gives other values when called again; expected the same")
        changed = [
            i for i, (x, y) in enumerate(zip(self.inputs, self._kept, strict=True)) if x.tobytes() != y.tobytes()
        ]
        if changed:
            found.append(f"inputs {changed} were changed by the operator; expected that it only reads them")
        return found


def merged(findings: Sequence[Finding]) -> Finding:
    """Several findings as one."""
    return Finding(
        max((one.worst for one in findings), key=lambda entry: entry.excess),
        sum(one.compared for one in findings),
        min(one.judged for one in findings),
        max(one.noise for one in findings),
        max(one.rounding for one in findings),
    )


def over(got: np.ndarray, expected: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Differences over what is allowed; 0 where nothing is expected, infinite where what was got is no number."""
    off = np.abs(got - expected) / np.where(allowed > 0, allowed, np.finfo(np.float64).tiny)
    return np.where(np.isfinite(got), np.where(np.isfinite(expected), off, 0.0), np.inf)
