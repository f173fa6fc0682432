"""The driver's figures for one NVIDIA GPU: memory in use and utilisation. Needs the package nvidia-ml-py.

NVML numbers all GPUs of the machine, a framework those that ``CUDA_VISIBLE_DEVICES`` leaves; :func:`find_gpu` takes
the framework's number.
"""

from __future__ import annotations

import os
from typing import Any, Protocol


class GPU(Protocol):
    """One GPU as a meter needs it.

    Attributes:
        name: ``gpu:`` and the machine's number of it, as :mod:`deep500.measure.energy` calls it.
    """

    name: str

    def used_bytes(self) -> int:
        """Memory in use now, by all processes."""
        ...

    def busy(self) -> float:
        """Share of the last sampling period (a sixth of a second to a second) in which a kernel ran, 0 to 1."""
        ...


class NvmlGPU:
    """A GPU asked through NVML.

    Args:
        nvml: the module ``pynvml``, initialised.
        handle: NVML's handle of the GPU.
    """

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self.name = f"gpu:{nvml.nvmlDeviceGetIndex(handle)}"

    def used_bytes(self) -> int:
        """Memory in use now, by all processes."""
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def busy(self) -> float:
        """Share of the last sampling period in which a kernel ran, 0 to 1."""
        return float(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu) / 100


def find_gpu(device: Any) -> tuple[GPU | None, str]:
    """The GPU that a framework calls ``device``, or None and why there is none.

    Args:
        device: a :class:`deep500.devices.Device`.

    Example:
        >>> from deep500.devices import CPUDevice
        >>> find_gpu(CPUDevice())
        (None, 'the run used cpu:0')
    """
    if device.kind != "gpu":
        return None, f"the run used {device}"
    try:
        import pynvml
    except ImportError:
        return None, "no NVML (pip install nvidia-ml-py)"
    try:
        pynvml.nvmlInit()
        return NvmlGPU(pynvml, _handle(pynvml, device.index)), ""
    except Exception as error:  # noqa: BLE001 - NVML's own errors derive from Exception only
        return None, f"no NVML ({error})"


def _handle(nvml: Any, index: int) -> Any:
    """NVML's handle of the framework's GPU of that number."""
    visible = [number.strip() for number in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if number.strip()]
    chosen = visible[index] if visible else str(index)
    if chosen.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(chosen))
    return nvml.nvmlDeviceGetHandleByUUID(chosen)
