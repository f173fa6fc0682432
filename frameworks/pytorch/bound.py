"""`TorchNetwork`: an executor's network with live tensors, those of its module."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from deep500.frameworks.pytorch.dtypes import from_array, to_array
from deep500.networks.execution.executor import BoundNetwork
from deep500.networks.execution.refusals import unfit_parameter
from deep500.networks.network import Network

if TYPE_CHECKING:
    from deep500.frameworks.pytorch.executor import Executor


class TorchNetwork(BoundNetwork):
    """The network of an executor; its tensors are those of ``executor.module``."""

    def __init__(self, network: Network, executor: Executor) -> None:
        super().__init__(network)
        self._executor = executor

    def fetch_tensors(self, names: Sequence[str]) -> list[torch.Tensor]:
        """Live tensors, detached: parameters, gradients and outputs of the last run (see the base class)."""
        executor = self._executor
        executor.refresh()
        tensors, gradients = executor.tensors, executor.gradients
        return [
            tensors[n].detach() if n in tensors else gradients[n].gradient() if n in gradients else executor.result(n)
            for n in names
        ]

    def feed_tensor(self, name: str, value: Any) -> None:
        """Overwrite a parameter in place (see the base class)."""
        old = self._executor.tensor(name)
        new = value.detach() if isinstance(value, torch.Tensor) else from_array(value)
        if new.dtype != old.dtype or new.shape != old.shape:
            raise unfit_parameter(name, new, old)
        with torch.no_grad():
            if self._executor.is_constant(name) and torch.equal(old, new.to(old.device)):
                return
            old.detach().copy_(new)
        self._executor.forget_constant(name)

    def assign_tensor(self, name: str, value: Any) -> None:
        """Let a parameter take over a tensor's memory; whoever holds the parameter sees the new values."""
        old = self._executor.tensor(name)
        wanted = (old.dtype, old.shape, old.device)
        if not isinstance(value, torch.Tensor) or (value.dtype, value.shape, value.device) != wanted:
            return self.feed_tensor(name, value)
        old.data = value.detach()
        return self._executor.forget_constant(name)

    def to_tensor(self, array: np.ndarray) -> torch.Tensor:
        """An array as a tensor of its own on the device."""
        return from_array(np.array(array)).to(self._executor.torch_device)

    @staticmethod
    def to_numpy(tensor: Any) -> np.ndarray:
        """A tensor as an array; waits for the device."""
        return to_array(tensor)


@dataclass
class Gradient:
    """Where a gradient is found; a parameter that the loss does not reach has the gradient 0."""

    parameter: torch.Tensor

    def gradient(self) -> torch.Tensor:
        grad = self.parameter.grad
        return torch.zeros_like(self.parameter) if grad is None else grad
