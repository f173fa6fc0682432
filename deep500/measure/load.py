"""How quiet the machine is: what else it did while something was measured, by the kernel's own counters.

:func:`read_load` reads them, :func:`load_between` says what happened between two readings, :func:`disturbances` judges
it. A counter that a system does not have is None: not measured, never 0. Shares are of the CPUs that this process
may use, or of the time that passed.

Whoever shares CPUs with others measures the others, too: on two cores at a load of ten a training step lasts five
times as long, and no interval says so, since all of its samples are slow.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

SHORTEST = 0.25
"""Seconds below which nothing is judged: the kernel counts CPU time in ticks of a hundredth of a second."""

OTHERS, STEAL, THROTTLED, SWAPPED = 0.10, 0.02, 0.01, 256
"""Disturbances: other processes on more than a tenth of the CPUs' time, a hypervisor that takes more than 2 % of
it, a quota that stops the run for more than 1 % of the time, more than 256 pages (1 MB) to swap or back."""


@dataclass(frozen=True)
class Roots:
    """Folders of the kernel's files; tests replace them."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


ROOTS = Roots()
COUNTERS = ("busy", "steal", "own", "pressure", "throttled", "thermal_events", "swapped_pages")
"""Counters of a reading, since the machine, or this process, began; the first five in seconds."""

STATES = ("load_average", "running", "mhz", "celsius", "resident_bytes")
"""Facts of a reading about its moment; the last one is the memory of this process."""


def read_load(roots: Roots | None = None, cpus: Iterable[int] | None = None) -> dict[str, Any]:
    """The counters now.

    Args:
        roots: of ``/proc`` and ``/sys``.
        cpus: CPUs that count; those that this process may use if None.

    Example:
        >>> set(COUNTERS) | set(STATES) < set(read_load())
        True
    """
    at = ROOTS if roots is None else roots
    counting = _usable() if cpus is None else sorted(cpus)
    busy, steal, counted = _cpus(at.proc, counting)
    return {
        "at": time.monotonic(),
        "cpus": counted,
        "busy": busy,
        "steal": steal,
        "own": time.process_time(),
        "pressure": _pressure(at.proc),
        "throttled": _throttled(at),
        "thermal_events": _sum(at.sys.glob("devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")),
        "swapped_pages": _swapped(at.proc),
        "load_average": _load_average(at.proc),
        "running": _field(_text(at.proc / "stat"), r"^procs_running (\d+)"),
        "mhz": _mhz(at, counting),
        "celsius": _celsius(at.sys),
        "resident_bytes": 1024 * (_field(_text(Path("/proc/self/status")), r"^VmRSS:\s+(\d+) kB") or 0) or None,
    }


def load_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the change between two readings: ``seconds``, ``cpus``, differences of :data:`COUNTERS`, states after it.

    Example:
        >>> reading = read_load()
        >>> load_between(reading, {**reading, "at": reading["at"] + 2.0})["seconds"]
        2.0
    """
    counted = {
        name: None if before[name] is None or after[name] is None else max(0.0, after[name] - before[name])
        for name in COUNTERS
    }
    seconds = after["at"] - before["at"]
    return {"seconds": seconds, "cpus": after["cpus"], **counted, **{name: after[name] for name in STATES}}


def together(loads: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Several intervals as one: counters added up (None where one is), the worst of the states."""
    parts = list(loads)
    if not parts:
        return {"seconds": 0.0, "cpus": None, **dict.fromkeys((*COUNTERS, *STATES))}
    whole: dict[str, Any] = {"seconds": sum(part["seconds"] for part in parts), "cpus": parts[-1]["cpus"]}
    for name in COUNTERS:
        values = [part.get(name) for part in parts]
        whole[name] = None if None in values else sum(values)
    for name in STATES:
        known = [part[name] for part in parts if part.get(name) is not None]
        whole[name] = (min if name == "mhz" else max)(known) if known else None
    return whole


def shares(load: Mapping[str, Any]) -> dict[str, float | None]:
    """Shares of an interval: what ``others``, ``own`` and a hypervisor (``steal``) used of the CPUs' time, and for
    what part of the time something waited for a CPU (``pressure``) or a quota stopped the run (``throttled``)."""
    seconds, cpus = load["seconds"], load["cpus"]
    capacity = seconds * cpus if cpus else 0.0

    def share_of(value: float | None, whole: float) -> float | None:
        return None if value is None or not whole else value / whole

    others = None if load["busy"] is None or load["own"] is None else max(0.0, load["busy"] - load["own"])
    return {
        "others": share_of(others, capacity),
        "own": share_of(load["own"], capacity),
        "steal": share_of(load["steal"], capacity),
        "pressure": share_of(load["pressure"], seconds),
        "throttled": share_of(load["throttled"], seconds),
    }


