"""Loss and accuracy of many batches, without waiting for the device at each.

Tensors are kept as they come and read together: when a mean is wanted, or when they hold too many elements. So outputs
of an executor must be tensors of their own, not buffers that the next run overwrites.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deep500.errors import TrainingError

PENDING_ELEMENTS, PENDING_BATCHES, MOST_ELEMENTS = 2**16, 64, 2**24
"""Unread outputs are read once they are both many elements (caches) and many batches (waits), or too many elements."""


def batch_length(inputs: Mapping[str, Any], label: str) -> int:
    """Number of samples in a batch: the first size of the label, or of the first input that has one."""
    for value in (inputs.get(label), *inputs.values()):
        if getattr(value, "shape", None):
            return int(value.shape[0])
    return 1


class Tally:
    """Sums up batches.

    Args:
        to_numpy: makes an array of a tensor; waits for the device.
        output: name of the class scores (batch, classes, ...); None: accuracy is not measured.
        loss: name of the batch's mean loss.
        label: name of the input with the class numbers (batch, ...).
        what: what it sums, for the error message: ``"training, epoch 3"``.
    """

    def __init__(
        self, to_numpy: Callable[[Any], np.ndarray], output: str | None, loss: str, label: str, what: str
    ) -> None:
        self.to_numpy, self.output, self.loss_name, self.label, self.what = to_numpy, output, loss, label, what
        self.samples = 0
        self._pending: list[tuple[int, int, Any, Any, Any]] = []
        self._elements = 0
        self._seen, self._loss_sum, self._correct, self._judged = 0, 0.0, 0, 0

    def add(self, step: int, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Take in a batch; ``step`` names it if its loss is not finite."""
        size = batch_length(inputs, self.label)
        scores = None if self.output is None else outputs.get(self.output)
        labels = inputs.get(self.label) if scores is not None else None
        if isinstance(labels, np.ndarray):
            labels = labels.copy()  # loaders may use their buffers again
        self.samples += size
        self._pending.append((step, size, outputs.get(self.loss_name), scores, labels))
        self._elements += 1 if scores is None else math.prod(scores.shape)
        many = self._elements > PENDING_ELEMENTS and len(self._pending) >= PENDING_BATCHES
        if many or self._elements > MOST_ELEMENTS:
            self.flush()

    def flush(self) -> None:
        """Read what is pending; raises TrainingError naming the first step whose loss is not finite."""
        pending, self._pending, self._elements = self._pending, [], 0
        for step, size, loss, scores, labels in pending:
            if loss is not None:
                value = float(self.to_numpy(loss).item())
                if not math.isfinite(value):
                    raise TrainingError(
                        f"{self.what}, step {step}: got loss {value}; expected a finite number: lower the learning "
                        "rate, clip the gradients or look for bad samples"
                    )
                self._loss_sum += value * size
                self._seen += size
            if scores is not None and labels is not None:
                self._judge(self.to_numpy(scores), self.to_numpy(labels))

    def combine(self, totals: Callable[[np.ndarray], np.ndarray]) -> None:
        """Make these sums those of all processes; ``totals`` adds float64 values up over them."""
        self.flush()
        counts = [self.samples, self._seen, self._loss_sum, self._correct, self._judged]
        sums = totals(np.array(counts, np.float64)).tolist()
        self.samples, self._seen, self._loss_sum = int(sums[0]), int(sums[1]), sums[2]
        self._correct, self._judged = int(sums[3]), int(sums[4])

    def _judge(self, scores: np.ndarray, labels: np.ndarray) -> None:
        if labels.dtype.kind in "iu" and scores.ndim > 1 and labels.shape == (scores.shape[0], *scores.shape[2:]):
            self._correct += int(np.count_nonzero(scores.argmax(axis=1) == labels))
            self._judged += labels.size

    def loss(self) -> float | None:
        """Mean loss over the samples so far; None if there were none."""
        self.flush()
        return self._loss_sum / self._seen if self._seen else None

    def accuracy(self) -> float | None:
        """Percent of labels that had the highest score; None where that has no meaning."""
        self.flush()
        return 100.0 * self._correct / self._judged if self._judged else None
