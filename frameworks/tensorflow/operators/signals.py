"""Fourier transforms; complex numbers are ONNX's pairs in the last axis."""

from __future__ import annotations

from typing import Any

from deep500.frameworks.tensorflow.operators.table import op, rank, scalar, static_sizes
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.operator_table import positive

Tensor = Any


def _complex(x: Tensor) -> Tensor:
    real = x[..., 0]
    return tf.complex(real, tf.zeros_like(real) if x.shape[-1] == 1 else x[..., 1])


def _pairs(z: Tensor) -> Tensor:
    return tf.stack([tf.math.real(z), tf.math.imag(z)], -1)


def _fit(x: Tensor, axis: int, length: int) -> Tensor:
    """Cut or extend an axis by zeros."""
    (n,) = static_sizes(x, axis)
    if n >= length:
        return x[(slice(None),) * axis + (slice(length),)]
    return tf.pad(x, [(0, length - n if a == axis else 0) for a in range(rank(x))])


@op("DFT", static=(1, 2))
def dft(x: Tensor, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0) -> Tensor:
    """Both ways, for real or complex numbers; ``onesided`` keeps the half of a real spectrum that fixes the rest."""
    along, n = positive(scalar(axis, -2), rank(x)), scalar(length)
    order = [*(a for a in range(rank(x) - 1) if a != along), along]
    back = [order.index(a) for a in range(rank(x) - 1)]
    last = rank(x) - 2
    if onesided and inverse:
        half = tf.transpose(_complex(x), order)
        n = 2 * (static_sizes(half, last)[0] - 1) if n is None else n
        return tf.expand_dims(tf.transpose(tf.signal.irfft(_fit(half, last, n // 2 + 1), [n]), back), -1)
    signal = tf.transpose(_complex(x if n is None else _fit(x, along, n)), order)
    z = (tf.signal.ifft if inverse else tf.signal.fft)(signal)
    z = z[..., : static_sizes(z, last)[0] // 2 + 1] if onesided else z
    return _pairs(tf.transpose(z, back))


@op("STFT", static=(1, 3))
def stft(signal: Tensor, step: Any, window: Tensor | None = None, length: Any = None, *, onesided: int = 1) -> Tensor:
    n = scalar(length) if length is not None else static_sizes(window, 0)[0]
    frames = tf.signal.frame(_complex(signal), n, scalar(step), axis=1)
    frames = frames if window is None else frames * tf.complex(window, tf.zeros_like(window))
    z = tf.signal.fft(frames)
    return _pairs(z[..., : n // 2 + 1] if onesided else z)
