"""Fourier transforms; complex numbers are ONNX's pairs in the last axis."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.operators.table import Array, op, scalar
from deep500.networks.execution.operator_table import positive


def _complex(x: Array) -> Array:
    x = x.astype(np.float64)  # differences of large terms: single precision leaves 1e-6 where there should be nothing
    return x[..., 0] if x.shape[-1] == 1 else jax.lax.complex(x[..., 0], x[..., 1])


def _pairs(x: Array, dtype: Any) -> Array:
    return jnp.stack([x.real, x.imag], -1).astype(dtype)


@op("DFT", static=(1, 2))
def dft(x: Array, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0) -> Array:
    """Both ways, for real or complex numbers; ``onesided`` keeps the half of a real spectrum that fixes the rest."""
    along, n = positive(int(scalar(axis, -2)), x.ndim), scalar(length)
    signal = _complex(x)
    if onesided and inverse:
        return jnp.fft.irfft(signal, n, along)[..., None].astype(x.dtype)
    if onesided:
        return _pairs(jnp.fft.rfft(signal, n, along), x.dtype)
    return _pairs((jnp.fft.ifft if inverse else jnp.fft.fft)(signal, n, along), x.dtype)


@op("STFT", static=(1, 3))
def stft(signal: Array, step: Any, window: Array | None = None, length: Any = None, *, onesided: int = 1) -> Array:
    x, hop = _complex(signal), int(scalar(step))
    n = int(scalar(length)) if length is not None else len(window)  # type: ignore[arg-type]
    starts = np.arange((x.shape[1] - n) // hop + 1) * hop
    frames = x[:, starts[:, None] + np.arange(n)]
    frames = frames if window is None else frames * window
    return _pairs(jnp.fft.rfft(frames, n) if onesided else jnp.fft.fft(frames, n), signal.dtype)
