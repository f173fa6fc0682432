"""Peak memory of a block, and how busy the CPUs were: read from the kernel, not sampled.

Linux keeps the largest resident size of a process (``VmHWM``) and forgets it on request, so the peak of a block is
exact, however short it was. Where that cannot be done, the peak is None: not measured.
"""

from __future__ import annotations

import re
import resource
import time
from dataclasses import dataclass
from pathlib import Path

from deep500.measure.machine import usable_cores

STATUS, CLEAR, MACHINE = Path("/proc/self/status"), Path("/proc/self/clear_refs"), Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Usage:
    """Time and memory that a block used.

    Attributes:
        peak_bytes: largest resident memory of this process during the block; None if it cannot be known.
        grown_bytes: the peak less what was resident before.
        cpu_seconds: CPU time of all threads of this process.
        seconds: wall time.
        cores: CPUs that this process may use.
    """

    peak_bytes: int | None
    grown_bytes: int | None
    cpu_seconds: float
    seconds: float
    cores: int

    @property
    def utilisation(self) -> float:
        """CPU time as a share of the time that the CPUs had, 0 to 1."""
        return self.cpu_seconds / (self.seconds * self.cores) if self.seconds else 0.0


class UsageMeter:
    """Measures memory and CPU time of a ``with`` block; blocks must not be nested, the peak is one per process.

    Example:
        >>> with UsageMeter() as meter:
        ...     data = bytes(10_000_000)
        >>> meter.usage.peak_bytes is None or meter.usage.peak_bytes > 10_000_000
        True
    """

    usage: Usage

    def __enter__(self) -> UsageMeter:
        self._resets = _reset_peak()
        self._before = _field(STATUS, "VmRSS")
        self._cpu, self._wall = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        seconds, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        peak = _field(STATUS, "VmHWM") if self._resets else None
        grown = None if peak is None or self._before is None else max(0, peak - self._before)
        self.usage = Usage(peak, grown, cpu, seconds, usable_cores())


def free_memory() -> int | None:
    """Bytes that this process may still take, by what the machine, its container and its own limit leave.

    Pages of files that the kernel would drop count as free. None where the kernel does not tell.

    Example:
        >>> free = free_memory()
        >>> free is None or free > 0
        True
    """
    left = [_field(MACHINE, "MemAvailable")]
    limit, taken = resource.getrlimit(resource.RLIMIT_AS)[0], _field(STATUS, "VmSize")
    if limit != resource.RLIM_INFINITY and taken is not None:
        left.append(max(0, limit - taken))
    try:
        most, current = ((GROUP / f"memory.{name}").read_text().strip() for name in ("max", "current"))
        dropped = re.search(r"^inactive_file (\d+)$", (GROUP / "memory.stat").read_text(), re.MULTILINE)
        if most != "max":
            left.append(max(0, int(most) - int(current) + (int(dropped[1]) if dropped else 0)))
    except (OSError, ValueError):
        pass
    return min((size for size in left if size is not None), default=None)


def _reset_peak() -> bool:
    try:
        CLEAR.write_text("5")
    except OSError:
        return False
    return True


def _field(file: Path, name: str) -> int | None:
    try:
        line = re.search(rf"^{name}:\s+(\d+) kB$", file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(line[1]) * 1024 if line else None
