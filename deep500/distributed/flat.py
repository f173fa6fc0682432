"""`FlatGroup`: some parameters as one array in a row, of which every rank has an equal part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from deep500.distributed.transports.communicator import Communicator


class FlatGroup:
    """Arrays of one dtype, one after the other, cut in equal parts: part p is rank p's. The last is filled up by zeros.

    Args:
        shapes: by name, in order.
        dtype: of all of them.
        comm: gathers and scatters; its ranks are the parts.

    Attributes:
        slices: for each name that this rank has elements of, where they are in its part.
        count: elements of a part.

    Example:
        >>> from deep500.distributed import Threads
        >>> def work(comm):
        ...     group = FlatGroup({"a": (2, 2), "b": (3,)}, np.dtype("float64"), comm)
        ...     part = group.part({"a": np.arange(4.0).reshape(2, 2), "b": np.ones(3)})
        ...     whole = group.gather(part)
        ...     return part.tolist(), whole["b"].tolist(), group.slices
        >>> Threads(2).run(work)  # doctest: +NORMALIZE_WHITESPACE
        [([0.0, 1.0, 2.0, 3.0], [1.0, 1.0, 1.0], {'a': slice(0, 4, None)}),
         ([1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0], {'b': slice(0, 3, None)})]
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], dtype: np.dtype, comm: Communicator) -> None:
        self.shapes, self.dtype, self.comm = dict(shapes), dtype, comm
        self.places: dict[str, slice] = {}
        end = 0
        for name, shape in self.shapes.items():
            begin, end = end, end + int(np.prod(shape, dtype=np.int64))
            self.places[name] = slice(begin, end)
        self.count = -(-end // comm.size)
        first, last = comm.rank * self.count, (comm.rank + 1) * self.count
        self.slices = {
            name: slice(max(place.start, first) - first, min(place.stop, last) - first)
            for name, place in self.places.items()
            if max(place.start, first) < min(place.stop, last)
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all parts together."""
        return self.count * self.comm.size * self.dtype.itemsize

    def part(self, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """This rank's part of whole arrays, a copy; what is absent is zeros."""
        part = np.zeros(self.count, self.dtype)
        for name, place in self.slices.items():
            if name in arrays:
                part[place] = self.elements(name, arrays[name])
        return part

    def elements(self, name: str, array: np.ndarray) -> np.ndarray:
        """This rank's elements of one whole array, in a row; there may be none."""
        place = self.slices.get(name, slice(0, 0))
        begin = self.comm.rank * self.count + place.start - self.places[name].start
        return np.ravel(array)[begin : begin + place.stop - place.start] if name in self.slices else np.ravel(array)[:0]

    def gather(self, part: np.ndarray) -> dict[str, np.ndarray]:
        """The whole arrays, views of one new array, on every rank; ``part`` is this rank's."""
        rows = self.comm.all_gather(part)
        if len(rows) < self.comm.size:  # of ranks that are imagined, some only are handed out
            rows = np.resize(rows, (self.comm.size, self.count))
        whole = rows.reshape(-1)
        return {name: whole[place].reshape(self.shapes[name]) for name, place in self.places.items()}

    def reduce(self, arrays: Sequence[Mapping[str, np.ndarray]], weights: Sequence[float]) -> np.ndarray:
        """This rank's part of the sum over ranks (and over ``arrays``) of whole arrays, each times its weight.

        Weight 0 counts as zeros, whatever the arrays hold; so does what is absent.
        """
        whole = np.zeros(self.count * self.comm.size, self.dtype)
        for values, weight in zip(arrays, weights, strict=True):
            for name, place in self.places.items():
                if weight and name in values:
                    whole[place] += np.ravel(values[name]) * self.dtype.type(weight)
        return self.comm.reduce_scatter(whole)
