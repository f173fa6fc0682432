"""Classification: scores per class, judged by the percentage of labels that have the highest one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.tasks.task import Quality, Sums, Task

if TYPE_CHECKING:
    from deep500.networks.network import Network


class Classification(Task):
    """One class per sample, or per place of it (pixels, time steps).

    A batch holds class numbers (items, ...) as the label; the output is scores (items, classes, ...). The loss is cross
    entropy of the scores, Softmax included. Where labels and scores have other shapes or types, the accuracy has no
    meaning and is None.

    Args:
        label, output, loss: see :class:`~deep500.tasks.task.Task`.
        kind: of the loss that is added, see :func:`deep500.networks.add_loss`.
        classes: their number; with it the report shows which class is taken for which.

    Example:
        >>> task = Classification(output="scores")
        >>> scores = np.array([[0.1, 0.9], [0.8, 0.2]])
        >>> sums = task.judge({"label": np.array([1, 1])}, {"scores": scores})
        >>> task.measure(sums, None), task.decode({}, {"scores": scores})
        ({'accuracy': 50.0}, [1, 0])
    """

    name = "classification"
    qualities = (Quality("accuracy", "%"),)

    def __init__(
        self,
        label: str = "label",
        output: str | None = None,
        loss: str = "loss",
        *,
        kind: str = "cross_entropy",
        classes: int | None = None,
    ) -> None:
        super().__init__(label, output, loss)
        self.kind, self.classes = kind, classes

    def add_loss(self, network: Network) -> Network:
        """The network with its loss."""
        from deep500.networks import add_loss

        return add_loss(network, self.kind, self.output, self.label, self.loss)

    def zero(self) -> dict[str, np.ndarray]:
        """No label seen."""
        return {"correct": np.zeros(()), "judged": np.zeros(())}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Labels that have the highest score, and all labels."""
        scores, labels = (outputs.get(self.output) if self.output else None), batch.get(self.label)
        if scores is None or labels is None or not scores_fit(scores, labels):
            return {}
        return {"correct": np.count_nonzero(scores.argmax(axis=1) == labels), "judged": labels.size}

    def measure(self, sums: Sums, loss: float | None) -> dict[str, float | None]:
        """The accuracy in percent."""
        judged = float(sums["judged"])
        return {"accuracy": 100.0 * float(sums["correct"]) / judged if judged else None}

    def decode(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> list[Any]:
        """The class with the highest score, per item; an array of them where an item has several places."""
        return [] if self.output is None else outputs[self.output].argmax(axis=1).tolist()


def scores_fit(scores: np.ndarray, labels: np.ndarray) -> bool:
    """Whether labels (items, ...) are class numbers for scores (items, classes, ...)."""
    return labels.dtype.kind in "iu" and scores.ndim > 1 and labels.shape == (scores.shape[0], *scores.shape[2:])
