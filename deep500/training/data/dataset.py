"""Data sets: objects with a length whose samples are dictionaries of arrays.

``dataset[3]`` is one sample (no batch axis), ``dataset[2:5]`` and ``dataset[[7, 1, 7]]`` are batches. A data set never
shuffles and never augments (samplers and transformations do) and refuses labels outside its classes when it is made,
not in the middle of an epoch.
"""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeAlias, Union

import numpy as np

from deep500.errors import DataError, InputError

Batch: TypeAlias = dict[str, np.ndarray]
Index: TypeAlias = Union[int, np.integer, slice, Sequence[int], np.ndarray]  # noqa: UP007 - a run-time alias


class Dataset(abc.ABC):
    """Samples by index. Subclasses give ``__len__``, ``__getitem__`` and ``digest``.

    Attributes:
        name: what it is called in results.
        classes: number of classes; labels lie in [0, classes). None where there are no class labels.
        shape: shape of one sample without batch axis; images are (channels, height, width).
        input_name, label_name: keys of the dictionaries, that is, the network inputs that they feed.
        stand_in: True when built-in data replace absent ones; results must then say so.
        provenance: one line on where the data come from.
    """

    name: str = "dataset"
    classes: int | None = None
    shape: tuple[int, ...] = ()
    input_name: str = "input"
    label_name: str = "label"
    stand_in: bool = False
    provenance: str = "unknown"

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    @abc.abstractmethod
    def __getitem__(self, index: Index) -> Batch:
        """The sample at an integer, else the batch at a slice or sequence; IndexError when out of range."""

    @abc.abstractmethod
    def digest(self) -> str:
        """SHA-256 (hex) of all samples and labels: equal digests mean equal data."""

    def label_counts(self, at: np.ndarray | None = None) -> list[int] | None:
        """How often each class is a label, of samples at some positions if given; None where not all are at hand."""
        labels = getattr(self, "labels", None)
        if self.classes is None or not isinstance(labels, np.ndarray) or labels.ndim != 1 or labels.dtype.kind != "i":
            return None
        labels = labels if at is None else labels[at]
        return list(map(int, np.bincount(labels[(labels >= 0) & (labels < self.classes)], minlength=self.classes)))

    def __repr__(self) -> str:
        flag = ", STAND-IN" if self.stand_in else ""
        return f"{type(self).__name__}({self.name!r}, {len(self)} x {self.shape}, classes={self.classes}{flag})"


def as_index(index: Index) -> int | slice | np.ndarray:
    """Normalise what ``__getitem__`` may get: integers, slices, and anything else as an array of positions."""
    if isinstance(index, (int, np.integer)) and not isinstance(index, (bool, np.bool_)):
        return int(index)
    if isinstance(index, slice):
        return index
    positions = np.asarray(index)
    if positions.dtype == bool and positions.ndim == 1:
        return np.flatnonzero(positions)
    if positions.size == 0:
        return positions.astype(np.intp)
    if positions.dtype.kind not in "iu" or positions.ndim != 1:
        raise InputError(
            f"got an index of dtype {positions.dtype} and {positions.ndim} dimensions; expected an integer, a slice "
            "or a one-dimensional sequence of integers; convert it first"
        )
    return positions


def check_labels(labels: np.ndarray, classes: int, name: str, ignore_index: int | None = None) -> None:
    """Raise DataError naming index and value of the first label outside [0, classes) that is not ``ignore_index``."""
    bad = np.argwhere(((labels < 0) | (labels >= classes)) & (labels != ignore_index))
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        where = at[0] if len(at) == 1 else at
        raise DataError(
            f"{name}: got label {labels[at]} at index {where} ({len(bad)} of {labels.size} are out of range); "
            f"expected 0 <= label < {classes}; correct the labels or give the right number of classes"
        )


