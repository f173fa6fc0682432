"""Compilers of operators: the system's C++ compiler, else the one in the package ziglang; nvcc for those in CUDA."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shlex
import shutil
import sys
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from deep500.errors import MissingDevice, MissingEngine

SYSTEM = ("c++", "clang++", "g++")


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler.

    Attributes:
        kind: ``gcc``, ``clang`` or ``zig``.
        command: how it is started.
        identity: changes when the compiler does: path, size and time of its program (asking it for its version would
            cost more than loading a compiled operator).
    """

    kind: str
    command: tuple[str, ...]
    identity: str


def find_compiler() -> Compiler:
    """The compiler that ``DEEP500_CXX`` names (a command, or ``zig``); else c++, clang++ or g++; else zig.

    Raises:
        MissingEngine: there is none.
    """
    return _find(os.environ.get("DEEP500_CXX", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=16)
def _find(chosen: str, path: str) -> Compiler:
    if chosen and chosen != "zig":
        words = shlex.split(chosen)
        program = shutil.which(words[0], path=path)
        if program is None:
            raise MissingEngine(
                f"got DEEP500_CXX={chosen!r}, no program; expected a C++ compiler or 'zig': correct or unset it"
            )
        return _compiler((program, *words[1:]))
    system = None if chosen else next(filter(None, (shutil.which(name, path=path) for name in SYSTEM)), None)
    if system is not None:
        return _compiler((system,))
    zig = zig_program()
    if zig is None:
        raise MissingEngine(
            f"got no C++ compiler; expected one of {', '.join(SYSTEM)} on the PATH, or the package ziglang: "
            "pip install 'deep500[cpp]'"
        )
    return Compiler("zig", (str(zig), "c++"), identity(zig))


def zig_program() -> Path | None:
    """The program in the package ziglang, None if that is not installed."""
    spec = importlib.util.find_spec("ziglang")
    folders = spec.submodule_search_locations if spec else None
    program = (Path(folders[0]) / "zig").resolve() if folders else None  # behind links its headers would be a user's
    return program if program is not None and program.is_file() else None


def _compiler(command: tuple[str, ...]) -> Compiler:
    real = Path(command[0]).resolve()
    kind = "clang" if "clang" in real.name or sys.platform == "darwin" else "gcc"
    return Compiler(kind, command, " ".join((*command[1:], identity(real))))


def identity(program: Path) -> str:
    """Changes when a program does."""
    about = program.stat()
    return f"{program}:{about.st_size}:{about.st_mtime_ns}"


@lru_cache(maxsize=1)
def cpu_model() -> str:
    """Describe the CPU and what it can do: machine code for one need not run on another."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
            first = []
            for line in file:  # one core's block is enough, and large machines have hundreds
                if not line.strip():
                    break
                if line.startswith(("vendor_id", "cpu family", "model", "stepping", "flags", "Features", "CPU ")):
                    first.append(line)
    except OSError:
        first = [platform.processor()]
    return f"{platform.machine()}-{sha256(''.join(first).encode()).hexdigest()[:16]}"


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
    present = [f"nvcc at {nvcc}" if nvcc else "no nvcc", architecture or f"no GPU ({why})"]
    cures = [] if nvcc else ["install the CUDA toolkit, or put its nvcc on the PATH"]
    cures += [] if architecture else ["run it on a machine with an NVIDIA GPU and its driver"]
    raise MissingDevice(
        f"CUDA operator {name!r}: got {' and '.join(present)}; expected nvcc and a GPU: {'; '.join(cures)} (or write "
        "forward in a .cpp file, for the CPU)"
    )


def nvcc_program() -> Path | None:
    """Find nvcc: on the PATH, in CUDA_HOME, or where the toolkit installs it."""
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
