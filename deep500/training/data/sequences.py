"""Data sets of sequences of different lengths: padding, lengths and transcripts are arrays of the batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from deep500.errors import DataError, InputError
from deep500.tasks.alphabet import Alphabet
from deep500.training.data.dataset import Batch, Dataset, Index, as_index, check_labels

Labels = Sequence[int] | np.ndarray | Sequence[np.ndarray]


class SequenceDataset(Dataset):
    """Sequences of frames, each with a class or with a transcript.

    A batch holds ``input`` (items, frames, features) float32, zeros behind the end of each item; ``input_length``
    (items,) int64; and ``label``: class numbers (items,), or transcripts (items, S), zeros behind the end, with
    ``label_length`` (items,). One sample has no batch axis and no padding. Subclasses that keep their samples in files
    override :meth:`sequence` and :attr:`lengths`.

    Args:
        sequences: arrays (frames, features).
        labels: a class for each, or an array of classes for each.
        name, classes, provenance: see :class:`Dataset`.
        alphabet: what the classes of transcripts stand for.
        frames: every batch has that many: longer sequences lose their end. None: as many as the longest in it.
        multiple: without ``frames``, batches have a multiple of that many, so that there are few different shapes to
            compile for.

    Raises:
        DataError: no sequences, one without frames or of another width, a class out of range or without samples, or a
            transcript that is longer than its frames.

    Example:
        >>> data = SequenceDataset([np.ones((2, 3)), np.ones((4, 3))], [0, 1])
        >>> batch = data[:]
        >>> batch["input"].shape, batch["input_length"].tolist(), batch["input"][0, :, 0].tolist()
        ((2, 4, 3), [2, 4], [1.0, 1.0, 0.0, 0.0])
    """

    length_name = "input_length"

    def __init__(
        self,
        sequences: Sequence[np.ndarray],
        labels: Labels,
        *,
        name: str = "sequences",
        classes: int | None = None,
        alphabet: Alphabet | None = None,
        frames: int | None = None,
        multiple: int = 1,
        provenance: str = "arrays given by the caller",
    ) -> None:
        self.sequences = [np.asarray(sequence, np.float32) for sequence in sequences]
        self._prepare(len(self.sequences), labels, name, classes, alphabet, frames, multiple, provenance)
        for i, sequence in enumerate(self.sequences):
            self.check(i, sequence, f"{name}, sequence {i}")

    def _prepare(
        self,
        count: int,
        labels: Labels,
        name: str,
        classes: int | None,
        alphabet: Alphabet | None,
        frames: int | None,
        multiple: int,
        provenance: str,
    ) -> None:
        self.name, self.alphabet, self.provenance = name, alphabet, provenance
        self.frames, self.multiple = frames, multiple
        if not count or len(labels) != count:
            raise DataError(f"{name}: got {count} sequences and {len(labels)} labels; expected some, one label for each")
        if (frames is not None and frames < 1) or multiple < 1:
            raise InputError(f"{name}: got frames={frames}, multiple={multiple}; expected at least 1: correct it")
        self.classes = alphabet.classes if alphabet is not None and classes is None else classes
        self.transcripts: list[np.ndarray] | None = None
        if np.ndim(labels[0]):
            self.transcripts = [np.asarray(row, np.int64) for row in labels]
            flat = np.concatenate(self.transcripts)
            self.classes = int(flat.max(initial=0)) + 1 if self.classes is None else self.classes
            if (flat < 1).any() or (flat >= self.classes).any():
                check_labels(flat - 1, self.classes - 1, f"{name}, transcripts less 1 for the blank")
        else:
            self.labels = np.asarray(labels, np.int64)
            self.classes = int(self.labels.max()) + 1 if self.classes is None else self.classes
            check_labels(self.labels, self.classes, name)
            absent = sorted(set(range(self.classes)) - set(self.labels.tolist()))
            if absent:
                raise DataError(
                    f"{name}: got no sample of class {', '.join(map(str, absent))}; expected some of each of "
                    f"{self.classes} classes: add samples, or number the classes without gaps"
                )
        self.features: int | None = None
        self._digest: str | None = None

    def check(self, i: int, sequence: np.ndarray, where: str) -> None:
        """Raise DataError unless a sequence has frames, the width of the first one, and room for its transcript."""
        if sequence.ndim != 2 or not len(sequence):
            raise DataError(
                f"{where}: got an utterance of shape {sequence.shape}; expected (frames, features) and at least one "
                "frame: remove it, or look why it is empty"
            )
        self.features = sequence.shape[1] if self.features is None else self.features
        if sequence.shape[1] != self.features:
            raise DataError(f"{where}: got {sequence.shape[1]} features; expected {self.features} as in the first one")
        if not np.isfinite(sequence).all():
            raise DataError(f"{where}: got values that are not finite; expected numbers: remove it")
        if self.transcripts is not None:
            labels = self.transcripts[i]
            needed = len(labels) + int(np.count_nonzero(labels[1:] == labels[:-1]))
            heard = len(sequence) if self.frames is None else min(self.frames, len(sequence))
            if needed > heard:
                raise DataError(
                    f"{where}: got a transcript of {len(labels)} labels, which need {needed} frames (a blank between "
                    f"equal ones), for {heard}; expected no more than there are: cut the recording elsewhere, or "
                    "remove it"
                )

    @property
    def lengths(self) -> np.ndarray:
        """Frames of every sequence (int64), as batches have them; samplers that put like to like ask for them."""
        lengths = np.array([len(sequence) for sequence in self.sequences])
        return lengths if self.frames is None else np.minimum(lengths, self.frames)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """(frames, features): ``frames``, or those of the longest sequence."""
        return (int(self.lengths.max()) if self.frames is None else self.frames, int(self.features or 0))

    def __len__(self) -> int:
        return len(self.labels if self.transcripts is None else self.transcripts)

    def sequence(self, i: int) -> np.ndarray:
        """All frames of a sequence."""
        return self.sequences[i]

    def __getitem__(self, index: Index) -> Batch:
        where = as_index(index)
        if isinstance(where, int):
            i = range(len(self))[where]
            sequence = self.sequence(i)[: self.frames]
            label = self.labels[i] if self.transcripts is None else self.transcripts[i]
            sample = {"input": sequence, self.length_name: np.array(len(sequence)), "label": np.asarray(label)}
            return sample if self.transcripts is None else {**sample, "label_length": np.array(len(label))}
        return self._batch(np.arange(len(self))[where].tolist())

    def _batch(self, numbers: list[int]) -> Batch:
        sequences = [self.sequence(i)[: self.frames] for i in numbers]
        lengths = np.array([len(sequence) for sequence in sequences], np.int64)
        longest = int(lengths.max(initial=1))
        frames = -(-longest // self.multiple) * self.multiple if self.frames is None else self.frames
        batch: dict[str, Any] = {"input": padded(sequences, frames, (self.shape[1],), np.float32)}
        batch[self.length_name] = lengths
        if self.transcripts is None:
            return {**batch, "label": self.labels[numbers]}
        rows = [self.transcripts[i] for i in numbers]
        most = max(map(len, self.transcripts))  # of all, so that batches do not differ in it
        counts = np.array([len(row) for row in rows], np.int64)
        return {**batch, "label": padded(rows, most, (), np.int64), "label_length": counts}

    def digest(self) -> str:
        if self._digest is None:
            sha = hashlib.sha256(repr((self.frames, self.multiple)).encode())
            for i in range(len(self)):
                sequence = np.ascontiguousarray(self.sequence(i))
                sha.update(repr(sequence.shape).encode())
                sha.update(sequence.data)
            for row in [self.labels] if self.transcripts is None else self.transcripts:
                sha.update(repr(row.shape).encode())
                sha.update(row.data)
            self._digest = sha.hexdigest()
        return self._digest


def padded(rows: Sequence[np.ndarray], size: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Rows of different lengths in one array (rows, size, ...), zeros behind the end of each.

    Example:
        >>> padded([np.array([1, 2]), np.array([3])], 3, (), np.int64).tolist()
        [[1, 2, 0], [3, 0, 0]]
    """
    whole = np.zeros((len(rows), max(size, 1), *shape), dtype)
    for target, row in zip(whole, rows, strict=True):
        target[: len(row)] = row
    return whole
