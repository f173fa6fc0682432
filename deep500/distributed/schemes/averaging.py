"""Schemes whose ranks update by themselves and average their parameters, after every step or every few."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.distributed.optimizer import DistributedOptimizer
from deep500.distributed.transports.communicator import Communicator
from deep500.training.data.samplers import checked_integer
from deep500.training.optimizers.base import Optimizer


def average_parameters(scheme: DistributedOptimizer, weight: float) -> None:
    """All parameters become their mean over ranks, of which this one has a weight; if no rank has any, they stay."""
    arrays = scheme.arrays(scheme.parameters())
    buckets = scheme.laid_out("parameters", arrays)
    means = buckets.mean(scheme.comm, arrays, weight)
    if buckets.weighed:
        scheme.set_parameters(scheme.tensors(means))


class ModelAverage(DistributedOptimizer):
    """Every rank updates with its own gradient, then ``w <- sum_p n_p w_p / sum_p n_p``, ``n_p`` samples on rank p, or
    what else its loss divides by.

    Equal to the serial run for update rules that are linear in the gradient, different for others (Adam). Rules with
    a memory (momentum) are equal only where the shares ``n_p / sum_p n_p`` are the same in every step: each rank keeps
    the sum of its own gradients, which every average weights by the share of its own step. A smaller last batch of an
    epoch can change the shares (``drop_last_batch=True`` avoids it); SGD without momentum is equal all the same.
    Optimizer states stay local. Payload per step and rank: the bytes of all parameters.
    """

    waits = "together"
    agrees_on_overflow = True
    stands_outside = True
    changes_parameters = True

    def mix(self) -> None:
        """Average the parameters."""
        if self.comm.size > 1:
            with self.communicating():
                average_parameters(self, self.samples)


class LocalSGD(DistributedOptimizer):
    """``every`` local steps, then the parameters are averaged (Stich 2019, arXiv 1805.09767; McMahan et al. 2017).

    ``every=1`` is :class:`ModelAverage`, equal to the serial run where that is; with more local steps no rule is,
    because the ranks' gradients are of different parameters. Payload per rank: the bytes of all parameters every
    ``every`` steps.

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.
        every: local steps between averages (H in the papers).
    """

    waits = "together"
    stands_outside = True
    consistent = False
    changes_parameters = True

    def __init__(self, base_optimizer: Optimizer, comm: Communicator | None = None, every: int = 8) -> None:
        super().__init__(base_optimizer, comm)
        self.every = checked_integer("every", every, 1)
        self.seen: float = 0  # samples since the last average

    def mix(self) -> None:
        """Average when it is time."""
        self.seen += self.samples
        if (self.steps + 1) % self.every == 0:
            if self.comm.size > 1:
                with self.communicating():
                    self.average()
            self.seen = 0

    def average(self) -> None:
        """All parameters become their mean, weighted by the samples since the last one."""
        average_parameters(self, self.seen)

    def own_state(self) -> dict[str, np.ndarray]:
        return {"seen": np.asarray(self.seen)}

    def load_own_state(self, state: Any) -> None:
        self.seen = state["seen"].item()
