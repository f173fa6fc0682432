"""What compiles operators in CUDA: nvcc, for the GPU that is there."""

from __future__ import annotations

import ctypes
import os
import shutil
from functools import lru_cache
from pathlib import Path

from deep500.errors import MissingDevice
from deep500.operators.cpp.compilers import Compiler, identity

MAJOR, MINOR = 75, 76
"""Attributes of a device in CUDA's driver interface: its compute capability."""


def find_nvcc(name: str) -> Compiler:
    """nvcc for the first GPU of this machine.

    Args:
        name: the operator's, for the error.

    Raises:
        MissingDevice: one of the two is missing; the message says which.
    """
    nvcc, (architecture, why) = nvcc_program(), gpu_architecture()
    if nvcc is not None and architecture is not None:
        return Compiler("nvcc", (str(nvcc), f"-arch={architecture}"), f"{identity(nvcc)} {architecture}")
    found = [f"nvcc at {nvcc}" if nvcc else "no nvcc", architecture or f"no GPU ({why})"]
    cures = [] if nvcc else ["install the CUDA toolkit, or put its nvcc on the PATH"]
    cures += [] if architecture else ["run it on a machine with an NVIDIA GPU and its driver"]
    raise MissingDevice(
        f"CUDA operator {name!r}: got {' and '.join(found)}; expected nvcc and a GPU: {'; '.join(cures)} (or write "
        "forward in a .cpp file, for the CPU)"
    )


def nvcc_program() -> Path | None:
    """Where nvcc is: on the PATH, in CUDA_HOME, or where the toolkit installs it."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [shutil.which("nvcc"), *(f"{home}/bin/nvcc" for home in homes if home)]
    return next((Path(place) for place in places if place and os.access(place, os.X_OK)), None)


@lru_cache(maxsize=1)
def gpu_architecture() -> tuple[str | None, str]:
    """nvcc's name for the first GPU, such as ``sm_90``, or None with the reason why there is none."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None, "no driver: libcuda.so.1 cannot be loaded"
    code = driver.cuInit(0)
    count = ctypes.c_int(0)
    if code or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return None, f"the driver finds none (cuInit: {code})"
    device, parts = ctypes.c_int(0), [ctypes.c_int(0), ctypes.c_int(0)]
    driver.cuDeviceGet(ctypes.byref(device), 0)
    for number, part in zip((MAJOR, MINOR), parts, strict=True):
        driver.cuDeviceGetAttribute(ctypes.byref(part), number, device)
    return f"sm_{parts[0].value}{parts[1].value}", ""
