"""Data sets by name: what is known of each before it is loaded, and how it is loaded.

A data set gets its name by one call of :func:`register_dataset`, wherever that stands: in a module of
:mod:`deep500.training.data.sets`, all of which are imported, or in a recipe's own file.
"""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

from deep500.errors import DataError, UnknownDataset, nearest
from deep500.training.data.dataset import Dataset

Pair: TypeAlias = tuple[Dataset, Dataset]
"""Training set, test set."""


@dataclass(frozen=True)
class Search:
    """The folders in which :func:`~deep500.training.data.load.load_dataset` looks, and what it does without files.

    Attributes:
        roots: folders to look in; downloads go into the first.
        download: whether to fetch what is absent.
        stand_in: whether built-in data may replace what is absent.
        verify: whether existing copies are compared with the official checksums.
    """

    roots: tuple[Path, ...]
    download: bool = False
    stand_in: bool = False
    verify: bool = False


@dataclass(frozen=True)
class DatasetInfo(abc.ABC):
    """The fixed facts of a data set.

    Attributes:
        name: as given to :func:`deep500.training.data.load_dataset`.
        classes: number of classes.
        shape: shape of one sample.
        counts: samples for training and for testing.
        summary: one line on what it is.
        licence: terms of the data and whom to name; every set of Deep500 says them.
        built_in: True when it needs no files.
    """

    name: str
    classes: int
    shape: tuple[int, ...]
    counts: tuple[int, int]
    summary: str
    licence: str = field(default="not stated", kw_only=True)
    built_in: ClassVar[bool] = False

    @property
    def about(self) -> str:
        """The summary and the licence."""
        return f"{self.summary}; licence: {self.licence}"

    @property
    def options(self) -> tuple[str, ...]:
        """Keywords of its own that :meth:`load` takes."""
        return ()

    @abc.abstractmethod
    def load(self, search: Search, seed: int, **options: Any) -> Pair:
        """Training set and test set; raises DataError if they are not available."""


@dataclass(frozen=True)
class BuiltIn(DatasetInfo):
    """A data set that ``make(seed=..., **options)`` returns, without files."""

    make: Callable[..., Pair]
    built_in: ClassVar[bool] = True

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(name for name in inspect.signature(self.make).parameters if name != "seed")

    def load(self, search: Search, seed: int, **options: Any) -> Pair:
        return self.make(seed=seed, **options)


DATASETS: dict[str, DatasetInfo] = {}
"""Every registered data set by name."""

Info = TypeVar("Info", bound=DatasetInfo)


def register_dataset(info: Info) -> Info:
    """Make a data set known by its name to recipes, :func:`~deep500.training.data.load_dataset` and ``deep500 list``.

    Raises:
        DataError: another data set has this name.
    """
    if DATASETS.setdefault(info.name, info) is not info:
        raise DataError(f"got a second data set {info.name!r}; expected each name once: give it another name")
    return info


def registered(name: str, also: str) -> DatasetInfo:
    """The data set of that name; else an UnknownDataset that offers the nearest, and ``also``."""
    info = DATASETS.get(name)
    if info is None:
        raise UnknownDataset(
            f"got data set {name!r}; expected one of {', '.join(DATASETS)} or {also}; {nearest(name, DATASETS)}"
        )
    return info
