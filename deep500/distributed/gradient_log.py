"""`GradientLog`: a record of an asynchronous run, every gradient with where it came from and where it went, and replay.

What is reported of staleness is computed from the record, and the record is held by :func:`replay`, which trains on one
process by it: parameters with the same bits come out only if every version in it is right.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from deep500.distributed.buckets import carrier
from deep500.errors import InputError
from deep500.training.exchange import Exchange, Relay
from deep500.training.optimizers.base import Optimizer

Batch = Mapping[str, Any]


class Contribution(NamedTuple):
    """A gradient as it arrives.

    Attributes:
        worker: the rank that computed it.
        step: which of the worker's steps it is of; so which share of which batch.
        read: version of the parameters that it was computed at: how many updates they had.
        samples: how many it is the mean of.
    """

    worker: int
    step: int
    read: int
    samples: int


class GradientLog:
    """Contributions in the order in which updates took them in, each with the number of its update.

    Example:
        >>> log = GradientLog()
        >>> log.add(0, [Contribution(worker=1, step=0, read=0, samples=8)])
        >>> log.add(1, [Contribution(worker=2, step=0, read=0, samples=8)])
        >>> log.updates, log.staleness(), log.rows().tolist()
        (2, {0: 1, 1: 1}, [[0, 1, 0, 0, 8], [1, 2, 0, 0, 8]])
    """

    def __init__(self, rows: np.ndarray | Iterable[Iterable[int]] = ()) -> None:
        self._flat = array("q", np.asarray(rows, np.int64).ravel().tolist())

    def add(self, update: int, contributions: Iterable[Contribution]) -> None:
        """Note what an update took in."""
        for contribution in contributions:
            self._flat.extend((update, *contribution))

    def rows(self) -> np.ndarray:
        """(gradients, 5) int64: update, worker, step, version read, samples."""
        return np.array(self._flat, np.int64).reshape(-1, 5)

    @property
    def updates(self) -> int:
        """How many there are."""
        return self._flat[-5] + 1 if self._flat else 0

    def staleness(self) -> dict[int, int]:
        """Number of gradients by the updates between reading the parameters and applying the gradient."""
        rows = self.rows()
        return dict(sorted(Counter((rows[:, 0] - rows[:, 3]).tolist()).items()))

    def by_update(self) -> Iterator[tuple[int, list[Contribution]]]:
        """Each update with what it took in."""
        for update, rows in groupby(self.rows().tolist(), key=lambda row: row[0]):
            yield update, [Contribution(*row[1:]) for row in rows]


def mean_by_samples(parts: Sequence[tuple[Sequence[np.ndarray], int]]) -> list[np.ndarray]:
    """Means over lists of arrays, each list with its number of samples; summed in their order. One list stays as it is.

    Example:
        >>> mean_by_samples([([np.array(1.0)], 3), ([np.array(5.0)], 1)])
        [array(2.)]
    """
    if len(parts) == 1:
        return list(parts[0][0])
    counts, means = [samples for _, samples in parts], []
    for arrays in zip(*(gradients for gradients, _ in parts), strict=True):
        kind = carrier(arrays[0].dtype).type
        total = np.asarray(arrays[0] * kind(counts[0]))
        for term, samples in zip(arrays[1:], counts[1:], strict=True):
            total = total + term * kind(samples)
        means.append(np.asarray(total / kind(sum(counts) or 1)).astype(arrays[0].dtype, copy=False))
    return means


class _Means(Relay):
    """Gives an optimizer these gradients."""

    exchanges_gradients = True

    def __init__(self, means: Sequence[Any], exchange: Exchange) -> None:
        super().__init__(exchange)
        self.means = means

    def agreed_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        return self.means


def replay(optimizer: Optimizer, shares: Mapping[int, Sequence[Batch]], log: GradientLog) -> None:
    """Make the updates of an asynchronous run again, on one process.

    The parameters become the same bits, if the network is deterministic in training (no Dropout) and the optimizer is
    as at the start of the log. Running statistics become others: there they were those of each worker.

    Args:
        optimizer: the base optimizer, of an executor with the initial parameters.
        shares: by worker, its share of the batch of every step.
        log: of a run, see :attr:`~deep500.distributed.schemes.asynchronous.InconsistentParameterServer.log`.

    Raises:
        InputError: the log names a batch that is not among the shares, or parameters that no update has left.
    """
    network, names = optimizer.network, optimizer.parameter_names()

    def arrays(tensors: Sequence[str]) -> list[np.ndarray]:
        return [np.array(network.to_numpy(tensor)) for tensor in network.fetch_tensors(tensors)]

    def assign(values: Sequence[np.ndarray]) -> None:
        for name, value in zip(names, values, strict=True):
            network.assign_tensor(name, network.to_tensor(value))

    last_use = {row[3]: row[0] for row in log.rows().tolist()}
    versions: dict[int, list[np.ndarray]] = {}
    exchange = optimizer.exchange
    for update, contributions in log.by_update():
        optimizer.prepare()
        versions[update], parts = arrays(names), []
        for worker, step, read, samples in contributions:
            if step >= len(shares.get(worker, ())) or read not in versions:
                raise InputError(
                    f"got no batch {step} of worker {worker}, or no parameters with {read} updates, for update "
                    f"{update}; expected the shares and the log of one run: pass those"
                )
            assign(versions[read])
            optimizer.backprop(shares[worker][step])
            parts.append((arrays(optimizer.gradient_names()), samples))
        assign(versions[update])
        means = mean_by_samples(parts)
        optimizer.exchange = _Means([network.to_tensor(mean) for mean in means], exchange)
        try:
            optimizer.update()
        finally:
            optimizer.exchange = exchange
        optimizer.count_update()
        versions = {version: values for version, values in versions.items() if last_use.get(version, -1) > update}
