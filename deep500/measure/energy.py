"""Energy between two moments, from counters in the hardware: "not measured" where there is none, never 0.

A counter is a *source*: Intel's and AMD's RAPL through the kernel's powercap files, NVIDIA's through NVML. Counters
advance in steps (RAPL: about a millisecond, NVML: up to a tenth of a second); over a window that is not much longer
than a step the reading is noise, so it is refused. Carbon is energy times an intensity that the user states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from deep500.errors import InputError

POWERCAP = Path("/sys/class/powercap")
STEPS = 10
"""A window must be at least this many steps of the counter long."""


class EnergySource(Protocol):
    """A counter of energy.

    Attributes:
        name: as results show it.
        period: seconds between its steps.
    """

    name: str
    period: float

    def joules(self) -> float:
        """Reading since some fixed moment; never goes back."""
        ...


@dataclass(frozen=True)
class Energy:
    """Energy of one window; ``joules`` is None where it was not measured, and ``reason`` says why.

    Example:
        >>> print(Energy(None, 1.0, (), "no counter"))
        not measured (no counter)
        >>> print(Energy(50.0, 2.0, ("package-0",)))
        50 J in 2 s (package-0)
    """

    joules: float | None
    seconds: float
    sources: tuple[str, ...]
    reason: str = ""

    @property
    def watts(self) -> float | None:
        """Mean power."""
        return None if self.joules is None or not self.seconds else self.joules / self.seconds

    def carbon(self, grams_per_kwh: float) -> float | None:
        """Grams of CO2 equivalent at an intensity of the grid (which the user knows, and must say where it is from)."""
        if not grams_per_kwh >= 0:
            raise InputError(f"got {grams_per_kwh} g/kWh; expected a number that is not negative")
        return None if self.joules is None else self.joules / 3.6e6 * grams_per_kwh

    def __str__(self) -> str:
        if self.joules is None:
            return f"not measured ({self.reason})"
        return f"{self.joules:.4g} J in {self.seconds:.4g} s ({', '.join(self.sources)})"


class RaplSource:
    """One package of CPUs (its sub-domains are parts of it, so they are not added)."""

    period = 0.001

    def __init__(self, folder: Path) -> None:
        self._file = folder / "energy_uj"
        self._range = float((folder / "max_energy_range_uj").read_text())
        self.name = (folder / "name").read_text().strip()
        self._last, self._total = float(self._file.read_text()), 0.0

    def joules(self) -> float:
        """Since the source was made; the counter may start again from 0 once between two readings."""
        now = float(self._file.read_text())
        self._total += (now - self._last) % self._range if now < self._last else now - self._last
        self._last = now
        return self._total / 1e6


class NvmlSource:
    """One NVIDIA GPU; needs the package nvidia-ml-py and a GPU of the Volta generation or later."""

    period = 0.1

    def __init__(self, index: int) -> None:
        import pynvml

        pynvml.nvmlInit()
        self._handle, self._read = pynvml.nvmlDeviceGetHandleByIndex(index), pynvml.nvmlDeviceGetTotalEnergyConsumption
        self.name = f"gpu:{index}"
        self._read(self._handle)  # older GPUs have no such counter: find out now

    def joules(self) -> float:
        """Since the driver was loaded."""
        return float(self._read(self._handle)) / 1e3


def find_sources(powercap: Path = POWERCAP) -> tuple[list[EnergySource], str]:
    """Counters that can be read here, and why there are no others."""
    sources: list[EnergySource] = []
    reasons = []
    packages = sorted(p for p in powercap.glob("intel-rapl:*") if p.name.count(":") == 1)
    if not packages:
        reasons.append("no RAPL counter")
    for package in packages:
        try:
            sources.append(RaplSource(package))
        except PermissionError:
            reasons.append("RAPL counters can be read by root only")
        except (OSError, ValueError) as error:
            reasons.append(f"RAPL counter {package.name} cannot be read ({error})")
    gpus, reason = _nvml_sources()
    reasons += [reason] if reason else []
    return [*sources, *gpus], "; ".join(dict.fromkeys(reasons))


def _nvml_sources() -> tuple[list[EnergySource], str]:
    try:
        import pynvml

        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except ImportError:
        return [], "no NVML (pip install nvidia-ml-py)"
    except Exception as error:  # noqa: BLE001 - NVML's own errors derive from Exception only
        return [], f"no NVML ({error})"
    sources: list[EnergySource] = []
    reasons = []
    for index in range(count):
        try:
            sources.append(NvmlSource(index))
        except Exception as error:  # noqa: BLE001 - the same; the other GPUs may have a counter
            reasons.append(f"gpu:{index} has no energy counter ({error})")
    return sources, "; ".join(reasons)


class EnergyMeter:
    """Measures the energy of a ``with`` block.

    Args:
        sources: the counters; those of this machine if None.
        clock: seconds.
        reason: said where there is no counter.

    Example:
        >>> with EnergyMeter() as meter:
        ...     total = sum(range(1000))
        >>> meter.energy.joules is None or meter.energy.joules >= 0
        True
    """

    def __init__(
        self,
        sources: Sequence[EnergySource] | None = None,
        clock: Callable[[], float] = time.perf_counter,
        reason: str = "no counter",
    ) -> None:
        self._sources, self._reason = find_sources() if sources is None else (list(sources), reason)
        self._clock = clock
        self.energy = Energy(None, 0.0, (), "not measured yet")

    def __enter__(self) -> EnergyMeter:
        self._begin = self._clock()
        self._readings = [source.joules() for source in self._sources]
        return self

    def __exit__(self, *_: object) -> None:
        used = [source.joules() - before for source, before in zip(self._sources, self._readings, strict=True)]
        seconds = self._clock() - self._begin
        names = tuple(source.name for source in self._sources)
        slowest = max((source.period for source in self._sources), default=0.0)
        if not self._sources:
            self.energy = Energy(None, seconds, (), self._reason)
        elif seconds < STEPS * slowest:
            reason = f"the window of {seconds:.3g} s is shorter than {STEPS} steps of the counter ({slowest:g} s each)"
            self.energy = Energy(None, seconds, names, reason)
        else:
            self.energy = Energy(sum(used), seconds, names)
