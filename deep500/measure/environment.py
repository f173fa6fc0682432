"""The environment in which a number was measured: machine, versions, threads, git state.

What is not known is None, never a guess.
"""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

# fmt: off
PACKAGES = (
    "deep500", "numpy", "onnx", "scipy", "scikit-learn", "safetensors", "torch", "tensorflow", "tensorflow-cpu", "jax",
    "jaxlib", "onnxruntime", "mpi4py",
)
# fmt: on
"""Distributions whose versions are recorded; those that are not installed are None."""

VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
    "PYTHONHASHSEED",
    "CUBLAS_WORKSPACE_CONFIG",
    "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "NVIDIA_TF32_OVERRIDE",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "TF_ENABLE_ONEDNN_OPTS",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "LD_PRELOAD",
)
"""Environment variables that change speed or results."""


@functools.cache
def process_name() -> str:
    """Name this process as no other of this machine is named: its number, and the tick of the clock at which it began.

    Example:
        >>> process_name() == process_name()
        True
    """
    try:
        began = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        began = str(time.time_ns())
    return f"{os.getpid()}-{began}"


def describe(folder: str | Path | None = None) -> dict[str, Any]:
    """The environment as a dict that JSON can hold.

    Args:
        folder: whose git state is recorded; the current folder if None.

    Returns:
        ``cpu``, ``cores`` (of the machine), ``usable_cores`` (of this process), ``memory_bytes``, ``os``, ``python``,
        ``versions`` (distribution -> version or None), ``threads`` (library -> number or None), ``cuda``, ``variables``
        and ``git`` (``commit``, ``dirty``; None outside a repository).

    Example:
        >>> describe()["python"] == platform.python_version()
        True
    """
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_bytes": _memory(),
        "os": platform.platform(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "threads": {"torch": _torch_threads()},
        "cuda": _cuda(),
        "variables": {name: os.environ.get(name) for name in VARIABLES},
        "git": git_state(folder),
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return platform.processor() or None
    model = re.search(r"^(?:model name|Hardware|cpu model)\s*:\s*(.+)$", text, flags=re.MULTILINE)
    return model[1].strip() if model else platform.processor() or None


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _cuda() -> dict[str, Any] | None:
    """Versions of the driver (by its own file) and of what torch was built with; None where there is no driver."""
    driver = Path("/proc/driver/nvidia/version")
    if not driver.is_file():
        return None
    match = re.search(r"Kernel Module\s+(?:for \S+\s+)?(\S+)", driver.read_text(errors="replace"))
    torch = sys.modules.get("torch")
    return {
        "driver": match[1] if match else None,
        "toolkit": None if torch is None else torch.version.cuda,
        "cudnn": None if torch is None else torch.backends.cudnn.version(),
    }


def _torch_threads() -> int | None:
    torch = sys.modules.get("torch")  # a process that has not imported it does not run on its threads
    return None if torch is None else int(torch.get_num_threads())


def git_state(folder: str | Path | None = None) -> dict[str, Any] | None:
    """Commit and whether the working tree differs from it; None where there is no repository or no git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(folder, "status", "--porcelain")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(folder: str | Path | None, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
