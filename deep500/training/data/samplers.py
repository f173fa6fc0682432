"""Samplers: in which order a data set is visited, in batches.

The order is a function of (seed, epoch) and nothing else, and a batch with its augmentation is a function of (seed,
epoch, number of the batch): any batch can be made again, in any thread, at any time. So resuming in the middle of an
epoch is exact, and prefetching changes nothing. Shards of one sampler form a disjoint cover of its order.
"""

from __future__ import annotations

import abc
import operator
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from typing import Any, TypeAlias, TypeVar

import numpy as np

from deep500.errors import DataError, InputError
from deep500.training.data.dataset import Batch, Dataset

Transformation: TypeAlias = Callable[[Batch, np.random.Generator], Batch]
SamplerT = TypeVar("SamplerT", bound="Sampler")
_ORDER, _BATCH, _ARRANGE = 0, 1, 2  # independent random streams of one epoch


class Sampler(abc.ABC):
    """Iterating yields the batches of the current epoch; ``len()`` is their number.

    Args:
        dataset: what to sample.
        batch_size: samples per batch, from 1 to the size of the data.
        seed: decides order and augmentation.
        drop_last_batch: leave out the last batch when it is not full; else it is smaller (and never empty).
        transformations: ``transform(batch, rng) -> batch``, applied in turn, see
            :mod:`deep500.training.data.augmentation`.

    Attributes:
        epoch: the epoch that iterating yields; set by :meth:`set_epoch`.

    Raises:
        InputError: batch size or seed out of range.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        seed: int = 0,
        drop_last_batch: bool = True,
        transformations: Sequence[Transformation] | None = None,
    ) -> None:
        self.dataset = dataset
        self.seed = checked_integer("seed", seed, 0)
        self.drop_last_batch = drop_last_batch
        self.transformations = list(transformations or ())
        self.epoch = 0
        self._position = self._start = 0
        self._rank, self._ranks = 0, 1
        self._plan: tuple[tuple[int, int], list[np.ndarray]] | None = None
        self.batch_size = self._fitting(batch_size)

    def _fitting(self, batch_size: int) -> int:
        available = len(self.dataset) // self._ranks
        share = f" on each of {self._ranks} ranks" if self._ranks > 1 else ""
        size = checked_integer("batch_size", batch_size, 1)
        if size > available:
            raise InputError(
                f"got batch_size {size}; expected at most {available}, the samples of {self.dataset.name!r}{share}; "
                "make the batch smaller"
            )
        return size

    @abc.abstractmethod
    def order(self, epoch: int) -> np.ndarray:
        """Positions in the data set in the order of this epoch, over all shards; depends on seed and epoch only."""

    def rng(self, epoch: int, *stream: int) -> np.random.Generator:
        """An independent generator for (seed, epoch, stream); streams differ in any number, also by length."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(epoch, *stream)))

    # -- batches

    def _groups(self, epoch: int) -> list[np.ndarray]:
        """Parts of the order that no batch may straddle."""
        return [self.order(epoch)]

    def _cut(self, group: np.ndarray) -> list[np.ndarray]:
        """This shard's batches of a group: every rank gets the same number of full ones."""
        # every ranks-th sample, so that batch k of all shards together is batch k of one process
        mine, size = group[self._rank :: self._ranks], self.batch_size
        if self.drop_last_batch:
            full = len(group) // self._ranks // size
            return [mine[i * size : (i + 1) * size] for i in range(full)]
        return [mine[i : i + size] for i in range(0, len(mine), size)]

    def _arrange(self, batches: list[np.ndarray], epoch: int) -> list[np.ndarray]:
        return batches

    def batches(self, epoch: int) -> list[np.ndarray]:
        """Positions of the samples of every batch of an epoch, for this shard."""
        key, plan = (self.seed, epoch), self._plan
        if plan is None or plan[0] != key:
            cut = [batch for group in self._groups(epoch) for batch in self._cut(group)]
            plan = self._plan = key, self._arrange(cut, epoch)
        return plan[1]

    def batch(self, epoch: int, number: int) -> Batch:
        """Make one batch; a pure function, so it may be called from any thread and any number of times."""
        batch = self.dataset[self.batches(epoch)[number]]
        if self.transformations:
            rng = self.rng(epoch, _BATCH, number, self._rank)
            for transform in self.transformations:
                batch = transform(batch, rng)
        return batch

    def add_transformation(self, transform: Transformation) -> None:
        """Append a transformation to those that every batch goes through."""
        self.transformations.append(transform)

    # -- iteration

    def __len__(self) -> int:
        return len(self.batches(self.epoch))

    def __iter__(self) -> Iterator[Batch]:
        return self._walk(*self.begin())

    def _walk(self, epoch: int, start: int) -> Iterator[Batch]:
        for number in range(start, len(self.batches(epoch))):
            batch = self.batch(epoch, number)
            self.handed_out(number)
            yield batch

    def begin(self) -> tuple[int, int]:
        """(epoch, first batch) of the iteration that starts now: batch 0, unless :meth:`resume` said otherwise."""
        self._position, self._start = self._start, 0
        return self.epoch, self._position

    def handed_out(self, number: int) -> None:
        """Note that batch ``number`` of the current epoch is with the consumer; :meth:`state` then points after it."""
        self._position = number + 1

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration yields; naming the current one again keeps a resumed position."""
        epoch = checked_integer("epoch", epoch, 0)
        if epoch != self.epoch:
            self.epoch, self._position, self._start = epoch, 0, 0

    # -- resuming

    def state(self) -> dict[str, int]:
        """The place of the consumer, as numbers that fit into JSON: the next batch would be (epoch, position)."""
        return {
            "epoch": self.epoch,
            "position": self._position,
            "seed": self.seed,
            "batch_size": self.batch_size,
            "samples": len(self.dataset),
        }

    def resume(self, state: dict[str, int]) -> None:
        """Go to where :meth:`state` was taken: the next iteration yields what would have come next.

        Raises:
            InputError: an entry is missing or out of range, or the state is of another batch size or data set.
        """
        current = self.state()
        for key in current:
            if key not in state:
                raise InputError(f"got a sampler state without {key!r}; expected the result of state(); pass that")
        for key in ("batch_size", "samples"):
            if state[key] != current[key]:
                raise InputError(
                    f"got a sampler state with {key} {state[key]}; expected {current[key]}, as this sampler has; "
                    "resume with the same data and batch size"
                )
        self.seed, self.epoch = checked_integer("seed", state["seed"], 0), checked_integer("epoch", state["epoch"], 0)
        self._position = self._start = checked_integer("position", state["position"], 0)

    def shard(self: SamplerT, rank: int, size: int, batch_size: int | None = None) -> SamplerT:
        """The part of this sampler that belongs to ``rank`` of ``size`` processes: every ``size``-th sample.

        Batch k of all shards together is batch k of the whole with ``size`` times the batch size. With
        ``drop_last_batch`` all shards have equally many batches; without, they cover every sample and some may have
        one batch more.

        Args:
            rank: from 0 to size - 1.
            size: number of shards.
            batch_size: samples per batch *of a shard*; None keeps the sampler's.
        """
        if self._ranks != 1:
            raise InputError("got a shard to divide; expected a whole sampler; call shard() on that")
        part = copy(self)
        part.transformations = list(self.transformations)
        part._ranks = checked_integer("size", size, 1)
        part._rank = checked_integer("rank", rank, 0)
        if part._rank >= part._ranks:
            raise InputError(f"got rank {rank} of {size}; expected 0 to {size - 1}; pass the rank's own number")
        part._plan, part._position, part._start = None, 0, 0
        part.batch_size = part._fitting(self.batch_size if batch_size is None else batch_size)
        if not len(part):
            raise InputError(
                f"got {size} shards without a single full batch of {part.batch_size}; expected at least one each; "
                "use fewer ranks or a smaller batch"
            )
        return part

    def __repr__(self) -> str:
        shard = f", shard {self._rank} of {self._ranks}" if self._ranks > 1 else ""
        return f"{type(self).__name__}({self.dataset.name!r}, batch_size={self.batch_size}, seed={self.seed}{shard})"


class OrderedSampler(Sampler):
    """From the first sample to the last, the same in every epoch; keeps the last, smaller batch by default."""

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        seed: int = 0,
        drop_last_batch: bool = False,
        transformations: Sequence[Transformation] | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, seed, drop_last_batch, transformations)

    def order(self, epoch: int) -> np.ndarray:
        return np.arange(len(self.dataset))


class ShuffleSampler(Sampler):
    """Every sample at most once per epoch, in an order drawn anew for every epoch.

    By default the last batch is left out where it would be smaller (``drop_last_batch=True``): of 1,438 samples 1,000
    make the epoch at a batch size of 500.

    Example:
        >>> from deep500.training.data import NumpyDataset
        >>> sampler = ShuffleSampler(NumpyDataset(np.arange(6)), batch_size=2, seed=1)
        >>> [batch["input"].tolist() for batch in sampler] == [batch["input"].tolist() for batch in sampler]
        True
    """

    def order(self, epoch: int) -> np.ndarray:
        return self.rng(epoch, _ORDER).permutation(len(self.dataset))


class ChoiceSampler(Sampler):
    """Samples drawn at random, with or without replacement, uniformly or after a distribution.

    Args:
        replacement: whether a sample may come again within an epoch.
        num_batches: batches per epoch, over all shards; None takes as many as the data would fill.
        distribution: weight of every sample, not necessarily normalised; None is uniform.

    Raises:
        InputError: more samples asked than there are to draw without replacement, or weights that are no distribution.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        seed: int = 0,
        drop_last_batch: bool = True,
        transformations: Sequence[Transformation] | None = None,
        *,
        replacement: bool = True,
        num_batches: int | None = None,
        distribution: Sequence[float] | np.ndarray | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, seed, drop_last_batch, transformations)
        self.replacement = replacement
        count = None if num_batches is None else checked_integer("num_batches", num_batches, 1)
        self._draws = len(dataset) if count is None else count * self.batch_size
        self._weights = None if distribution is None else self._distribution(np.asarray(distribution, np.float64))
        drawable = len(dataset) if self._weights is None else int(np.count_nonzero(self._weights))
        if not replacement and self._draws > drawable:
            if count is not None or drawable < self.batch_size:
                raise InputError(
                    f"got {self._draws} samples to draw per epoch without replacement; expected at most {drawable}, "
                    "those of non-zero weight; ask for fewer batches or allow replacement"
                )
            self._draws = drawable

    def _distribution(self, weights: np.ndarray) -> np.ndarray:
        total = weights.sum() if weights.shape == (len(self.dataset),) else np.nan
        if not (np.isfinite(total) and total > 0 and np.all(weights >= 0)):
            raise InputError(
                f"got a distribution of shape {weights.shape} and sum {total:g}; expected {len(self.dataset)} "
                "non-negative weights, not all zero; give one weight per sample"
            )
        return weights / total

    def order(self, epoch: int) -> np.ndarray:
        rng = self.rng(epoch, _ORDER)
        return rng.choice(len(self.dataset), self._draws, replace=self.replacement, p=self._weights)


