"""Advice on what keeps a machine from measuring soundly (``deep500 tools env --check``), as pyperf's "system tune".

Nothing is changed here: most of it needs an administrator, and a machine that is not one's own stays as it is.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deep500.measure.load import ROOTS, Roots, disturbances, load_between, quota, read_load, shares

GOOD, BAD, UNKNOWN = "good", "change", "not measured"

HOT = 85.0
"""Degrees Celsius from which CPUs are near the point where they slow down."""


@dataclass(frozen=True)
class Advice:
    """One finding: what it is about, whether it is good, what was seen, and what to do about it."""

    about: str
    state: str
    seen: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.state:14}{self.about}: {self.seen}{'; ' + self.fix if self.fix else ''}"


def advise(roots: Roots | None = None, before: dict[str, Any] | None = None, seconds: float = 1.0) -> list[Advice]:
    """Everything that is known to disturb measurements on this machine.

    Args:
        roots: of ``/proc`` and ``/sys``.
        before: a reading with which the load begins; None takes one and waits.
        seconds: how long.

    Example:
        >>> {finding.state for finding in advise(seconds=0.0)} <= {"good", "change", "not measured"}
        True
    """
    at = ROOTS if roots is None else roots
    if before is None:
        before = read_load(at)
        time.sleep(seconds)
    return [*_load(load_between(before, read_load(at))), *_limits(at), *_clocks(at), *_memory(at)]


def _load(load: dict[str, Any]) -> Iterator[Advice]:
    disturbing, others = disturbances(load), shares(load)["others"]
    if others is None or disturbing is None:
        yield Advice("load", UNKNOWN, "the kernel does not tell how busy processors are, or was not asked long enough")
        return
    average = f", load average {load['load_average']:g}" if load["load_average"] is not None else ""
    seen = "; ".join(disturbing) or f"other processes took {100 * others:.0f} % of {load['cpus']} processors"
    fix = "wait until they have finished, or stop them" if disturbing else ""
    yield Advice("load", BAD if disturbing else GOOD, f"{seen}, over {load['seconds']:.1f} s{average}", fix)
    if load["celsius"] is None:
        yield Advice("temperature", UNKNOWN, "no thermal zone")
    else:
        hot = load["celsius"] >= HOT
        fix = "let it cool down: processors this hot slow down" if hot else ""
        yield Advice("temperature", BAD if hot else GOOD, f"{load['celsius']:.0f} °C", fix)


def _limits(roots: Roots) -> Iterator[Advice]:
    allowed, cpus = quota(roots), read_load(roots)["cpus"]
    if allowed is not None and allowed < cpus:
        fix = "give the container the whole of its processors (--cpuset-cpus instead of --cpus), or none at all"
        yield Advice("quota", BAD, f"{allowed:g} of {cpus} processors, and then the run is stopped", fix)
    else:
        yield Advice("quota", GOOD, "none")
    nodes = len(list(roots.sys.glob("devices/system/node/node[0-9]*")))
    several = nodes > 1 and len(_nodes_used(roots)) > 1
    fix = "bind the run to one: numactl --cpunodebind=0 --membind=0" if several else ""
    seen = f"{nodes} node{'s' * (nodes != 1)} of memory" if nodes else "the kernel does not tell"
    yield Advice("NUMA", BAD if several else GOOD if nodes else UNKNOWN, seen, fix)


def _nodes_used(roots: Roots) -> set[str]:
    """Nodes to which the CPUs belong that this process may use."""
    allowed = _range(_value(roots, "proc", "self/status", r"^Cpus_allowed_list:\s*(\S+)"))
    nodes = {
        path.name: _range(_value(roots, "sys", f"devices/system/node/{path.name}/cpulist", r"^(\S+)"))
        for path in roots.sys.glob("devices/system/node/node[0-9]*")
    }
    return {name for name, cpus in nodes.items() if not allowed or cpus & allowed}


def _range(text: str | None) -> set[int]:
    """CPUs in a list such as ``0-3,8``."""
    spans = [part.partition("-") for part in (text or "").split(",") if part]
    return {cpu for low, _, high in spans for cpu in range(int(low), int(high or low) + 1)}


# fmt: off
CLOCKS = (
    ("governor", r"devices/system/cpu/cpu0/cpufreq/scaling_governor", r"^(\w+)", ("performance",),
     "sudo cpupower frequency-set --governor performance"),
    ("turbo (Intel)", "devices/system/cpu/intel_pstate/no_turbo", r"^(\d)", ("1",),
     "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo: its clock depends on its neighbours"),
    ("turbo (others)", "devices/system/cpu/cpufreq/boost", r"^(\d)", ("0",),
     "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost: its clock depends on its neighbours"),
    ("two threads per core", "devices/system/cpu/smt/active", r"^(\d)", ("0",),
     "bind the run to one thread of every core: taskset, or OMP_PLACES=cores"),
    ("clock source", "devices/system/clocksource/clocksource0/current_clocksource", r"^(\S+)",
     ("tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page"),
     "clocksource=tsc on the kernel's command line: reading this one is slow"),
)
# fmt: on
"""Switches of CPUs: name, file below /sys, what to read of it, the values that are good, what to do."""


def _clocks(roots: Roots) -> Iterator[Advice]:
    for name, path, pattern, good, fix in CLOCKS:
        value = _value(roots, "sys", path, pattern)
        if value is None:
            yield Advice(name, UNKNOWN, f"no /sys/{path}")
        else:
            yield Advice(name, GOOD if value in good else BAD, value, "" if value in good else fix)
    events = read_load(roots)["thermal_events"]
    if events:
        yield Advice("throttling", BAD, f"slowed down by heat {events} times since it was started", "cool it better")
    else:
        yield Advice("throttling", UNKNOWN if events is None else GOOD, "no counter" if events is None else "never")


def _memory(roots: Roots) -> Iterator[Advice]:
    total, free = (_value(roots, "proc", "meminfo", rf"^{name}:\s*(\d+)") for name in ("SwapTotal", "SwapFree"))
    if total is None or free is None:
        yield Advice("swap", UNKNOWN, "no /proc/meminfo")
        return
    used = int(total) - int(free)
    fix = "sudo swapoff --all, or free memory" if used else ""
    yield Advice("swap", BAD if used else GOOD, f"{used / 1024:.0f} MB in use" if used else "not in use", fix)


def _value(roots: Roots, root: str, path: str, pattern: str) -> str | None:
    try:
        text = (getattr(roots, root) / path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(pattern, text, re.MULTILINE)
    return match[1] if match else None
