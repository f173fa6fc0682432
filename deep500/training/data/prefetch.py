"""Prefetching: threads make the next batches while the current one is used.

Because :meth:`Sampler.batch` is a pure function of (epoch, number), the result is bit-identical to the plain sampler
whatever the number of threads; NumPy and the frameworks release the interpreter lock for most of the work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import current_thread

from deep500.training.data.dataset import Batch, Dataset
from deep500.training.data.samplers import Sampler, Transformation, checked_integer


class Prefetch:
    """A sampler that works ahead: same batches, same order, same :meth:`state` (the consumer's) as ``sampler``.

    An error while making a batch is raised where that batch is asked for, with its traceback and a note that names
    batch and thread; one that ends a thread (``SystemExit``) too, so nobody waits for a dead worker. Threads end with
    the iteration, also when the consumer leaves it early or is interrupted.

    Args:
        sampler: what to iterate; it may not be iterated elsewhere at the same time.
        depth: batches made ahead, at least 1; memory is bounded by depth + 1 batches.
        workers: threads.

    Example:
        >>> import numpy as np
        >>> from deep500.training.data import NumpyDataset
        >>> from deep500.training.data.samplers import OrderedSampler
        >>> ahead = Prefetch(OrderedSampler(NumpyDataset(np.arange(5)), batch_size=2))
        >>> [batch["input"].tolist() for batch in ahead]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Sampler, depth: int = 4, workers: int = 1) -> None:
        self.sampler = sampler
        self.depth, self.workers = checked_integer("depth", depth, 1), checked_integer("workers", workers, 1)

    def __iter__(self) -> Iterator[Batch]:
        return self._walk(*self.sampler.begin())

    def _walk(self, epoch: int, start: int) -> Iterator[Batch]:
        numbers = range(start, len(self.sampler.batches(epoch)))
        following = iter(numbers)
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="deep500-prefetch")
        ahead: deque[Future[Batch]] = deque()
        try:
            for number in islice(following, self.depth):
                ahead.append(pool.submit(self._batch, epoch, number))
            for number in numbers:
                batch = ahead.popleft().result()
                for later in islice(following, 1):
                    ahead.append(pool.submit(self._batch, epoch, later))
                self.sampler.handed_out(number)
                yield batch
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _batch(self, epoch: int, number: int) -> Batch:
        try:
            return self.sampler.batch(epoch, number)
        except BaseException as error:
            note = f"while {current_thread().name} made batch {number} of epoch {epoch}"
            error.__notes__ = [*getattr(error, "__notes__", ()), note]  # add_note is of Python 3.11
            raise

    def __len__(self) -> int:
        return len(self.sampler)

    @property
    def dataset(self) -> Dataset:
        """The sampler's data set."""
        return self.sampler.dataset

    @property
    def batch_size(self) -> int:
        """The sampler's batch size."""
        return self.sampler.batch_size

    @property
    def seed(self) -> int:
        """The sampler's seed."""
        return self.sampler.seed

    @property
    def epoch(self) -> int:
        """The sampler's current epoch."""
        return self.sampler.epoch

    def set_epoch(self, epoch: int) -> None:
        """See :meth:`Sampler.set_epoch`."""
        self.sampler.set_epoch(epoch)

    def state(self) -> dict[str, int]:
        """The place of the consumer (not of the threads), see :meth:`Sampler.state`."""
        return self.sampler.state()

    def resume(self, state: dict[str, int]) -> None:
        """See :meth:`Sampler.resume`."""
        self.sampler.resume(state)

    def add_transformation(self, transform: Transformation) -> None:
        """See :meth:`Sampler.add_transformation`; batches made already keep what they had."""
        self.sampler.add_transformation(transform)

    def shard(self, rank: int, size: int, batch_size: int | None = None) -> Prefetch:
        """Prefetch the sampler's shard, see :meth:`Sampler.shard`."""
        return Prefetch(self.sampler.shard(rank, size, batch_size), self.depth, self.workers)
