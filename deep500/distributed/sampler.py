"""`DistributedSampler`: every rank's share of every batch, so that all ranks together see what one would see alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.training.data.samplers import Sampler


class DistributedSampler:
    """The samples ``rank, rank + ranks, rank + 2 ranks, ...`` of each batch of a sampler.

    ``batch_size`` is that of all ranks together, and the order is the sampler's: what is trained on in step k does not
    depend on the number of ranks. Shares are disjoint, cover the batch, and differ by one sample at most; a batch that
    is smaller than the number of ranks leaves some of them without a sample. Random transformations are drawn for the
    whole batch and then divided, so that a sample is augmented alike on 1 and on 1000 ranks; where all of a sampler's
    transformations say ``random = False``, only the share is made. A sampler with a ``batch()`` of its own is asked for
    the whole batch too.

    Args:
        sampler: a :class:`~deep500.training.data.samplers.Sampler`, the same on every rank.
        rank: position of this rank among those that compute; None: it gets no sample of any batch.
        ranks: how many ranks compute.

    Raises:
        InputError: fewer samples in a batch than ranks, or a rank out of range.

    Example:
        >>> from deep500.training.data import NumpyDataset
        >>> from deep500.training.data.samplers import OrderedSampler
        >>> whole = OrderedSampler(NumpyDataset(np.arange(5)), batch_size=4)
        >>> [batch["input"].tolist() for batch in DistributedSampler(whole, 1, 2)]
        [[1, 3], []]
    """

    def __init__(self, sampler: Any, rank: int | None, ranks: int) -> None:
        if rank is not None and not 0 <= rank < ranks:
            raise InputError(f"got rank {rank} of {ranks}; expected 0 to {ranks - 1}: pass the rank's own number")
        if sampler.batch_size < ranks:
            raise InputError(
                f"got batches of {sampler.batch_size} for {ranks} ranks; expected at least one sample for each: use "
                "fewer ranks or a larger batch_size, which is that of all ranks together"
            )
        self.sampler, self.rank, self.ranks = sampler, rank, ranks
        self._mine = slice(0, 0) if rank is None else slice(rank, None, ranks)

    def batches(self, epoch: int) -> list[np.ndarray]:
        """Positions of this rank's samples of every batch of an epoch."""
        return [positions[self._mine] for positions in self.sampler.batches(epoch)]

    def batch(self, epoch: int, number: int) -> dict[str, np.ndarray]:
        """This rank's share of one batch."""
        sampler = self.sampler
        # a batch() of the sampler's own says what is trained on: it makes the whole batch, which is then divided
        overridden = getattr(sampler.batch, "__func__", None) is not Sampler.batch
        if overridden or any(getattr(transform, "random", True) for transform in sampler.transformations):
            return {name: value[self._mine] for name, value in sampler.batch(epoch, number).items()}
        batch = sampler.dataset[sampler.batches(epoch)[number][self._mine]]
        for transform in sampler.transformations:
            batch = transform(batch, sampler.rng(epoch))
        return batch

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[dict[str, np.ndarray]]:
        epoch, start = self.sampler.begin()
        for number in range(start, len(self.sampler.batches(epoch))):
            batch = self.batch(epoch, number)
            self.sampler.handed_out(number)
            yield batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.sampler, name)