@dataclass(eq=False, repr=False)
class NumpyDataset(Dataset):
    """A data set held in memory.

    Args:
        data: array (samples, ...), delivered with the dtype it has, see ``scale``.
        data_node: key of the data in a batch.
        labels: array (samples, ...); integers are delivered as int64 and checked against ``classes``.
        label_node: key of the labels in a batch.
        name: what results call it.
        classes: number of classes; None takes the largest integer label plus one.
        ignore_index: a label that counts for nothing (as a loss's ``ignore_index``), which may lie outside the classes.
        scale: if given, ``data`` is delivered as float32 divided by it: images can stay uint8 (scale 255).
        provenance, stand_in: see :class:`Dataset`.

    Raises:
        DataError: lengths differ, there are no samples, a label is out of range, or an array holds no numbers or
            masks some.

    Example:
        >>> data = NumpyDataset(np.zeros((4, 2), np.float32), "x", np.array([0, 1, 1, 2]), "y")
        >>> len(data), data.classes, data[1]["y"], data[1:3]["x"].shape
        (4, 3, array(1), (2, 2))
    """

    data: np.ndarray
    data_node: str = "input"
    labels: np.ndarray | None = None
    label_node: str | None = None
    _: KW_ONLY
    name: str = "numpy"
    classes: int | None = None
    ignore_index: int | None = None
    scale: float | np.float32 | None = None
    provenance: str = "arrays given by the caller"
    stand_in: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.data_node, str):
            raise InputError(
                f"got {type(self.data_node).__name__} as data_node; expected the name of a network input; "
                "write NumpyDataset(data, 'input', labels)"
            )
        self.data = _numbers(self.data, f"{self.name}: data")
        self.input_name, self.label_name = self.data_node, self.label_node or "label"
        if self.data.ndim == 0 or len(self.data) == 0:
            raise DataError(
                f"{self.name}: got data of shape {self.data.shape}; expected at least one sample; give some"
            )
        self.shape = self.data.shape[1:]
        self.scale = None if self.scale is None else np.float32(self.scale)
        self.labels = None if self.labels is None else self._checked(_numbers(self.labels, f"{self.name}: labels"))
        self._digest: str | None = None

    def _checked(self, labels: np.ndarray) -> np.ndarray:
        if labels.ndim == 0 or len(labels) != len(self.data):
            raise DataError(
                f"{self.name}: got labels of shape {labels.shape} for {len(self.data)} samples; "
                "expected one label per sample; check that both come from the same split"
            )
        if labels.dtype.kind not in "iu":
            return labels
        if self.classes is None:
            self.classes = int(labels.max(where=labels != self.ignore_index, initial=0)) + 1
        check_labels(labels, self.classes, self.name, self.ignore_index)
        return labels.astype(np.int64)

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Index) -> Batch:
        where = as_index(index)
        values = _take(self.data, where)
        if self.scale is not None:
            values = np.divide(values, self.scale, dtype=np.float32)
        batch = {self.input_name: values}
        if self.labels is not None:
            batch[self.label_name] = _take(self.labels, where)
        return batch

    def digest(self) -> str:
        if self._digest is None:
            sha = hashlib.sha256()
            for array in (self.data, self.labels):
                if array is not None:
                    sha.update(f"{array.dtype.str}{array.shape}".encode())
                    sha.update(np.ascontiguousarray(array).data)
            self._digest = sha.hexdigest()
        return self._digest


def _numbers(values: Any, what: str) -> np.ndarray:
    """The values as an array; raises DataError where it would hold something else than real numbers, or lose a mask."""
    if np.ma.is_masked(values):
        raise DataError(
            f"{what}: got a masked array; expected one without masked values: fill them, say with filled(0), and give "
            "labels that do not count as ignore_index"
        )
    array = np.asarray(values)
    if array.dtype.kind in "OSUMmc" or array.dtype.names:
        raise DataError(f"{what}: got values of {array.dtype}; expected real numbers: convert them first")
    return array


def _take(array: np.ndarray, where: int | slice | np.ndarray) -> np.ndarray:
    # take() is about twice as fast as array[positions] on images; [...] keeps a single label an array
    return np.take(array, where, axis=0) if isinstance(where, np.ndarray) else np.asarray(array[where])
