"""Classification: scores per class, judged by the percentage of labels that have the highest one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from deep500.tasks.gallery import Exhibit, Gallery, picture
from deep500.tasks.task import Quality, Sums, Task

if TYPE_CHECKING:
    from deep500.networks.network import Network


MOST_CLASSES, SHOWN, MOST_PIXELS = 100, 12, 3 * 32 * 32
"""Classes of a matrix that can still be read, pictures that are shown, and the pixels of the largest."""

WIDTH = 6 + MOST_PIXELS


class Classification(Task):
    """One class per sample, or per place of it (pixels, time steps).

    A batch holds class numbers (items, ...) as the label; the output is scores (items, classes, ...). The loss is cross
    entropy of the scores, Softmax included. Where labels and scores have other shapes or types, the accuracy has no
    meaning and is None. Labels that count for nothing in the loss (its ``ignore_index``) count for nothing here.

    Args:
        label, output, loss: see :class:`~deep500.tasks.task.Task`.
        kind: of the loss that is added, see :func:`deep500.networks.add_loss`.
        classes: their number; with it the report shows which class is taken for which.
        pictures: the input that holds pictures (items, channels, height, width); with it the report shows those whose
            label surprises the network most.

    Attributes:
        ignore_index: the label that counts for nothing; a trainer reads it off the network's loss.

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
        pictures: str | None = None,
    ) -> None:
        super().__init__(label, output, loss)
        self.kind, self.classes, self.pictures = kind, classes, pictures
        self.ignore_index: int | None = None

    def add_loss(self, network: Network) -> Network:
        """The network with its loss."""
        from deep500.networks import add_loss

        return add_loss(network, self.kind, self.output, self.label, self.loss)

    def zero(self) -> dict[str, np.ndarray]:
        """No label seen."""
        return {"correct": np.zeros(()), "judged": np.zeros(())}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Labels that have the highest score, and all labels that count."""
        scores, labels = (outputs.get(self.output) if self.output else None), batch.get(self.label)
        if scores is None or labels is None or not scores_fit(scores, labels):
            return {}
        right, counting = scores.argmax(axis=1) == labels, self.counting(labels)
        return {"correct": np.count_nonzero(right & counting), "judged": np.count_nonzero(counting)}

    def counting(self, labels: np.ndarray) -> np.ndarray:
        """Where labels count: all but the one that the loss ignores."""
        return np.ones(labels.shape, bool) if self.ignore_index is None else labels != self.ignore_index

    def measure(self, sums: Sums, loss: float | None) -> dict[str, float | None]:
        """The accuracy in percent."""
        judged = float(sums["judged"])
        return {"accuracy": 100.0 * float(sums["correct"]) / judged if judged else None}

    def gallery(self) -> Gallery | None:
        """The confusion matrix of up to 100 classes, and pictures."""
        return Mistakes(self) if self.classes is not None and self.classes <= MOST_CLASSES else None

    def decode(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> list[Any]:
        """The class with the highest score, per item; an array of them where an item has several places."""
        return [] if self.output is None else outputs[self.output].argmax(axis=1).tolist()


class Mistakes(Gallery):
    """The classes taken for others, and the pictures of the largest loss."""

    task: Classification

    def judged_inputs(self) -> tuple[str, ...]:
        """The labels, and the pictures."""
        return (self.task.label, *([self.task.pictures] if self.task.pictures else []))

    def zero(self) -> dict[str, np.ndarray]:
        """No label seen; rows hold loss, label, class with the highest score, shape and pixels of a picture."""
        size = self.task.classes or 0
        return {"confusion": np.zeros((size, size)), **({"worst": np.zeros((0, WIDTH))} if self.task.pictures else {})}

    def judge(self, batch: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray]) -> Mapping[str, Any]:
        """Pairs of labels and classes, and the pictures of a batch that surprise most."""
        scores, labels = outputs.get(self.task.output or ""), batch.get(self.task.label)
        size = self.task.classes or 0
        if scores is None or labels is None or not scores_fit(scores, labels) or scores.shape[1] != size:
            return {}
        predicted, counting = scores.argmax(axis=1), self.task.counting(labels)
        pairs = np.bincount((labels * size + predicted)[counting], minlength=size * size)
        added: dict[str, Any] = {"confusion": pairs.reshape(size, size)}
        pictures = batch.get(self.task.pictures or "")
        if pictures is not None and labels.ndim == 1:
            pictures, scores, labels, predicted = (a[counting] for a in (pictures, scores, labels, predicted))
        if pictures is not None and len(pictures) and labels.ndim == 1 and pictures[0].size <= MOST_PIXELS:
            top = scores.max(axis=1, keepdims=True)
            total = top[:, 0] + np.log(np.exp(scores - top).sum(axis=1, dtype=np.float64))
            losses = total - scores[np.arange(len(labels)), labels]
            worst = np.argsort(-losses, kind="stable")[:SHOWN]
            rows = np.zeros((len(worst), WIDTH))
            rows[:, :3] = np.stack([losses[worst], labels[worst], predicted[worst]], axis=1)
            rows[:, 3:6] = pictures.shape[1:]
            rows[:, 6 : 6 + pictures[0].size] = pictures[worst].reshape(len(worst), -1)
            added["worst"] = rows
        return added

    def shrink(self, name: str, rows: np.ndarray) -> np.ndarray:
        """The rows of the largest loss."""
        return rows[np.argsort(-rows[:, 0], kind="stable")][:SHOWN]

    def exhibits(self, sums: Sums) -> list[Exhibit]:
        """The confusion matrix, and the worst pictures."""
        names = [str(number) for number in range(self.task.classes or 0)]
        shown: list[Exhibit] = []
        if sums["confusion"].any():
            about = {"rows": names, "columns": names, "row_axis": "label", "column_axis": "taken for"}
            title = "Which class is taken for which?"
            shown.append({"kind": "matrix", "title": title, "values": sums["confusion"].tolist(), **about})
        worst = self.shrink("worst", sums.get("worst", np.zeros((0, WIDTH))))
        pictures = [
            picture(row[6 : 6 + int(np.prod(row[3:6]))].reshape(row[3:6].astype(int)), _caption(row)) for row in worst
        ]
        if pictures:
            shown.append({"kind": "pictures", "title": "Which labels surprise most?", "pictures": pictures})
        return shown


def _caption(row: np.ndarray) -> str:
    taken = "" if row[1] == row[2] else f" taken for {row[2]:.0f}"
    return f"{row[1]:.0f}{taken}, loss {row[0]:.3g}"


def scores_fit(scores: np.ndarray, labels: np.ndarray) -> bool:
    """Return whether labels (items, ...) are class numbers for scores (items, classes, ...)."""
    return labels.dtype.kind in "iu" and scores.ndim > 1 and labels.shape == (scores.shape[0], *scores.shape[2:])
