"""Synchronous schemes: every step, or every few, all ranks agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deep500.distributed.buckets import BUCKET_BYTES, GradientMean
from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.transports.communicator import Communicator
from deep500.networks.execution.capabilities import watch_gradients
from deep500.training.data.samplers import checked_integer
from deep500.training.optimizers.base import Optimizer


class ConsistentDecentralized(DistributedOptimizer):
    """Synchronous SGD by all-reduce: ``g <- sum_p n_p g_p / sum_p n_p``, ``n_p`` samples on rank p (or what else its
    loss divides by: labels that count, weights of classes); then every rank makes the same update. Equal to the serial
    run on the union of the batches, up to the order of sums.

    Gradients travel in buckets. Where the backend tells when a gradient is ready (PyTorch), a full bucket travels while
    the backward pass goes on (Li et al. 2020, PyTorch Distributed, VLDB 13(12), section 3.2.3).

    Payload per step and rank: the bytes of all gradients.

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.
        bucket_bytes: size of a bucket.
        overlap: whether buckets travel during the backward pass, where the backend can tell; the result is the same bit
            by bit. One bucket alone never does. A base optimizer that runs backward more than once in a step needs
            False.
    """

    waits = "together"
    agrees_on_overflow = True
    stands_inside = stands_outside = True

    def __init__(
        self,
        base_optimizer: Optimizer,
        comm: Communicator | None = None,
        bucket_bytes: int = BUCKET_BYTES,
        overlap: bool = True,
    ) -> None:
        super().__init__(base_optimizer, comm)
        self.bucket_bytes = checked_integer("bucket_bytes", bucket_bytes, 1)
        # pieces of a batch, or ranks on an axis inside, leave gradients of their own: only their sum may travel
        self.overlap = overlap and self.comm.size > 1 and not base_optimizer.in_pieces and self.inside is None
        self._mean: tuple[tuple[Any, ...], GradientMean, dict[str, int]] | None = None
        self._watching = False

    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One step of the base optimizer with the mean gradient, which is collected from the backward pass on."""
        if not self.overlap:
            return super().step(inputs)
        mean, _ = self._gradient_mean(self.base_optimizer.parameter_names())
        if len(mean.buckets.all) == 1:  # it is full with the last gradient: watching would only cost
            return super().step(inputs)
        if not self._watching:
            self.overlap = self._watching = watch_gradients(self.executor, self._ready)
        mean.begin(self.samples)
        try:
            return super().step(inputs)
        finally:
            mean.active = False  # also after an error: gradients of runs outside a step stay here

    def exchange_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """The weighted mean over ranks."""
        if self.inside is not None:  # which may hold parts of parameters: shapes are those of what comes
            parts = self.arrays(gradients)
            return self.tensors(self.laid_out(("gradients", *names), parts).mean(self.comm, parts, self.samples))
        mean, _ = self._gradient_mean(names)
        if not mean.active:
            mean.begin(self.samples)
        absent, to_numpy = set(mean.absent), self.network.to_numpy
        arrays = [to_numpy(gradient) if i in absent else None for i, gradient in enumerate(gradients)]
        return self.tensors(mean.finish(arrays))

    def _ready(self, name: str, gradient: Any) -> None:
        """The backward pass has this gradient."""
        if self._mean is not None and self._mean[1].active and name in self._mean[2]:
            self._mean[1].put(self._mean[2][name], self.network.to_numpy(gradient))

    def _gradient_mean(self, names: Sequence[str]) -> tuple[GradientMean, dict[str, int]]:
        key = (self.network.version, *names)
        if self._mean is None or self._mean[0] != key:
            values = [self.network.parameters[name].value for name in names]
            shapes, dtypes = [value.shape for value in values], [value.dtype for value in values]
            mean = GradientMean(self.comm, shapes, dtypes, self.bucket_bytes)
            self._mean = (key, mean, {name: position for position, name in enumerate(names)})
        return self._mean[1], self._mean[2]


class ConsistentParameterServer(DistributedOptimizer):
    """Synchronous parameter server (Li et al. 2014, OSDI): rank 0 gets the mean of all gradients, its own included,
    updates, and broadcasts the parameters. Equal to the serial run on the union of the batches.

    Only rank 0 keeps the base optimizer's state. Payload per step and rank: twice the bytes of all parameters.
    """

    waits = "together"
    agrees_on_overflow = True
    changes_parameters = True

    def exchange_gradients(self, names: Sequence[str], gradients: Sequence[Any]) -> Sequence[Any]:
        """The weighted mean at rank 0; the other ranks' gradients stay as they are."""
        arrays = self.arrays(gradients)
        buckets = self.laid_out("gradients", arrays)
        buckets.put(arrays, self.samples)
        for bucket in buckets.all:
            bucket.reduce(self.comm, self.samples, root=0)
            if self.comm.rank == 0:  # elsewhere there is no sum, and perhaps no sample to divide by
                bucket.divide()
        return self.tensors(buckets.views()) if self.comm.rank == 0 else gradients

    @classmethod
    def put_together(cls, states: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """That of rank 0, which updates; what the others have is never used."""
        return {name: np.asarray(array) for name, array in states[0].items()}

    def mix(self) -> None:
        """Take over the parameters of rank 0."""
        if self.comm.size > 1:
            with self.communicating():
                arrays = self.arrays(self.parameters())
                self.set_parameters(self.tensors(self.laid_out("parameters", arrays).broadcast(self.comm, arrays)))
