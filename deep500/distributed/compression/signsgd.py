"""`SignSGD`: one bit per element, and the rest later."""

from __future__ import annotations

import numpy as np

from deep500.distributed.compression.base import Encoded, Flat, as_bytes


class SignSGD(Encoded):
    """Sign compression with error feedback (Karimireddy et al. 2019, arXiv 1901.09847, EF-signSGD, algorithm 1): each
    rank sends ``mean |v| sign(v)`` per parameter tensor.

    0 counts as positive; the residual makes up for it. (Without error feedback the sign need not converge: section 3.)

    Payload per step and rank: ``ceil(n / 8)`` bytes for n gradient elements, and an element (4 bytes in float32) per
    parameter tensor.

    Args:
        base_optimizer, comm: see :class:`~deep500.distributed.optimizer.DistributedOptimizer`; native ones work too.
    """

    def encode(self, flat: Flat) -> np.ndarray:
        """Scales, then signs."""
        scales = [np.abs(tensor).mean(dtype=np.float64) if tensor.size else 0.0 for tensor in flat.tensors.values()]
        return as_bytes(np.array(scales, flat.values.dtype), np.packbits(np.signbit(flat.values)))

    def add(self, message: np.ndarray, flat: Flat, into: np.ndarray) -> None:
        """Add ``scale`` where the bit is 0, subtract it where it is 1."""
        border = len(flat.tensors) * into.itemsize
        negative = np.unpackbits(message[border:], count=into.size).astype(bool)
        scales = np.repeat(message[:border].view(into.dtype), [tensor.size for tensor in flat.tensors.values()])
        into += np.where(negative, -scales, scales)
