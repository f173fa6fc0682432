"""`GradientMean`: the mean of gradients over ranks, which travels while the backward pass goes on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deep500.distributed.buckets import BUCKET_BYTES, Buckets
from deep500.distributed.communicator import Communicator, Pending
from deep500.errors import InputError


class GradientMean:
    """The weighted mean of one list of arrays over all ranks, again and again; each bucket goes when it is full.

    Buckets are filled from the last array on, whose gradient comes first, and leave in their order, whatever order the
    arrays come in: so all ranks make the same calls, and the result has the same bits as if all had come at the end.

    Args:
        comm: sums.
        shapes, dtypes: of the arrays.
        size: bytes of a bucket.

    Attributes:
        active: whether arrays are being collected, between :meth:`begin` and :meth:`finish`.

    Example:
        >>> from deep500.distributed import Threads
        >>> def work(comm):
        ...     mean = GradientMean(comm, [(2,), ()], [np.dtype("float64")] * 2)
        ...     mean.begin(weight=comm.rank + 1)
        ...     mean.put(1, np.array(1.0))
        ...     return [one.tolist() for one in mean.finish([np.full(2, comm.rank), None])]
        >>> Threads(2).run(work)[0]              # weights 1 and 2: (0 + 2 * 1) / 3
        [[0.6666666666666666, 0.6666666666666666], 1.0]
    """

    def __init__(
        self,
        comm: Communicator,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[np.dtype],
        size: int = BUCKET_BYTES,
    ) -> None:
        self.comm, self.buckets = comm, Buckets(shapes, dtypes, size, backwards=True)
        self._bucket_of = {id(bucket): number for number, bucket in enumerate(self.buckets.all)}
        self.active = False
        self._weight = 0.0
        self._absent: set[int] = set()
        self._lacking: list[int] = []
        self._sent: list[Pending] = []
        self._travelling: list[Pending] = []

    def begin(self, weight: float) -> None:
        """Collect anew; this rank's arrays count ``weight`` times."""
        self.active, self._weight = True, weight
        self._absent = set(self.buckets.place)
        self._lacking = [len(bucket.members) for bucket in self.buckets.all]
        self._sent, self._travelling = [], []

    def put(self, position: int, array: np.ndarray) -> None:
        """Copy one array in, and send the buckets that are full now.

        Raises:
            InputError: it was put in before.
        """
        if position not in self._absent:
            raise InputError(
                f"got two gradients of parameter {position} in one step; expected one backward pass: pass overlap=False"
            )
        bucket, index = self.buckets.place[position]
        bucket.put(index, array, self._weight)
        self._absent.remove(position)
        self._lacking[self._bucket_of[id(bucket)]] -= 1
        while len(self._sent) < len(self._lacking) and self._lacking[len(self._sent)] == 0:
            pending = self.buckets.all[len(self._sent)].start(self.comm, self._weight)
            self._sent.append(pending)
            self._travelling.append(pending)
        if self._travelling:  # some transports go on only when they are asked
            self._travelling = [pending for pending in self._travelling if not pending.poll()]

    @property
    def absent(self) -> list[int]:
        """Positions whose arrays have not come, the last first."""
        return sorted(self._absent, reverse=True)

    def finish(self, arrays: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        """Put in what has not come, wait, and return the means; they are overwritten in the next round.

        Args:
            arrays: in their order; those that were put in before are not looked at.
        """
        for position in self.absent:
            self.put(position, arrays[position])  # type: ignore[arg-type]
        for bucket, pending in zip(self.buckets.all, self._sent, strict=True):
            pending.wait()
            bucket.divide()
        self.active = False
        return self.buckets.views()
