"""Resources that a run took: memory at its peak, and how busy the CPUs were."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, Literal

from deep500.errors import InputError
from deep500.measure.gpu import GPU, find_gpu
from deep500.measure.memory import UsageMeter
from deep500.metrics.base import ObservingMetric

PLACES = ("host", "framework", "device")


class PeakMemory(ObservingMetric):
    """Most memory that was in use during the run, in bytes.

    Args:
        where: ``"host"``: resident memory of this process, exact, from the kernel. ``"framework"``: what the
            framework's own allocator had handed out on the device, exact, where it counts (PyTorch, TensorFlow and JAX
            on GPUs). ``"device"``: memory of the GPU in use by all processes, read after every step.

    Raises:
        InputError: there is no such place.
    """

    unit, direction, kind = "B", "lower", "cost"

    def __init__(self, where: Literal["host", "framework", "device"] = "host") -> None:
        if where not in PLACES:
            raise InputError(f"got where={where!r}; expected one of {', '.join(PLACES)}: choose one")
        self.where, self.name = where, f"peak_memory_{where}"
        self._peak: int | None = None
        self._meter: UsageMeter | None = None
        self._gpu: GPU | None = None

    def before_run(self, run: Any) -> None:
        """Forget earlier peaks."""
        super().before_run(run)
        self._peak, self._why = None, ""
        if self.where == "host":
            self._meter = UsageMeter().__enter__()
            self._why = "this kernel does not let a process reset its peak"
        elif self.where == "framework":
            _framework_peak(run.executor, reset=True)
            self._why = f"{run.executor.backend} does not count its memory on {run.executor.device}"
        else:
            self._gpu, self._why = find_gpu(run.executor.device)

    def after_batch(self, run: Any) -> None:
        """Read the GPU's memory."""
        if self._gpu is not None:
            self._peak = max(self._peak or 0, self._gpu.used_bytes())

    def after_run(self, run: Any) -> None:
        """Read the peak; a GPU's handle is not kept."""
        if self.where == "host" and self._meter is not None:
            self._meter.__exit__()
            self._peak, self._meter = self._meter.usage.peak_bytes, None
        elif self.where == "framework":
            self._peak = _framework_peak(run.executor)
        self._gpu = None

    def measure(self, statistics: Any) -> float | None:
        """The peak; None where nothing counts it."""
        if not self.observed():
            return None
        self.reason = self._why if self._peak is None else ""
        return None if self._peak is None else float(self._peak)


def _framework_peak(executor: Any, reset: bool = False) -> int | None:
    """Return the peak that an executor counts (see ``CountsPeakMemory``), None where it counts none."""
    count = getattr(executor, "peak_memory", None)  # by name: metrics lie below networks
    return None if count is None else count(reset=reset)


class CPUUtilisation(ObservingMetric):
    """CPU time of this process in percent of the time that its cores had during the run."""

    name, unit, direction, kind = "cpu_utilisation", "%", "higher", "ratio"

    def __init__(self) -> None:
        self._meter = UsageMeter()

    def before_run(self, run: Any) -> None:
        """The run begins."""
        super().before_run(run)
        self._meter.__enter__()

    def after_run(self, run: Any) -> None:
        """The run ends."""
        self._meter.__exit__()

    def measure(self, statistics: Any) -> float | None:
        """The share; ``details`` says of how many cores."""
        if not self.observed():
            return None
        usage = self._meter.usage
        self.details = {"cpu_seconds": usage.cpu_seconds, "seconds": usage.seconds, "processors": usage.cores}
        return 100 * usage.utilisation


class GPUUtilisation(ObservingMetric):
    """Percent of the time in which a kernel ran on the GPU: mean of the driver's figures, asked for between steps.

    The driver's figure is of its last sampling period, so a run shorter than a few of them is not measured. It says
    that *something* ran, not that the GPU was full.

    Args:
        period: seconds between two looks, at least.
        fewest: with fewer looks there is no number.
        clock: seconds.
    """

    name, unit, direction, kind = "gpu_utilisation", "%", "higher", "ratio"

    def __init__(self, period: float = 0.2, fewest: int = 5, clock: Callable[[], float] = perf_counter) -> None:
        self.period, self.fewest, self._clock = period, fewest, clock
        self._gpu: GPU | None = None
        self._looks: list[float] = []
        self._next, self._why = 0.0, ""

    def before_run(self, run: Any) -> None:
        """Find the GPU; the first look is a period from now."""
        super().before_run(run)
        self._gpu, self._why = find_gpu(run.executor.device)
        self._looks, self._next = [], self._clock() + self.period

    def after_batch(self, run: Any) -> None:
        """Look, if it is time."""
        if self._gpu is not None and (now := self._clock()) >= self._next:
            self._looks.append(self._gpu.busy())
            self._next = now + self.period

    def after_run(self, run: Any) -> None:
        """The GPU's handle is not kept."""
        self._gpu = None

    def measure(self, statistics: Any) -> float | None:
        """The mean; ``details`` says of how many looks."""
        if not self.observed():
            return None
        if len(self._looks) < self.fewest:
            self.reason = self._why or f"{len(self._looks)} looks, {self.fewest} are needed: the run is too short"
            return None
        self.details = {"looks": len(self._looks)}
        return 100 * sum(self._looks) / len(self._looks)
