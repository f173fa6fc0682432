"""`ReproducibleDecentralized`: the same bits on any number of ranks, over any transport."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from deep500.distributed.exact import exact_sum
from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError
from deep500.networks.execution.capabilities import by_one_thread
from deep500.networks.node import RANDOM
from deep500.training.accumulation import pieces
from deep500.training.data.samplers import checked_integer
from deep500.training.optimizers.base import Optimizer

_SAMPLES = " samples"
"""Samples of a block, among its terms: no parameter is called so."""


class ReproducibleDecentralized(DistributedOptimizer):
    """Synchronous SGD whose parameters have the same bits on every number of ranks that divides ``blocks``, over every
    transport, whatever the order of messages.

    The batch of all ranks is divided into blocks that do not depend on the number of ranks: sample i of the batch is
    in block ``i mod blocks``, and block j is with rank ``j mod ranks``, which has just these samples from a
    :class:`~deep500.distributed.sampler.DistributedSampler`. Every block runs forward and backward alone, and the
    blocks' gradients are summed by :func:`deep500.distributed.exact.exact_sum`, which states the error.

    Batch normalization normalises with the statistics of a block; running statistics become the mean over blocks of
    what each makes of them, by the same sums. Each rank holds the gradients of its blocks in float64 until they are
    summed. What a framework computes within a block must itself be reproducible: the same machine and library. PyTorch
    computes blocks with one thread, since its convolutions and products round otherwise with another number.

    Payload per step and rank: 8 bytes for every element of the gradients and running statistics, and 8.

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.
        blocks: into how many blocks a batch is divided; 12 serves 1, 2, 3, 4, 6 and 12 ranks. It is a part of the
            result: runs compare only where it is the same. Fewer are faster.

    Raises:
        InputError: a number of blocks that the ranks do not divide; a network that draws random numbers, which would
            depend on how many blocks a rank has; ``accumulate`` or loss scaling, which divide the batch otherwise.

    Example:
        >>> from deep500.distributed import Serial
        >>> from deep500.frameworks import reference
        >>> from deep500.networks import add_loss, create
        >>> from deep500.training.optimizers import GradientDescent
        >>> executor = reference.from_model(add_loss(create("mlp", shape=(4,), hidden=(3,), classes=2)))
        >>> scheme = ReproducibleDecentralized(GradientDescent(executor, lr=0.1), Serial(), blocks=4)
        >>> batch = {"input": np.ones((8, 4), "float32"), "label": np.zeros(8, "int64")}
        >>> sorted(scheme.step(batch))
        ['loss', 'output']
    """

    waits = "together"
    agrees_on_statistics = False

    def __init__(self, base_optimizer: Optimizer, comm: Communicator | None = None, blocks: int = 12) -> None:
        super().__init__(base_optimizer, comm)
        self.blocks = checked_integer("blocks", blocks, 1)
        if self.blocks % self.comm.size:
            raise InputError(
                f"got {self.blocks} blocks on {self.comm.size} ranks; expected a multiple of the number of ranks, so "
                "that blocks are the same on every number: pass another number of blocks (it changes the result), or "
                "start another number of ranks"
            )
        if base_optimizer.in_pieces:
            raise InputError(
                "got accumulate or loss scaling with ReproducibleDecentralized; expected neither: it divides the batch "
                "into blocks itself, pass more blocks instead"
            )
        draws = [node.name for node in self.network.nodes if node.op_type in RANDOM]
        if draws:
            raise InputError(
                f"got a network whose node {draws[0]!r} draws random numbers, which would depend on how many blocks a "
                "rank has; expected none: leave it out (Dropout: ratio 0 is not enough), or use ConsistentDecentralized"
            )
        floating = set(self.floating())
        normalisations = [node for node in self.network.nodes if node.op_type == "BatchNormalization"]
        self.statistics = sorted({name for node in normalisations for name in node.inputs[3:5]} & floating)
        self._terms: list[dict[str, np.ndarray]] = []
        self._absent = False  # whether this rank has no samples in the present batch
        self.exchanges_gradients, base_optimizer.exchange = True, self  # also with one rank

    @classmethod
    def on_other_ranks(cls) -> str:
        return "the same bits as of a run that was never stopped"

    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One step of the base optimizer, whose gradients are those of all blocks."""
        self._absent = not self._rows(inputs)
        outputs = self.base_optimizer.step(self.made_up(inputs) if self._absent else inputs)
        return {} if self._absent else outputs

    def exchange_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """The mean over all samples, by exact sums; running statistics are set on the way."""
        values, counted = self.network.parameters, self.batch_weights.counted
        keys = [*names, *self.statistics]
        totals = ["", _SAMPLES] if counted else [""]
        like = [np.broadcast_to(0.0, values[name].value.shape) for name in keys] + [np.zeros(()) for _ in totals]
        terms = [[term[key] for key in [*keys, *totals]] for term in self._terms]
        sums = exact_sum(self.comm, terms, like)
        divisors = [sums[len(keys)] or 1.0] * len(names) + [sums[-1]] * len(self.statistics)
        self._terms = []
        means = [
            (total / divisor).astype(values[key].value.dtype, copy=False)
            for total, divisor, key in zip(sums, divisors, keys, strict=False)
        ]
        for name, mean in zip(self.statistics, means[len(names) :], strict=True):
            self.network.feed_tensor(name, mean)
        return self.tensors(means[: len(names)])

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """All ranks have the same parameters and running statistics: nothing to agree on."""
        with self.base_optimizer.evaluation():
            yield

    def pieces(self, inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
        """This rank's blocks of its share of a batch, which run one by one."""
        count = self.blocks // self.comm.size
        return [self._block(inputs, number, count) for number in range(min(count, self._rows(inputs)))]

    def _rows(self, inputs: Mapping[str, Any]) -> int:
        """How many samples this rank has, whether they count or not."""
        return sum(size for size, _ in pieces(self.network, inputs, 1))

    def backprop(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Forward and backward over this rank's blocks, one by one; keeps what each adds to the sums."""
        base, network = self.base_optimizer, self.network
        base.backprops += 1
        count, rows, counted = self.blocks // self.comm.size, self._rows(inputs), self.batch_weights.counted
        before = [np.array(array) for array in self.arrays(network.fetch_tensors(self.statistics))]
        self._terms, results, sizes, counts = [], [], [], list[float]()
        for number in range(min(count, rows)):
            block = dict(inputs) if self._absent else self._block(inputs, number, count)
            for name, array in zip(self.statistics, before, strict=True):
                network.feed_tensor(name, array)
            with by_one_thread(self.executor):
                results.append(self.executor.inference_and_backprop(block, self.loss))
            if self._absent:  # made up, so that the framework has gradients to replace
                return results[0]
            sizes.append(len(range(number, rows, count)))
            counts.append(self.batch_weights(block) if counted else sizes[-1])
            self._terms.append(self._weighted(counts[-1], sizes[-1]))
        weights = counts if any(counts) else sizes
        return {
            name: self._whole([result[name] for result in results], sizes, weights if name == self.loss else sizes)
            for name in results[0]
        }

    def _block(self, inputs: Mapping[str, Any], number: int, count: int) -> dict[str, Any]:
        """Every ``count``-th sample from ``number`` on, of the inputs that have samples."""
        block = {}
        for name, value in inputs.items():
            declared = self.network.inputs.get(name)
            divided = declared is None or (declared.shape and not isinstance(declared.shape[0], int))
            part = value[number::count] if divided else value
            block[name] = np.ascontiguousarray(part) if isinstance(part, np.ndarray) else part
        return block

    def _weighted(self, weight: float, size: int) -> dict[str, np.ndarray]:
        """Gradients of the last run times what counts in it, and (under "") that; statistics times its samples, and
        these."""
        base = self.base_optimizer
        tensors = self.network.fetch_tensors([*base.gradient_names(), *self.statistics])
        names = [*base.parameter_names(), *self.statistics]
        # products in float64 are exact for narrower dtypes, and always a function of the block alone
        with np.errstate(invalid="ignore", over="ignore"):
            products = {
                n: np.multiply(a, float(size if n in self.statistics else weight), dtype=np.float64)
                for n, a in zip(names, self.arrays(tensors), strict=True)
            }
        if not weight:  # a mean over nothing may be NaN
            products |= {n: np.zeros_like(products[n]) for n in base.parameter_names()}
        return products | {"": np.array(float(weight)), _SAMPLES: np.array(float(size))}

    def _whole(self, values: Sequence[Any], sizes: Sequence[int], counts: Sequence[float]) -> Any:
        """One output of this rank's samples, in their order, from those of its blocks; the mean of scalars, which count
        so much."""
        arrays = [np.asarray(array) for array in self.arrays(values)]
        first, whole = arrays[0], interleave(arrays, sum(sizes))
        if first.shape == ():
            there = [(float(a), count) for a, count in zip(arrays, counts, strict=True) if count]
            values_there, weights = zip(*there, strict=True)
            whole = np.asarray(np.average(values_there, weights=weights)).astype(first.dtype)
        if whole is None:
            raise InputError(
                f"got an output of shape {first.shape} from a block of {sizes[0]} samples; expected a scalar or one "
                "row per sample, from which the batch's can be made: remove that output"
            )
        return whole if isinstance(values[0], (np.ndarray, np.generic)) else self.network.to_tensor(whole)


def interleave(blocks: Sequence[np.ndarray], samples: int) -> np.ndarray | None:
    """Put rows in order, block i having every ``len(blocks)``-th one from row i on; None for arrays without such rows.

    Example:
        >>> interleave([np.array([0, 2, 4]), np.array([1, 3])], samples=5).tolist()
        [0, 1, 2, 3, 4]
        >>> interleave([np.zeros(3), np.zeros(1)], samples=4) is None
        True
    """
    first = blocks[0]
    rows = [range(number, samples, len(blocks)) for number in range(len(blocks))]
    if any(block.shape != (len(row), *first.shape[1:]) for block, row in zip(blocks, rows, strict=True)):
        return None
    whole = np.empty((samples, *first.shape[1:]), first.dtype)
    for number, block in enumerate(blocks):
        whole[number :: len(blocks)] = block
    return whole
