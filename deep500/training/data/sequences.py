"""Samples of different lengths: padded in the batch, their lengths in an array beside them.

What is past a length is 0 and means nothing: networks read the lengths (``sequence_lens`` of recurrent nodes, CTC) or a
mask of them, judges must. `BucketSampler` makes training batches of similar lengths, `PackedSampler` validation batches
of nearly equal ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from typing import Any

import numpy as np

from deep500.errors import DataError, InputError
from deep500.training.data.dataset import Batch, Dataset, Index, as_index, check_labels
from deep500.training.data.samplers import Sampler


@dataclass(eq=False, repr=False)
class SequenceDataset(Dataset):
    """Sequences of different lengths, held in memory.

    A batch holds ``input`` (items, longest, ...) padded with zeros, ``input_length`` (items,) int64, and the labels:
    one of each item as ``label`` (items,), or a sequence of each as ``label`` (items, longest of all) and
    ``label_length``.

    Args:
        sequences: arrays (length, ...), all of the same sizes behind the first; a flat array with ``lengths``.
        labels: one per sequence: numbers, or arrays (length,) of different lengths.
        lengths: of the parts of a flat array.
        pad: ``"longest"`` pads every batch to the longest sequence of all, which backends that must know sizes when
            they compile need; ``"batch"`` to the longest of the batch, which is faster where sizes may change.
        multiple: batches are padded further to a multiple of it, so that there are few sizes to compile for.
        input_name, label_name: keys of the batch; lengths are ``<name>_length``.
        classes: number of classes; None takes the largest label plus one.
        name, provenance, stand_in: see :class:`~deep500.training.data.Dataset`.

    Attributes:
        labels: where each sequence has one number, else None.
        lengths: of the sequences, (samples,).
        shape: (longest, ...).

    Raises:
        DataError: an empty sequence, sizes that differ, or a label out of range, each with its number.

    Example:
        >>> data = SequenceDataset([np.ones((2, 1)), np.ones((3, 1))], [0, 1])
        >>> batch = data[0:2]
        >>> batch["input"][0, :, 0].tolist(), batch["input_length"].tolist(), batch["label"].tolist()
        ([1.0, 1.0, 0.0], [2, 3], [0, 1])
    """

    sequences: InitVar[Sequence[np.ndarray] | np.ndarray]
    labels: Any = None
    _: KW_ONLY
    lengths: np.ndarray = None  # type: ignore[assignment]  # of the sequences, once it is made
    pad: str = "longest"
    multiple: int = 1
    input_name: str = "input"
    label_name: str = "label"
    classes: int | None = None
    name: str = "sequences"
    provenance: str = "arrays given by the caller"
    stand_in: bool = False

    def __post_init__(self, sequences: Any) -> None:
        if self.pad not in ("longest", "batch"):
            raise InputError(f"got pad={self.pad!r}; expected 'longest' or 'batch': choose one")
        if self.multiple < 1:
            raise InputError(f"got multiple={self.multiple}; expected a whole number of at least 1: correct it")
        self._flat, self._starts, self.lengths = _joined(sequences, self.lengths, f"{self.name}: sequence")
        self.shape = (-(-int(self.lengths.max()) // self.multiple) * self.multiple, *self._flat.shape[1:])
        self._label_starts: np.ndarray | None = None
        self.label_lengths: np.ndarray | None = None
        self._labels = None if self.labels is None else self._checked(self.labels)
        self.labels = self._labels if self.label_lengths is None else None

    def _checked(self, labels: Sequence[Any] | np.ndarray) -> np.ndarray:
        if len(labels) != len(self):
            raise DataError(f"{self.name}: got {len(labels)} labels for {len(self)} sequences; expected one for each")
        if np.ndim(labels[0]):
            flat, self._label_starts, self.label_lengths = _joined(labels, None, f"{self.name}: label")
        else:
            flat = np.asarray(labels)
        if flat.dtype.kind not in "iu":
            return flat
        flat = flat.astype(np.int64)
        self.classes = int(flat.max()) + 1 if self.classes is None else self.classes
        check_labels(flat, self.classes, self.name)
        return flat

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: Index) -> Batch:
        where = as_index(index)
        if isinstance(where, int):
            return {name: value[0] for name, value in self[[where]].items()}
        chosen = np.arange(len(self))[where]
        batch = self._padded(self.input_name, self._flat, self._starts, self.lengths, chosen)
        if self._labels is not None and self.label_lengths is None:
            batch[self.label_name] = self._labels[chosen]
        elif self._labels is not None:
            batch |= self._padded(self.label_name, self._labels, self._label_starts, self.label_lengths, chosen)
        return batch

    def _padded(self, name: str, flat: np.ndarray, starts: Any, lengths: Any, chosen: np.ndarray) -> Batch:
        of_items = lengths[chosen]
        every = self.pad == "longest" or name != self.input_name or not len(chosen)
        longest = int(lengths.max() if every else of_items.max())
        if name == self.input_name:
            longest = -(-longest // self.multiple) * self.multiple
        parts = [flat[starts[item] : starts[item] + lengths[item]] for item in chosen]
        padded = zero_padded(parts, longest, flat.shape[1:], flat.dtype)
        return {name: padded, f"{name}_length": of_items.astype(np.int64)}

    def digest(self) -> str:
        sha = hashlib.sha256()
        for array in (self._flat, self.lengths, self._labels, self.label_lengths):
            if array is not None:
                sha.update(f"{array.dtype.str}{array.shape}".encode())
                sha.update(np.ascontiguousarray(array).data)
        return sha.hexdigest()


def _joined(sequences: Any, lengths: Any, what: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All sequences in a row, where each begins, and how long it is."""
    if lengths is None:
        parts = [np.asarray(part) for part in sequences]
        sizes = {part.shape[1:] for part in parts}
        if len(sizes) != 1:
            raise DataError(f"{what}s: got sizes {sorted(sizes)} behind the length; expected one: make them the same")
        flat, counts = np.concatenate(parts), np.array([len(part) for part in parts], np.int64)
    else:
        flat, counts = np.asarray(sequences), np.asarray(lengths, np.int64)
        if counts.sum() != len(flat):
            raise DataError(f"{what}s: got lengths that add up to {counts.sum()}; expected {len(flat)}, the whole")
    if not len(counts) or counts.min() < 1:
        where = int(counts.argmin()) if len(counts) else 0
        raise DataError(f"{what} {where}: got length 0; expected at least 1: leave empty ones out")
    return flat, np.cumsum(counts) - counts, counts


