"""`Buckets`: many small arrays as few large ones, because one call per parameter costs its latency each time.

:class:`GradientMean` sends each bucket as soon as the backward pass has filled it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deep500.distributed.transports.communicator import Communicator, Pending
from deep500.errors import InputError

BUCKET_BYTES = 25_000_000
"""Size of a bucket, as in PyTorch's DistributedDataParallel."""


def carrier(dtype: np.dtype) -> np.dtype:
    """The dtype in which values travel and are summed: narrow floats as float32, others as they are.

    Raises:
        InputError: not a floating-point dtype: a mean of it would not be of its kind.

    Example:
        >>> carrier(np.dtype("float16")), carrier(np.dtype("float64"))
        (dtype('float32'), dtype('float64'))
    """
    if dtype in (np.float32, np.float64):
        return dtype
    if dtype.kind == "f" or dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        return np.dtype(np.float32)
    raise InputError(
        f"got a gradient of dtype {dtype}; expected floating point, which has a mean: convert it, or make the "
        "parameter not trainable"
    )


class Bucket:
    """Some arrays of one carrier dtype in one flat; one element more holds this rank's weight.

    Attributes:
        members: positions of its arrays in the list that it was made for.
        flat: their elements one after the other, and the weight.
    """

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype, self.members, self.shapes = dtype, list[int](), list[tuple[int, ...]]()
        self.count = 0
        self.flat = np.empty(0, dtype)
        self.views: list[np.ndarray] = []

    def add(self, position: int, shape: tuple[int, ...]) -> None:
        """Reserve room for one more array."""
        self.members.append(position)
        self.shapes.append(shape)
        self.count += int(np.prod(shape, dtype=np.int64))

    def close(self) -> Bucket:
        """Allocate; no array can be added afterwards."""
        self.flat, begin = np.empty(self.count + 1, self.dtype), 0
        for shape in self.shapes:
            size = int(np.prod(shape, dtype=np.int64))
            self.views.append(self.flat[begin : begin + size].reshape(shape))
            begin += size
        return self

    def put(self, index: int, array: np.ndarray, weight: float = 1.0) -> None:
        """Copy member ``index`` in, times the weight; weight 0 gives zeros whatever the array holds."""
        view = self.views[index]
        if weight == 1.0:
            view[...] = array
        elif weight:
            np.multiply(array, view.dtype.type(weight), out=view, casting="unsafe")
        else:
            view[...] = 0

    def start(self, comm: Communicator, weight: float) -> Pending:
        """Begin to sum the flat over all ranks."""
        self.flat[-1] = weight
        return comm.start_all_reduce(self.flat, control=self.flat.itemsize)

    def reduce(self, comm: Communicator, weight: float, root: int | None = None) -> None:
        """Sum the flat over all ranks, on all of them or on ``root`` only."""
        self.flat[-1] = weight
        if root is None:
            comm.all_reduce(self.flat, control=self.flat.itemsize)
        else:
            comm.reduce(self.flat, root, control=self.flat.itemsize)

    def divide(self) -> None:
        """Divide the sum by the sum of the weights."""
        total = self.flat[-1]
        if total not in (0, 1):  # without any sample the sum is 0
            np.divide(self.flat[:-1], total, out=self.flat[:-1])


class Buckets:
    """How arrays of these shapes and dtypes are laid out in buckets.

    Args:
        shapes, dtypes: of the arrays, in their order.
        size: bytes of a bucket; an array that is larger has one of its own.
        backwards: fill from the last array on, which is the first to have its gradient.

    Example:
        >>> from deep500.distributed import Threads
        >>> def work(comm):
        ...     buckets = Buckets([(2,), ()], [np.dtype("float64")] * 2)
        ...     arrays = [np.full(2, comm.rank), np.array(1.0)]
        ...     return [mean.tolist() for mean in buckets.mean(comm, arrays, weight=comm.rank + 1)]
        >>> Threads(2).run(work)[0]              # weights 1 and 2: (0 + 2 * 1) / 3
        [[0.6666666666666666, 0.6666666666666666], 1.0]
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[np.dtype],
        size: int = BUCKET_BYTES,
        backwards: bool = False,
    ) -> None:
        self.key = (tuple(shapes), tuple(dtypes))
        self.dtypes = list(dtypes)
        self.place: dict[int, tuple[Bucket, int]] = {}
        self.all: list[Bucket] = []
        still_open: dict[np.dtype, Bucket] = {}
        positions = range(len(shapes))
        for position in reversed(positions) if backwards else positions:
            dtype = carrier(dtypes[position])
            bucket = still_open.get(dtype)
            nbytes = int(np.prod(shapes[position], dtype=np.int64)) * dtype.itemsize
            if bucket is None or (bucket.count and bucket.count * dtype.itemsize + nbytes > size):
                bucket = still_open[dtype] = Bucket(dtype)
                self.all.append(bucket)
            self.place[position] = (bucket, len(bucket.members))
            bucket.add(position, tuple(shapes[position]))
        for bucket in self.all:
            bucket.close()

    @classmethod
    def like(cls, arrays: Sequence[np.ndarray], size: int = BUCKET_BYTES) -> Buckets:
        """Buckets for arrays like these."""
        return cls([a.shape for a in arrays], [a.dtype for a in arrays], size)

    def fits(self, arrays: Sequence[np.ndarray]) -> bool:
        """Whether these are arrays of the shapes and dtypes that the buckets were made for."""
        return self.key == (tuple(a.shape for a in arrays), tuple(a.dtype for a in arrays))

    def put(self, arrays: Sequence[np.ndarray], weight: float = 1.0) -> None:
        """Copy all arrays in, times the weight."""
        for position, array in enumerate(arrays):
            bucket, index = self.place[position]
            bucket.put(index, array, weight)

    def views(self) -> list[np.ndarray]:
        """The arrays that the buckets hold now, in their order and dtypes; overwritten by the next call."""
        views = [self.place[position][0].views[self.place[position][1]] for position in range(len(self.dtypes))]
        return [view.astype(dtype, copy=False) for view, dtype in zip(views, self.dtypes, strict=True)]

    def mean(self, comm: Communicator, arrays: Sequence[np.ndarray], weight: float = 1.0) -> list[np.ndarray]:
        """The mean over all ranks, each with its weight: ``sum_p weight_p array_p / sum_p weight_p``."""
        self.put(arrays, weight)
        for bucket in self.all:
            bucket.reduce(comm, weight)
            bucket.divide()
        return self.views()

    @property
    def weighed(self) -> bool:
        """Whether some rank had a weight in the last mean, which else is 0."""
        return all(bucket.flat[-1] for bucket in self.all)

    def broadcast(self, comm: Communicator, arrays: Sequence[np.ndarray], root: int = 0) -> list[np.ndarray]:
        """The arrays of ``root``."""
        self.put(arrays)
        for bucket in self.all:
            comm.broadcast(bucket.flat[:-1], root)
        return self.views()


class GradientMean:
    """The weighted mean of one list of arrays over all ranks, step after step; each bucket is sent when it is full.

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
        ...     return [mean_of.tolist() for mean_of in mean.finish([np.full(2, comm.rank), None])]
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
        """Copy one array in, times this rank's weight, and begin to sum the buckets that are full now.

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
        """Put in what has not come, wait for the sums over ranks, and divide; the next round overwrites the result.

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
