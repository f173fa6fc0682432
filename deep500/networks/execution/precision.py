"""How float32 is computed on GPUs: as IEEE says, or with TF32's ten bits of fraction in products and convolutions."""

from __future__ import annotations

from typing import NamedTuple

from deep500.devices import Device
from deep500.errors import InputError, nearest

PRECISIONS = ("ieee", "tf32")


class Numerics(NamedTuple):
    """Settings of arithmetic that an executor asks of a framework whose switches belong to the whole process."""

    precision: str = "ieee"
    deterministic: bool = False


def used_precision(asked: str, device: Device) -> str:
    """The precision in which a device computes: CPUs know no TF32.

    Example:
        >>> from deep500.devices import CPUDevice, GPUDevice
        >>> used_precision("tf32", GPUDevice()), used_precision("tf32", CPUDevice())
        ('tf32', 'ieee')
    """
    if asked not in PRECISIONS:
        raise InputError(f"got precision={asked!r}; expected one of {PRECISIONS}: {nearest(asked, PRECISIONS)}")
    return asked if device.kind == "gpu" else "ieee"
