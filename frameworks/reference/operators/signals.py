"""Fourier transforms; complex numbers are ONNX's pairs in the last axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.frameworks.reference.operators.table import op
from deep500.networks.execution.operator_table import positive

Array = np.ndarray


@op("DFT")
def dft(x: Array, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0) -> Array:
    """Both ways, for real or complex numbers; ``onesided`` keeps the half of a real spectrum that fixes the rest."""
    along = positive(-2 if axis is None else int(axis), x.ndim)
    size = None if length is None else int(length)
    wide = x.astype(np.float64)
    signal = wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]
    if onesided and inverse:
        return np.fft.irfft(signal, size, along)[..., None].astype(x.dtype)
    transform: Any = np.fft.rfft if onesided else np.fft.ifft if inverse else np.fft.fft
    z = transform(signal, size, along)
    return np.stack([z.real, z.imag], -1).astype(x.dtype)
