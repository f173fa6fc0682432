"""`DiLoCo`: long rounds of local steps, and an outer optimizer that takes their mean for a gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from deep500.distributed.buckets import Buckets, carrier
from deep500.distributed.schemes.averaging import LocalSGD
from deep500.distributed.transports.communicator import Communicator
from deep500.errors import InputError
from deep500.training.optimizers.base import Optimizer


class DiLoCo(LocalSGD):
    """Distributed low-communication training (Douillard et al. 2023, arXiv 2311.08105, algorithm 1).

    Every rank takes ``every`` local steps from the common parameters ``w``; then ``d = w - sum_p n_p w_p / sum_p n_p``
    (``n_p`` samples of the round, or what else the loss divides by) is the gradient of an outer SGD step, as PyTorch
    has it: ``v <- outer_momentum v + d``; ``w <- w - outer_lr (d + outer_momentum v)`` with Nesterov's momentum,
    ``w <- w - outer_lr v`` without. The paper takes AdamW as base optimizer and keeps its state on each rank, as here.

    With ``outer_lr=1, outer_momentum=0`` it is :class:`~deep500.distributed.schemes.averaging.LocalSGD`. With one
    rank the outer step is taken too (it is then the Lookahead optimizer, Zhang et al. 2019, with momentum).

    Payload per rank: the bytes of all parameters every ``every`` steps.

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`; native ones work too.
        every: local steps between outer steps (H in the paper, which takes 500).
        outer_lr, outer_momentum, nesterov: of the outer optimizer; the paper's best are the defaults.

    Attributes:
        outer: the parameters at the begin of the round, by name; float32 for narrower ones. Part of the state.
        velocity: ``v`` by name. Part of the state.

    Raises:
        InputError: ``every`` below 1, ``outer_lr`` not a finite number > 0, ``outer_momentum`` outside [0, 1).
    """

    def __init__(
        self,
        base_optimizer: Optimizer,
        comm: Communicator | None = None,
        every: int = 8,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        nesterov: bool = True,
    ) -> None:
        if not 0 < outer_lr < math.inf or not 0 <= outer_momentum < 1:
            raise InputError(
                f"got outer_lr={outer_lr!r}, outer_momentum={outer_momentum!r}; expected a finite number > 0, and a "
                "number >= 0 and < 1: choose others"
            )
        super().__init__(base_optimizer, comm, every)
        self.outer_lr, self.outer_momentum, self.nesterov = float(outer_lr), float(outer_momentum), bool(nesterov)
        self.outer: dict[str, np.ndarray] = {}
        self.velocity: dict[str, np.ndarray] = {}

    def step(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """A local step; the first of a round remembers the parameters that all ranks have."""
        if self.steps % self.every == 0:
            self.outer = {name: array.copy() for name, array in self._parameters().items()}
        return super().step(inputs)

    def mix(self) -> None:
        """The outer step, when it is time."""
        self.seen += self.samples
        if (self.steps + 1) % self.every == 0:
            with self.communicating():
                self.average()
            self.seen = 0

    def average(self) -> None:
        """Move all parameters from those at the begin of the round towards the mean of all ranks, and past it."""
        names, arrays = zip(*self._parameters().items(), strict=True)  # a loaded state has another order
        buckets = Buckets.like(arrays)
        means = buckets.mean(self.comm, arrays, self.seen) if self.comm.size > 1 else arrays
        means = means if self.comm.size == 1 or buckets.weighed else arrays  # no rank had a sample
        moved = [self._moved(name, mean) for name, mean in zip(names, means, strict=True)]
        dtypes = [array.dtype for array in self.arrays(self.parameters())]
        self.set_parameters(self.tensors([array.astype(d, copy=False) for array, d in zip(moved, dtypes, strict=True)]))

    def _moved(self, name: str, mean: np.ndarray) -> np.ndarray:
        difference = self.outer[name] - mean
        velocity = self.outer_momentum * self.velocity.get(name, np.zeros_like(difference)) + difference
        self.velocity[name] = velocity
        direction = difference + self.outer_momentum * velocity if self.nesterov else velocity
        return mean + (difference - self.outer_lr * direction)  # w - lr direction, and the mean itself if it is that

    def _parameters(self) -> dict[str, np.ndarray]:
        """Present parameters in the dtype that they are summed in."""
        arrays = self.arrays(self.parameters())
        summed = [array.astype(carrier(array.dtype), copy=False) for array in arrays]
        return dict(zip(self.parameter_names(), summed, strict=True))

    def own_state(self) -> dict[str, np.ndarray]:
        slots = {"outer": self.outer, "velocity": self.velocity}
        copies = {f"{slot}/{name}": array.copy() for slot, tensors in slots.items() for name, array in tensors.items()}
        return {**super().own_state(), **copies}

    def load_own_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().load_own_state(state)
        self.outer, self.velocity = self.slots("outer", state), self.slots("velocity", state)
