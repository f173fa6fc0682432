"""Facts about the machine that change times: CPU, caches, clocks, kernel switches, limits, container.

Read from the kernel's files; what a system does not tell is None. :func:`volatile` holds what is never the same twice.
"""

from __future__ import annotations

import hashlib
import locale
import os
import platform
import re
import resource
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

CPU, PROC = Path("/sys/devices/system/cpu"), Path("/proc")
SIMD = ("sse4_2", "avx", "avx2", "avx512f", "amx_tile", "asimd", "sve")
LIMITS = ("RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_MEMLOCK", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_STACK")


def hardware() -> dict[str, Any]:
    """CPU, caches, clock switches and memory layout."""
    info = _read(PROC / "cpuinfo") or ""
    flags = _field(info, "flags") or _field(info, "Features") or ""
    return {
        "vendor": _field(info, "vendor_id"),
        "family": _field(info, "cpu family"),
        "model_number": _field(info, "model"),
        "stepping": _field(info, "stepping"),
        "microcode": _field(info, "microcode"),
        "flags_sha256": hashlib.sha256(" ".join(sorted(flags.split())).encode()).hexdigest()[:16] if flags else None,
        "simd": [
            name for name in ("sse4_2", "avx", "avx2", "avx512f", "amx_tile", "asimd", "sve") if name in flags.split()
        ],
        "virtual": "hypervisor" in flags.split() if flags else None,
        "mitigations_for": _field(info, "bugs"),
        "sockets": len(set(re.findall(r"^physical id\s*:\s*(\d+)", info, re.MULTILINE))) or None,
        "threads_per_core": _threads_per_core(),
        "numa_nodes": len(list(Path("/sys/devices/system/node").glob("node[0-9]*"))) or None,
        "caches": _caches(),
        "governor": _read(CPU / "cpu0/cpufreq/scaling_governor"),
        "max_khz": _read(CPU / "cpu0/cpufreq/cpuinfo_max_freq"),
        "boost": _read(CPU / "cpufreq/boost"),
        "no_turbo": _read(CPU / "intel_pstate/no_turbo"),
        "smt": _read(CPU / "smt/control"),
        "product": _read(Path("/sys/class/dmi/id/product_name")),
        "gpus": _gpus(),
        "power_counters": [_read(path) for path in sorted(Path("/sys/class/powercap").glob("intel-rapl:?/name"))],
        "swap_bytes": _meminfo("SwapTotal"),
    }


def kernel() -> dict[str, Any]:
    """Kernel release and the switches that times depend on, container and control group."""
    transparent = _read(Path("/sys/kernel/mm/transparent_hugepage/enabled")) or ""
    chosen = re.search(r"\[(\w+)\]", transparent)
    return {
        "release": platform.release(),
        "version": platform.version(),
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "distribution": _distribution(),
        "clocksource": _read(Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        "transparent_hugepages": chosen[1] if chosen else None,
        "address_randomisation": _read(PROC / "sys/kernel/randomize_va_space"),
        "swappiness": _read(PROC / "sys/vm/swappiness"),
        "overcommit": _read(PROC / "sys/vm/overcommit_memory"),
        "perf_event_paranoid": _read(PROC / "sys/kernel/perf_event_paranoid"),
        "container": _container(),
        "cgroup_cpu": _read(Path("/sys/fs/cgroup/cpu.max")),
        "cgroup_memory": _read(Path("/sys/fs/cgroup/memory.max")),
    }


def usable_cores() -> int:
    """Cores that this process may use.

    Example:
        >>> usable_cores() >= 1
        True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads_to_use() -> int:
    """Threads that a framework takes unless told: ``OMP_NUM_THREADS``, else as many as there are usable cores."""
    declared = os.environ.get("OMP_NUM_THREADS", "")
    return int(declared) if declared.isdigit() and int(declared) > 0 else usable_cores()


def process() -> dict[str, Any]:
    """The interpreter and what this process is allowed: limits, affinity, scheduling, locale, packages."""
    affinity = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "implementation": platform.python_implementation(),
        "compiler": platform.python_compiler(),
        "build_flags": hashlib.sha256((sysconfig.get_config_var("CONFIG_ARGS") or "").encode()).hexdigest()[:16],
        "optimized": sys.flags.optimize,
        "hash_randomized": bool(sys.flags.hash_randomization),
        "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
        "affinity": affinity,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "scheduler": os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else None,
        "byte_order": sys.byteorder,
        "locale": locale.setlocale(locale.LC_CTYPE),
        "switch_interval": sys.getswitchinterval(),
        "limits": {name: resource.getrlimit(getattr(resource, name))[0] for name in LIMITS if hasattr(resource, name)},
        "packages": dict(sorted({d.metadata["Name"]: d.version for d in metadata.distributions()}.items())),
    }


def volatile() -> dict[str, Any]:
    """Return load, free memory, clocks and temperature: never the same twice, and so no part of the fingerprint."""
    info = _read(PROC / "cpuinfo") or ""
    uptime = _read(PROC / "uptime")
    return {
        "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None,
        "available_bytes": _meminfo("MemAvailable"),
        "mhz": [float(value) for value in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", info, re.MULTILINE)] or None,
        "temperature": _read(Path("/sys/class/thermal/thermal_zone0/temp")),
        "cpu_pressure": _read(PROC / "pressure/cpu"),
        "memory_pressure": _read(PROC / "pressure/memory"),
        "uptime_s": float(uptime.split()[0]) if uptime else None,
        "pid": os.getpid(),
    }


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _field(text: str, name: str) -> str | None:
    line = re.search(rf"^{re.escape(name)}\s*:[ \t]*(.+)$", text, re.MULTILINE)
    return line[1].strip() if line else None


def _meminfo(name: str) -> int | None:
    size = _field(_read(PROC / "meminfo") or "", name)
    return int(size.split()[0]) * 1024 if size else None


def _threads_per_core() -> int | None:
    siblings = _read(CPU / "cpu0/topology/thread_siblings_list")
    if siblings is None:
        return None
    return sum(len(range(int((part.split("-"))[0]), int(part.split("-")[-1]) + 1)) for part in siblings.split(","))


def _caches() -> dict[str, str] | None:
    sizes = {}
    for index in sorted((CPU / "cpu0/cache").glob("index*")):
        level, kind, size = (_read(index / name) for name in ("level", "type", "size"))
        if level and kind and size:
            sizes[f"L{level} {kind.lower()}"] = size
    return sizes or None


def _gpus() -> list[str]:
    """NVIDIA GPUs by the driver's files, without its library."""
    return [
        name
        for path in sorted(PROC.glob("driver/nvidia/gpus/*/information"))
        if (name := _field(_read(path) or "", "Model"))
    ]


def _container() -> str | None:
    if Path("/.dockerenv").exists():
        return "docker"
    if Path("/run/.containerenv").exists():
        return "podman"
    return os.environ.get("container") or ("apptainer" if "APPTAINER_NAME" in os.environ else None)


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None
