"""Where a computation runs. A device is a plain value; backends turn it into their own, when an executor is built."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from typing import Any, ClassVar

from deep500.errors import InputError, MissingDevice

LOCAL_RANKS = ("LOCAL_RANK", "MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
"""Variables in which launchers give a rank its number on its machine: torchrun, MPICH and Intel MPI, Open MPI, srun."""


class DeviceWarning(UserWarning):
    """A device that was asked for is absent and another took its place."""


def local_rank() -> int:
    """This rank's number on its machine, 0 where nobody launched several."""
    return int(next((os.environ[name] for name in LOCAL_RANKS if os.environ.get(name, "").isdigit()), "0"))


@dataclass(frozen=True)
class Device:
    """A kind of device and its number; use :class:`CPUDevice` or :class:`GPUDevice`."""

    index: int = 0
    kind: ClassVar[str] = "cpu"

    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


@dataclass(frozen=True)
class CPUDevice(Device):
    """The CPU."""

    kind: ClassVar[str] = "cpu"


@dataclass(frozen=True)
class GPUDevice(Device):
    """An accelerator; a backend without one falls back to the CPU and warns (see :func:`fall_back`).

    Without a number it is the one of this rank: that with the rank's number on its machine (:data:`LOCAL_RANKS`).
    """

    index: int = field(default_factory=local_rank)
    kind: ClassVar[str] = "gpu"


def to_device(device: Any) -> Device:
    """Turn None (the CPU), ``"cpu"``, ``"gpu"``, ``"gpu:1"`` or a :class:`Device` into a :class:`Device`.

    ``"gpu"`` is the card of this rank, see :class:`GPUDevice`.

    Example:
        >>> to_device("gpu:1")
        GPUDevice(index=1)
    """
    if device is None:
        return CPUDevice()
    if isinstance(device, Device):
        return device
    kinds = {"cpu": CPUDevice, "gpu": GPUDevice, "cuda": GPUDevice}
    kind, _, index = str(device).partition(":")
    if kind not in kinds or not (index or "0").isdigit():
        raise InputError(f"got device {device!r}; expected 'cpu', 'gpu' or 'gpu:<number>'")
    return kinds[kind](int(index)) if index else kinds[kind]()


def fall_back(device: Device, available: int, strict: bool = False) -> Device:
    """The device itself if there are enough of its kind, else the CPU with a :class:`DeviceWarning`.

    Args:
        device: what was asked for.
        available: how many accelerators the backend sees.
        strict: raise :class:`deep500.errors.MissingDevice` instead of falling back.
    """
    if device.kind == "cpu" or device.index < available:
        return device
    seen = {0: "no GPU", 1: "one GPU, gpu:0"}.get(available, f"gpu:0 to gpu:{available - 1}")
    message = f"got device {device}; expected one that this backend sees, which is {seen}"
    if strict:
        raise MissingDevice(f"{message}; choose --device cpu or run where there is one")
    warnings.warn(f"{message}; running on the CPU instead", DeviceWarning, stacklevel=3)
    return CPUDevice()
