"""`Compression`: what lossy means of gradients have in common: shares of the batch, and error feedback.

Requirements of the seam, for the author of a compression. Override one of

* :meth:`~Encoded.encode` and :meth:`~Encoded.add` of :class:`Encoded`, when a rank's contribution is one message;
* :meth:`~Compression.combine` of :class:`Compression` for everything else (:class:`PowerSGD` reduces two factors).

A rank brings ``v_p = n_p / n g_p + r_p``: its share of the mean gradient and what it still owes from the steps before.
It sends ``s_p``, which is near ``v_p``; every rank gets ``sum_p s_p`` and applies it as the gradient; and
``r_p <- v_p - s_p`` (Karimireddy et al. 2019, arXiv 1901.09847, algorithm 1). So nothing is lost, only late: after any
number of steps, all gradients applied and all residuals add up to all mean gradients. The share comes before the
compression because a rank with more samples has more to say; the papers have equal shares ``1 / P``.

Gradients are laid out one after the other, one flat per dtype. One rank compresses too: the scheme's mathematics does
not depend on the number of ranks.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from deep500.distributed.buckets import Bucket, Buckets
from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError
from deep500.training.optimizers.base import Optimizer

ONE_FLAT = 2**62
"""A size of buckets that nothing exceeds."""


@dataclass
class Flat:
    """Contribution of one rank, for all parameters of one dtype.

    Attributes:
        number: which flat of the step.
        values: all elements, one after the other.
        tensors: views of it by parameter, in the parameters' shapes.
    """

    number: int
    values: np.ndarray
    tensors: dict[str, np.ndarray]


class Compression(DistributedOptimizer):
    """Base of the schemes that exchange less than all gradients; see the top of the file for their common mathematics.

    Besides what each sends, 8 bytes of control per step: the number of samples of all ranks together.

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`; native ones work too.

    Attributes:
        residuals: what this rank still owes, by parameter; float32 for narrower parameters. Part of the state.

    Raises:
        InputError: a gradient that is not of a floating-point dtype, or no samples on any rank.
    """

    waits = "together"
    error_feedback: ClassVar[bool] = True

    def __init__(self, base_optimizer: Optimizer, comm: Communicator | None = None) -> None:
        super().__init__(base_optimizer, comm)
        self.exchanges_gradients, base_optimizer.exchange = True, self  # with one rank as well
        self.residuals: dict[str, np.ndarray] = {}
        self._layout: tuple[list[str], Buckets] | None = None

    @classmethod
    def kept_by_each(cls) -> str:
        """Its residuals."""
        return "gradients that it still owes (error feedback)" if cls.error_feedback else super().kept_by_each()

    @abc.abstractmethod
    def combine(self, flat: Flat) -> tuple[np.ndarray, np.ndarray]:
        """The sum over ranks of what each sends, and what this rank sent; flat, two arrays other than the values."""

    def exchange_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """The sum of all ranks' contributions; what this one held back is its residual.

        Values that are not finite arrive as such, without a warning: the trainer names the step that they come from.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            return self._exchanged(names, gradients)

    def _exchanged(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        arrays = self.arrays(gradients)
        buckets = self._laid_out(names, arrays)
        buckets.put(arrays, self.share())
        for number, bucket in enumerate(buckets.all):
            flat = Flat(number, bucket.flat[:-1], _by_name(names, bucket))
            for name in flat.tensors.keys() & self.residuals.keys():
                flat.tensors[name][...] += self.residuals[name]
            total, sent = self.combine(flat)
            if self.error_feedback:
                flat.values -= sent
                self.residuals.update({name: tensor.copy() for name, tensor in flat.tensors.items()})
            flat.values[...] = total
        return self.tensors(buckets.views())

    def share(self) -> float:
        """This rank's part of the samples of all ranks; 0 where nothing counts in them. Raises InputError where no rank
        has any."""
        total = self.comm.all_reduce(np.array([self.samples], np.float64), control=8).item()
        if not total and self.batch_weights.counted:
            return 0.0
        if not total:
            raise InputError("got no samples on any rank; expected a batch: call step(inputs), which counts them")
        return self.samples / total

    def _laid_out(self, names: Sequence[str], arrays: Sequence[np.ndarray]) -> Buckets:
        if self._layout is None or self._layout[0] != list(names) or not self._layout[1].fits(arrays):
            self._layout = (list(names), Buckets.like(arrays, ONE_FLAT))
            shapes = dict(zip(names, (array.shape for array in arrays), strict=True))
            # Of parameters that an edit of the network took away, nothing is owed any more.
            self.residuals = {name: r for name, r in self.residuals.items() if shapes.get(name) == r.shape}
        return self._layout[1]

    def own_state(self) -> dict[str, np.ndarray]:
        return {f"residual/{name}": array.copy() for name, array in self.residuals.items()}

    def load_own_state(self, state: Mapping[str, np.ndarray]) -> None:
        self.residuals = self.slots("residual", state)


class Encoded(Compression):
    """Base of the compressions whose contribution is one message; all ranks get all messages and add them up in order.

    Payload per step and rank: the bytes of its message. (A rank receives those of all others: P - 1 times that.)

    Example (half precision, whose rounding errors are made up for later):
        >>> class Half(Encoded):
        ...     def encode(self, flat): return as_bytes(flat.values.astype(np.float16))
        ...     def add(self, message, flat, into): into += message.view(np.float16)
        >>> flat, into = Flat(0, np.array([1 / 3, 2.0]), {}), np.zeros(2)
        >>> message = Half.encode(None, flat)
        >>> Half.add(None, message, flat, into)
        >>> message.size, [float(round(value, 5)) for value in into]
        (4, [0.33325, 2.0])
    """

    def combine(self, flat: Flat) -> tuple[np.ndarray, np.ndarray]:
        """Gather the messages."""
        message, sent, total = self.encode(flat), np.zeros_like(flat.values), np.zeros_like(flat.values)
        self.add(message, flat, sent)
        for other in self.comm.all_gather(message):
            self.add(other, flat, total)
        return total, sent

    @abc.abstractmethod
    def encode(self, flat: Flat) -> np.ndarray:
        """Encode these values for sending: bytes, as many on every rank."""

    @abc.abstractmethod
    def add(self, message: np.ndarray, flat: Flat, into: np.ndarray) -> None:
        """Add what a message stands for to a flat array; of ``flat`` only the shapes may be used."""


def _by_name(names: Sequence[str], bucket: Bucket) -> dict[str, np.ndarray]:
    return {names[position]: view for position, view in zip(bucket.members, bucket.views, strict=True)}


def as_bytes(*arrays: np.ndarray) -> np.ndarray:
    """Arrays as one message of bytes.

    Example:
        >>> as_bytes(np.array([1], np.int32), np.array([1.0], np.float32)).size
        8
    """
    return np.concatenate([np.ascontiguousarray(array).view(np.uint8).ravel() for array in arrays])
