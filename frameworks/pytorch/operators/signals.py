"""Fourier transforms; complex numbers are ONNX's pairs in the last axis."""

from __future__ import annotations

from typing import Any

import torch

from deep500.frameworks.pytorch.operators.table import op, scalar
from deep500.networks.execution.operator_table import positive

Tensor = torch.Tensor


def _complex(x: Tensor) -> Tensor:
    return x[..., 0] if x.shape[-1] == 1 else torch.view_as_complex(x.contiguous())


@op("DFT", static=(1, 2))
def dft(x: Tensor, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0) -> Tensor:
    """Both ways, for real or complex numbers; ``onesided`` keeps the half of a real spectrum that fixes the rest."""
    along, n = positive(scalar(axis, -2), x.ndim), scalar(length)
    signal = _complex(x)
    if onesided and inverse:
        return torch.fft.irfft(signal, n, along).unsqueeze(-1)
    if onesided:
        return torch.view_as_real(torch.fft.rfft(signal, n, along))
    return torch.view_as_real((torch.fft.ifft if inverse else torch.fft.fft)(signal, n, along).resolve_conj())


@op("STFT", static=(1, 3))
def stft(signal: Tensor, step: Any, window: Tensor | None = None, length: Any = None, *, onesided: int = 1) -> Tensor:
    n = scalar(length) if length is not None else window.shape[0]  # type: ignore[union-attr]
    frames = _complex(signal).unfold(1, n, scalar(step))
    frames = frames if window is None else frames * window
    return torch.view_as_real(torch.fft.rfft(frames, n) if onesided else torch.fft.fft(frames, n))