class BucketSampler(Sampler):
    """Batches of samples of similar length, shuffled within and among buckets: little padding, random order.

    Args:
        seq_lengths: length of every sample; those of the data set (``dataset.lengths``) if None.
        num_buckets: buckets of equal width between the shortest and the longest length.
        max_length: longer samples are left out; None keeps all.

    Raises:
        InputError: lengths do not fit the data.
        DataError: no sample, or no full batch, remains.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        seed: int = 0,
        drop_last_batch: bool = True,
        transformations: Sequence[Transformation] | None = None,
        *,
        seq_lengths: Sequence[int] | np.ndarray | None = None,
        num_buckets: int = 30,
        max_length: int | None = None,
    ) -> None:
        super().__init__(dataset, batch_size, seed, drop_last_batch, transformations)
        lengths = np.asarray(getattr(dataset, "lengths", None) if seq_lengths is None else seq_lengths)
        if lengths.ndim == 0:
            raise InputError(f"got no seq_lengths, and {dataset!r} has none; expected one per sample: give them")
        if lengths.shape != (len(dataset),):
            raise InputError(f"got lengths of shape {lengths.shape}; expected ({len(dataset)},); give one per sample")
        short_enough = np.flatnonzero(lengths <= (np.inf if max_length is None else max_length))
        if not len(short_enough):
            raise DataError(f"got no sample of length <= {max_length}; expected at least one; raise max_length")
        edges = np.histogram_bin_edges(lengths[short_enough], checked_integer("num_buckets", num_buckets, 1))
        number = np.digitize(lengths[short_enough], edges[1:-1])
        self.buckets = [short_enough[number == i] for i in np.unique(number)]
        if not len(self):
            raise DataError(
                f"got no bucket with {self.batch_size} samples (the largest has {max(map(len, self.buckets))}); "
                "expected at least one full batch; use fewer buckets, a smaller batch or drop_last_batch=False"
            )

    def _groups(self, epoch: int) -> list[np.ndarray]:
        rng = self.rng(epoch, _ORDER)
        return [rng.permutation(bucket) for bucket in self.buckets]

    def order(self, epoch: int) -> np.ndarray:
        """All kept samples, bucket by bucket (the batches come in random order)."""
        return np.concatenate(self._groups(epoch))

    def _arrange(self, batches: list[np.ndarray], epoch: int) -> list[np.ndarray]:
        return [batches[i] for i in self.rng(epoch, _ARRANGE).permutation(len(batches))]


def checked_integer(name: str, value: Any, least: int) -> int:
    """``value`` as an int; raises InputError unless it is an integer of at least ``least``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(f"got {name} {value!r}; expected an integer of at least {least}; correct it")
    return number