def disturbances(load: Mapping[str, Any]) -> list[str] | None:
    """Return what disturbed a measurement, in words; empty where nothing did, None where it was too short to tell.

    Args:
        load: of :func:`load_between` or :func:`together`.

    Example:
        >>> quiet = {"seconds": 9.0, "cpus": 2, "busy": 9.2, "own": 9.0, "steal": 0.0, "pressure": 0.1,
        ...          "throttled": 0.0, "thermal_events": 0, "swapped_pages": 0}
        >>> disturbances(quiet), disturbances({**quiet, "busy": 17.0})
        ([], ['other processes took 44 % of its 2 processors'])
    """
    if load["seconds"] < SHORTEST:
        return None
    part = shares(load)
    # which process a tick is charged to is chance: twice the standard deviation of a share of so many ticks
    noise = 1 / math.sqrt(max(1.0, load["seconds"] * (load["cpus"] or 1) * TICKS))
    limits = (
        (part["others"], OTHERS + noise, "other processes took {:.0%} of its " + f"{load['cpus']} processors"),
        (part["steal"], STEAL + noise**2, "the hypervisor took {:.0%} of its processors"),
        (part["throttled"], THROTTLED, "a quota stopped it for {:.0%} of the time"),
        (load.get("thermal_events"), 0, "processors were too hot and slowed down {:.0f} times"),
        (load.get("swapped_pages"), SWAPPED, "{:.0f} pages of memory were swapped"),
    )
    return [text.format(value).replace("%", " %") for value, most, text in limits if value is not None and value > most]


# -- the kernel's files ------------------------------------------------------------------------------------------------
def _usable() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _field(text: str, pattern: str) -> int | None:
    match = re.search(pattern, text, re.MULTILINE)
    return int(match[1]) if match else None


def _sum(paths: Iterable[Path]) -> int | None:
    values = [_field(_text(path), r"^(\d+)") for path in paths]
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _cpus(proc: Path, cpus: list[int]) -> tuple[float | None, float | None, int]:
    """Seconds in which these CPUs worked and were taken away, and how many there are."""
    lines = re.findall(r"^cpu(\d+) (.*)$", _text(proc / "stat"), re.MULTILINE)
    ticks = [[int(word) for word in words.split()] for number, words in lines if int(number) in cpus]
    if not ticks or min(map(len, ticks)) < 8:
        return None, None, len(cpus)
    # user, nice, system, idle, waiting for disks, interrupts (hard, soft), stolen; guests are part of user
    busy = sum(sum(line[:3]) + line[5] + line[6] for line in ticks)
    return busy / TICKS, sum(line[7] for line in ticks) / TICKS, len(ticks)


def _pressure(proc: Path) -> float | None:
    total = _field(_text(proc / "pressure/cpu"), r"^some .*total=(\d+)")
    return None if total is None else total / 1e6


def _groups(roots: Roots) -> list[Path]:
    """Folders of this process's control group for CPUs, version 2 and 1, innermost first."""
    groups = dict(re.findall(r"^\d+:([^:]*):(\S*)$", _text(roots.proc / "self/cgroup"), re.MULTILINE))
    base, folders = roots.sys / "fs/cgroup", []
    for names, inner in groups.items():
        if names == "" or "cpu" in names.split(","):
            for place in (base, base / "cpu", base / "cpu,cpuacct"):
                folders += [place / inner.strip("/"), place]
    return list(dict.fromkeys(folders))


def _throttled(roots: Roots) -> float | None:
    for group in _groups(roots):
        text = _text(group / "cpu.stat")
        micro, nano = _field(text, r"^throttled_usec (\d+)"), _field(text, r"^throttled_time (\d+)")
        if micro is not None:
            return micro / 1e6
        if nano is not None:
            return nano / 1e9
    return None


def quota(roots: Roots | None = None) -> float | None:
    """CPUs that the control group allows; None without a limit, or where none is told."""
    for group in _groups(ROOTS if roots is None else roots):
        both = re.match(r"(\d+) (\d+)", _text(group / "cpu.max"))
        limit, period = (
            (int(both[1]), int(both[2]))
            if both
            else (
                _field(_text(group / "cpu.cfs_quota_us"), r"^(\d+)"),
                _field(_text(group / "cpu.cfs_period_us"), r"^(\d+)"),
            )
        )
        if limit and period:
            return limit / period
    return None


def _swapped(proc: Path) -> int | None:
    text = _text(proc / "vmstat")
    into, out = _field(text, r"^pswpin (\d+)"), _field(text, r"^pswpout (\d+)")
    return None if into is None or out is None else into + out


def _load_average(proc: Path) -> float | None:
    words = _text(proc / "loadavg").split()
    return float(words[0]) if words else None


def _mhz(roots: Roots, cpus: list[int]) -> float | None:
    """The slowest of the CPUs."""
    folder = roots.sys / "devices/system/cpu"
    known = [_field(_text(folder / f"cpu{cpu}/cpufreq/scaling_cur_freq"), r"^(\d+)") for cpu in cpus]
    khz = [value for value in known if value is not None]
    reported = re.findall(r"^cpu MHz\s*:\s*([\d.]+)", _text(roots.proc / "cpuinfo"), re.MULTILINE)
    return min(khz) / 1e3 if khz else min(map(float, reported)) if reported else None


def _celsius(sys: Path) -> float | None:
    """The hottest zone."""
    known = [_field(_text(path), r"^(\d+)") for path in sorted(sys.glob("class/thermal/thermal_zone*/temp"))]
    hot = [value / 1e3 for value in known if value is not None]
    return max(hot) if hot else None