def zero_padded(parts: Sequence[np.ndarray], size: int, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Parts of different lengths in one array (parts, size, ...), zeros behind the end of each.

    Example:
        >>> zero_padded([np.array([1, 2]), np.array([3])], 3, (), np.int64).tolist()
        [[1, 2, 0], [3, 0, 0]]
    """
    padded = np.zeros((len(parts), size, *shape), dtype)
    for row, part in zip(padded, parts, strict=True):
        row[: len(part)] = part
    return padded


def length_mask(lengths: np.ndarray, steps: int) -> np.ndarray:
    """(items, steps) bool: True within the length.

    Example:
        >>> length_mask(np.array([1, 3]), 3).astype(int).tolist()
        [[1, 0, 0], [1, 1, 1]]
    """
    return np.arange(steps) < np.asarray(lengths)[:, None]


class PackedSampler(Sampler):
    """For validation: every sample once, the shortest first, so that batches hold nearly no padding.

    Sums over batches do not depend on their order, so a validation says the same as in any other order.

    Args:
        dataset: one with ``lengths``.
        batch_size, seed, drop_last_batch, transformations: see :class:`~deep500.training.data.samplers.Sampler`.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        seed: int = 0,
        drop_last_batch: bool = False,
        transformations: Any = None,
    ) -> None:
        super().__init__(dataset, batch_size, seed, drop_last_batch, transformations)
        lengths = getattr(dataset, "lengths", None)
        if lengths is None:
            raise InputError(f"got {dataset!r} without lengths; expected a SequenceDataset, or one that has them")
        self._order = np.argsort(lengths, kind="stable")

    def order(self, epoch: int) -> np.ndarray:
        """The shortest first."""
        return self._order
