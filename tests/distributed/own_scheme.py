"""A scheme of a user's own, in this file alone; test_own_scheme.py trains and simulates with it."""

from __future__ import annotations

from typing import Any

from deep500.distributed import Communicator, DistributedOptimizer
from deep500.training.optimizers import Optimizer


class TurnTaking(DistributedOptimizer):
    """In step k all ranks take over the parameters of rank k mod P, after an update with their own gradients."""

    waits = "together"
    changes_parameters = True

    def __init__(self, base_optimizer: Optimizer, comm: Communicator | None = None, first: int = 0) -> None:
        super().__init__(base_optimizer, comm)
        self.first = first

    def mix(self) -> None:
        turn = (self.first + self.steps) % self.comm.size
        self.set_parameters([self._from(turn, tensor) for tensor in self.parameters()])

    def _from(self, rank: int, tensor: Any) -> Any:
        return self.communication.broadcast(tensor, rank)
