"""Loss and qualities of many batches, without waiting for the device at each.

Tensors are kept as they come and read together: when a mean is wanted, or when they hold too many elements. So outputs
of an executor must be tensors of their own, not buffers that the next run overwrites.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.errors import InputError, TrainingError
from deep500.tasks.classification import Classification
from deep500.tasks.task import Task
from deep500.tasks.task import batch_length as batch_length

if TYPE_CHECKING:
    from deep500.training.batch_weights import BatchWeights

PENDING_ELEMENTS, PENDING_BATCHES, MOST_ELEMENTS = 2**16, 64, 2**24
"""Unread outputs are read once they are both many elements (caches) and many batches (waits), or too many elements."""


class Tally:
    """Sums up batches.

    Args:
        to_numpy: makes an array of a tensor; waits for the device.
        output: name of the output that is judged; None: nothing but the loss is.
        loss: name of the batch's mean loss.
        label: name of the input with what is wanted.
        what: what it sums, for the error message: ``"training, epoch 3"``.
        judge: a task, bound, or what is judged like one; classification by ``output`` and ``label`` if None.
        judged: whether outputs are judged, or the loss alone.

    Attributes:
        weights: what batches count in the mean loss; their samples if None.
    """

    def __init__(
        self,
        to_numpy: Callable[[Any], np.ndarray],
        output: str | None,
        loss: str,
        label: str,
        what: str,
        judge: Task | None = None,
        judged: bool = True,
    ) -> None:
        self.to_numpy, self.loss_name, self.what = to_numpy, loss, what
        self.judge = Classification(label, output, loss) if judge is None else judge
        self._outputs = self.judge.judged_outputs() if judged else ()
        self._inputs = self.judge.judged_inputs() if self._outputs else ()
        self._count, self._shrink = self.judge.count, getattr(self.judge, "shrink", None)
        self.sums = self.judge.zero()
        self._rows: dict[str, list[np.ndarray]] = {
            name: [] for name, value in self.sums.items() if value.ndim and not len(value)
        }
        self._counts: dict[str, int] = {}
        self.samples = 0
        self.weights: BatchWeights | None = None
        self._pending: list[tuple[int, float, Any, list[Any], list[Any]]] = []
        self._elements = 0
        self._seen, self._loss_sum = 0.0, 0.0

    def add(self, step: int, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Take in a batch; ``step`` names it if its loss is not finite."""
        size = self._count(inputs)
        weight = self.weights(inputs) if self.weights is not None and self.weights.counted else size
        results = [outputs.get(name) for name in self._outputs]
        # loaders may use their buffers again
        arrays = [v.copy() if isinstance(v := inputs.get(name), np.ndarray) else v for name in self._inputs]
        self.samples += size
        self._pending.append((step, weight, outputs.get(self.loss_name), results, arrays))
        self._elements += 1
        for tensor in results:
            if tensor is not None:
                self._elements += math.prod(tensor.shape)
        many = self._elements > PENDING_ELEMENTS and len(self._pending) >= PENDING_BATCHES
        if many or self._elements > MOST_ELEMENTS:
            self.flush()

    def flush(self) -> None:
        """Read what is pending; raises TrainingError naming the first step whose loss is not finite, though something
        counts in it."""
        pending, self._pending, self._elements = self._pending, [], 0
        sums = self.weights is not None and self.weights.denominator.kind == "nothing"
        for step, weight, loss, outputs, inputs in pending:
            if loss is not None and weight:
                value = float(self.to_numpy(loss).item())
                if not math.isfinite(value):
                    raise TrainingError(
                        f"{self.what}, step {step}: got loss {value}; expected a finite number: lower the learning "
                        "rate, clip the gradients or look for bad samples"
                    )
                self._loss_sum += value if sums else value * weight
                self._seen += weight
            judged = {}
            for name, tensor in zip(self._outputs, outputs, strict=False):
                if tensor is None:
                    break  # a rank may have had no sample
                judged[name] = self.to_numpy(tensor)
            else:
                if judged:
                    self._take(inputs, judged)

    def _take(self, inputs: list[Any], outputs: dict[str, np.ndarray]) -> None:
        arrays = {n: self.to_numpy(v) for n, v in zip(self._inputs, inputs, strict=False) if v is not None}
        sums, rows = self.sums, self._rows
        for name, value in self.judge.judge(arrays, outputs).items():
            if name not in rows:
                sums[name] = sums[name] + value
            elif len(value):
                self._append(name, np.asarray(value, np.float64))

    def _append(self, name: str, rows: np.ndarray) -> None:
        parts = self._rows[name]
        parts.append(rows)
        self._counts[name] = self._counts.get(name, 0) + len(rows)
        if len(parts) >= PENDING_BATCHES and self._shrink is not None:
            parts[:] = [self._shrink(name, np.concatenate(parts))]
            self._counts[name] = len(parts[0])
        if self._counts[name] > self.judge.most_rows:
            raise InputError(
                f"{self.what}: got more than {self.judge.most_rows} rows of {name}; expected no more, which is "
                f"{type(self.judge).__name__}.most_rows: raise it, or keep fewer rows of a batch"
            )

    def combine(self, totals: Callable[[np.ndarray], np.ndarray], rank: int = 0) -> None:
        """Make these sums those of all processes; ``totals`` adds float64 values up over them, of which this is one."""
        self.flush()
        self._join_rows()
        added = [name for name in self.sums if name not in self._rows]
        parts = [np.array([self.samples, self._seen, self._loss_sum], np.float64)]
        parts += [np.asarray(self.sums[name], np.float64).ravel() for name in added]
        sums = totals(np.concatenate(parts))
        self.samples, self._seen, self._loss_sum = int(sums[0]), float(sums[1]), float(sums[2])
        at = 3
        for name in added:
            shape, size = np.shape(self.sums[name]), np.size(self.sums[name])
            self.sums[name] = np.array(sums[at : at + size]).reshape(shape)
            at += size
        for name in self._rows:
            self.sums[name] = gathered(self.sums[name], totals, rank)

    def _join_rows(self) -> None:
        for name, parts in self._rows.items():
            if parts:
                self.sums[name] = np.concatenate([self.sums[name], *parts])
                parts.clear()

    def loss(self) -> float | None:
        """Mean loss over what counted so far; None if nothing did."""
        self.flush()
        return self._loss_sum / self._seen if self._seen else None

    def qualities(self) -> dict[str, float | None]:
        """The task's qualities over the batches so far; None where one has no meaning."""
        loss = self.loss()
        self._join_rows()
        return self.judge.measure(self.sums, loss)

    def accuracy(self) -> float | None:
        """Percent of labels that had the highest score; None where that has no meaning, as in other tasks."""
        return self.qualities().get("accuracy")


def gathered(rows: np.ndarray, totals: Callable[[np.ndarray], np.ndarray], rank: int) -> np.ndarray:
    """The rows of all processes in the order of ranks, made of sums alone: each adds its own to zeros."""
    ranks = round(float(totals(np.ones(1))[0]))
    lengths = np.zeros(ranks)
    lengths[rank] = len(rows)
    ends = np.cumsum(np.rint(totals(lengths)).astype(np.int64))
    if not ends[-1]:
        return rows
    every = np.zeros((ends[-1], *rows.shape[1:]))
    every[ends[rank] - len(rows) : ends[rank]] = rows
    return totals(every.ravel()).reshape(every.shape)
