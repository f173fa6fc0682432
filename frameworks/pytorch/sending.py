"""Inputs on their way to the device that a network runs on."""

from __future__ import annotations

from typing import Any

import torch

from deep500.frameworks.pytorch.dtypes import from_array

_PINNED = 1 << 16
"""Bytes from which on an array goes to the GPU by way of memory that the GPU reads by itself."""


class Sender:
    """Turns inputs into tensors on a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._copies: torch.cuda.Stream | None = None  # of large inputs, once there was one

    def tensor(self, value: Any) -> Any:
        """An input as a tensor on the device; sequences stay lists, absent optional values None."""
        if not isinstance(value, torch.Tensor):
            if value is None or isinstance(value, list):
                return value if value is None else [self.tensor(item) for item in value]
            value = from_array(value)
            if self.device.type == "cuda" and value.nbytes >= _PINNED:
                return self._sent(value)
        return value if value.device == self.device else value.to(self.device, non_blocking=True)

    def _sent(self, value: torch.Tensor) -> torch.Tensor:
        """On its way to the GPU on a stream of copies, beside the step before, which the next one alone waits for."""
        if self._copies is None:
            self._copies = torch.cuda.Stream(self.device)
        with torch.cuda.stream(self._copies):  # torch keeps pinned memory until the copy from it is done
            sent = value.pin_memory().to(self.device, non_blocking=True)
        steps = torch.cuda.current_stream(self.device)
        steps.wait_stream(self._copies)
        sent.record_stream(steps)  # its memory is not given away while the step reads it
        return sent
