"""`TorchNetwork`: the network of an executor, whose tensors are those of ``executor.module``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from deep500.frameworks.pytorch.dtypes import from_array, to_array
from deep500.networks.execution.differentiating import LiveNetwork
from deep500.networks.execution.refusals import unfit_parameter


def hollow_tensor(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """NaN in this shape, of one element."""
    return torch.full((), torch.nan, dtype=dtype, device=device).expand(tuple(shape))


class TorchNetwork(LiveNetwork):
    """A network with PyTorch's tensors; gradients are in ``parameter.grad``."""

    own_arrays = False
    leaves_undrawn = True

    def __str__(self) -> str:
        """The table of the network, and what is run by one function each though the network writes it out."""
        executor = self._executor
        kinds = Counter(executor.module.recognised.values()) if executor.recognise else {}
        line = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        return f"{super().__str__()}\nrecognised by {executor.backend}: {line}" if line else super().__str__()

    def feed_tensor(self, name: str, value: Any) -> None:
        """Overwrite a parameter in place (see the base class)."""
        executor = self._executor
        old = executor.tensor(name)
        new = value.detach() if isinstance(value, torch.Tensor) else from_array(value)
        if new.dtype != old.dtype or new.shape != old.shape:
            raise unfit_parameter(name, new, old)
        with torch.no_grad():
            if executor.is_constant(name):
                if torch.equal(old, new.to(old.device)):
                    return
                executor.forget_constant(name)
            old.detach().copy_(new)

    def assign_tensor(self, name: str, value: Any) -> None:
        """Let a parameter take over a tensor's memory; all who hold the parameter see the new values."""
        old = self._executor.tensor(name)
        kind = (old.dtype, old.shape, old.device)
        if not isinstance(value, torch.Tensor) or (value.dtype, value.shape, value.device) != kind:
            return self.feed_tensor(name, value)
        old.data = value.detach()
        torch.autograd.graph.increment_version(old)  # which the line above does not; an address may come again
        return self._executor.forget_constant(name)

    def release_tensor(self, name: str) -> None:
        """The tensor keeps its shape, of one element (see the base class); the array that it was made from goes too."""
        old = self._executor.tensor(name)
        self.assign_tensor(name, hollow_tensor(old.shape, old.dtype, old.device))
        old.grad = None
        self.parameter(name).value = self._hollow(name)

    def leave_gradients(self, gradients: Mapping[str, Any]) -> None:
        """In ``parameter.grad``."""
        for name, gradient in gradients.items():
            self._executor.tensors[name].grad = gradient

    def weighted_sum(self, terms: Sequence[Sequence[Any]], weights: Sequence[float]) -> list[torch.Tensor]:
        """By torch's own functions for lists of tensors."""
        with torch.no_grad():
            sums = list(torch._foreach_mul(list(terms[0]), weights[0]))
            for term, weight in zip(terms[1:], weights[1:], strict=True):
                torch._foreach_add_(sums, list(term), alpha=weight)
        return sums

    def concatenate(self, tensors: Sequence[Any]) -> torch.Tensor:
        """By ``torch.cat``."""
        return torch.cat(list(tensors))

    def to_tensor(self, array: np.ndarray) -> torch.Tensor:
        """An array as a tensor of its own on the device."""
        return from_array(np.array(array)).to(self._executor.torch_device)

    @staticmethod
    def to_numpy(tensor: Any) -> np.ndarray:
        """A tensor as an array; waits for the device."""
        return to_array(tensor)
