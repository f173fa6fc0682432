"""`StaleSynchronous`: workers may run ahead of each other, but only so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from deep500.distributed.gradient_log import Contribution
from deep500.distributed.schemes.asynchronous import InconsistentParameterServer
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError
from deep500.training.data.samplers import checked_integer
from deep500.training.optimizers.base import Optimizer


class StaleSynchronous(InconsistentParameterServer):
    """Parameter server with bounded staleness (Ho et al. 2013, More Effective Distributed ML via a Stale Synchronous
    Parallel Parameter Server, NIPS 26): a worker begins its step c only when all workers have ended step c - s - 1.

    The gradient of step c is therefore computed at parameters that hold all updates of the steps before c - s. As in
    the bounded delay of Li et al. 2014 (OSDI, section 3.5) the server collects the gradients of one step, and updates
    once with their mean over samples when it has all of them; Ho et al. add every worker's change as it comes. So
    ``staleness=0`` is the synchronous parameter server for every base optimizer, with P - 1 workers, and one worker
    alone is the serial run, bit by bit. A worker without samples in a batch passes it without waiting.

    The server keeps the gradients of steps that are not complete: at most ``staleness + 1`` of each worker.
    Payload as for :class:`~deep500.distributed.schemes.asynchronous.InconsistentParameterServer`.

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`.
        staleness: by how many steps a worker may be ahead of the slowest (s above), at least 0.

    Raises:
        CommunicationError: fewer than two ranks.
        InputError: ``staleness`` is no such number, a loss with weights of classes or labels on more than one worker,
            or the server got samples to compute on (in a step).
    """

    def __init__(self, base_optimizer: Optimizer, comm: Communicator | None = None, staleness: int = 1) -> None:
        super().__init__(base_optimizer, comm)
        if self.comm.size > 2 and not self.batch_weights.denominator.whole:
            raise InputError(
                f"got a loss {self.loss!r} that divides by a sum of weights, with StaleSynchronous; expected one over "
                "samples or labels, as its log of gradients counts whole ones: leave out the weights, or use "
                "ConsistentParameterServer"
            )
        self.staleness = checked_integer("staleness", staleness, 0)
        self.clocks = dict.fromkeys(self.computing_ranks(self.comm.size), 0)  # steps that each worker has ended
        self.complete = 0  # steps that all have ended
        self._early: dict[
            int, dict[int, tuple[Contribution, list[np.ndarray]] | None]
        ] = {}  # gradients by step and worker

    def may_go_on(self, worker: int) -> bool:
        """Whether it is not too far ahead."""
        return self.clocks[worker] - self.complete <= self.staleness

    def arrived(self, contribution: Contribution, gradients: list[np.ndarray] | None) -> None:
        """Keep copies until their step is complete; one update with their mean then.

        Summed in the order of ranks: the order of arrival changes nothing.
        """
        worker = contribution.worker
        part = None if gradients is None else (contribution, [np.array(gradient) for gradient in gradients])
        self._early.setdefault(self.clocks[worker], {})[worker] = part
        self.clocks[worker] += 1
        while len(self._early.get(self.complete, ())) == len(self.clocks):
            parts = [part for _, part in sorted(self._early.pop(self.complete).items()) if part is not None]
            if parts:
                self.apply(parts)
            self.complete += 1

    def own_state(self) -> dict[str, np.ndarray]:
        return {**super().own_state(), "complete": np.asarray(self.complete, np.int64)}

    def load_own_state(self, state: Mapping[str, Any]) -> None:
        super().load_own_state(state)
        self.complete = int(state["complete"])
        self.clocks = dict.fromkeys(self.clocks, self.complete)
