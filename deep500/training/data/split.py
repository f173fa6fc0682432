"""A part of a data set, and how to hold one out for validation: by a share, equal in every class, always the same."""

from __future__ import annotations

import hashlib

import numpy as np

from deep500.errors import DataError, InputError
from deep500.training.data.dataset import Batch, Dataset, Index, as_index

SPLIT_SEED = 500


class Subset(Dataset):
    """Some samples of a data set, in the order given.

    Args:
        dataset: the whole.
        positions: of the samples in it.
        part: what they are, for results: ``"held out"``.

    Attributes:
        lengths: those of the samples, where the whole has lengths.
        alphabet, vocabulary, target, seen: those of the whole, where it has them.

    Raises:
        DataError: no positions.

    Example:
        >>> from deep500.training.data import NumpyDataset
        >>> Subset(NumpyDataset(np.arange(5)), [4, 0])[0:2]["input"].tolist()
        [4, 0]
    """

    def __init__(self, dataset: Dataset, positions: np.ndarray | list[int], part: str = "part") -> None:
        self.dataset, self.positions = dataset, np.asarray(positions, np.intp)
        if not len(self.positions):
            raise DataError(f"got an empty part of {dataset.name!r}; expected at least one sample: take a larger share")
        self.name, self.classes, self.shape = dataset.name, dataset.classes, dataset.shape
        self.input_name, self.label_name = dataset.input_name, dataset.label_name
        self.stand_in = dataset.stand_in
        self.provenance = f"{dataset.provenance}; {part}: {len(self.positions)} of {len(dataset)}"
        self.alphabet = getattr(dataset, "alphabet", None)
        self.vocabulary = getattr(dataset, "vocabulary", None)
        self.source, self.target, self.seen = (getattr(dataset, name, None) for name in ("source", "target", "seen"))
        lengths = getattr(dataset, "lengths", None)
        self.lengths = None if lengths is None else np.asarray(lengths)[self.positions]

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: Index) -> Batch:
        where = as_index(index)
        chosen = self.positions[where]
        return self.dataset[int(chosen) if isinstance(where, int) else chosen]

    def label_counts(self, at: np.ndarray | None = None) -> list[int] | None:
        return self.dataset.label_counts(self.positions if at is None else self.positions[at])

    def digest(self) -> str:
        return hashlib.sha256(self.dataset.digest().encode() + self.positions.astype("<i8").tobytes()).hexdigest()


def hold_out(dataset: Dataset, share: float) -> tuple[Subset, Subset]:
    """Two parts of a data set: what is left to train on, and a share for validation.

    The same share of every class is held out where the data set has class labels in memory, one a sample; the choice
    depends on the number of samples and the labels only.

    Raises:
        InputError: a share that is not between 0 and 1, or that leaves one part empty.

    Example:
        >>> from deep500.training.data import load_dataset
        >>> train, validation = hold_out(load_dataset("digits")[0], 0.1)
        >>> len(train), len(validation)
        (1295, 143)
    """
    if not 0 < share < 1:
        raise InputError(f"got share {share!r} to hold out; expected a number between 0 and 1, such as 0.1")
    rng, labels = np.random.default_rng(SPLIT_SEED), getattr(dataset, "labels", None)
    groups = [np.arange(len(dataset))]
    if labels is not None and labels.ndim == 1 and labels.dtype.kind in "iu":
        groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    validation = np.sort(np.concatenate([rng.permutation(group)[: round(share * len(group))] for group in groups]))
    if not 0 < len(validation) < len(dataset):
        raise InputError(
            f"got share {share} of {len(dataset)} samples to hold out, which is {len(validation)}; expected both parts "
            "to have some: take another share"
        )
    rest = np.setdiff1d(np.arange(len(dataset)), validation)
    return Subset(dataset, rest, "trained on"), Subset(dataset, validation, "held out for validation")
