"""The cost of a run: energy, carbon, money. Prices and intensities are the user's to give."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from deep500.errors import InputError
from deep500.measure.energy import Energy, EnergyMeter, EnergySource, find_sources
from deep500.measure.gpu import find_gpu
from deep500.metrics.base import ObservingMetric


class EnergyUse(ObservingMetric):
    """Joules during the run, of all CPU packages and of the GPU that the run used.

    Whatever else runs on the machine is in it. Not measured without a counter, without the right to read one, and for
    runs shorter than ten steps of the slowest counter (:mod:`deep500.measure.energy`).

    Args:
        sources: counters to read; those of the machine if None.
    """

    name, unit, direction, kind = "energy", "J", "lower", "cost"

    def __init__(self, sources: Sequence[EnergySource] | None = None) -> None:
        self._given = sources
        self._meter: EnergyMeter | None = None
        self.energy = Energy(None, 0.0, (), "not measured yet")

    def __deepcopy__(self, memo: dict[int, Any]) -> EnergyUse:
        return copy.copy(self)  # a recipe copies metrics per seed; a counter is the machine's, and may be a C pointer

    def before_run(self, run: Any) -> None:
        """Read the counters."""
        super().before_run(run)
        sources, why = (list(self._given), "no counter") if self._given is not None else _sources_of(run)
        self._meter = EnergyMeter(sources, reason=why).__enter__()

    def after_run(self, run: Any) -> None:
        """Read the counters again."""
        if self._meter is not None:
            run.executor.synchronize()
            self._meter.__exit__()
            self.energy, self._meter = self._meter.energy, None

    def measure(self, statistics: Any) -> float | None:
        """The energy; ``details`` has its time, its mean power and its sources."""
        if not self.observed():
            return None
        energy = self.energy
        self.details = {"seconds": energy.seconds, "watts": energy.watts, "sources": list(energy.sources)}
        self.reason = energy.reason if energy.joules is None else ""
        return energy.joules


class Carbon(EnergyUse):
    """Grams of CO2 equivalent: the run's energy times the intensity of the grid.

    Args:
        grams_per_kwh: the intensity, which depends on place and time.
        origin: where that figure is from; the record keeps it.
        sources: counters to read; those of the machine if None.
    """

    name, unit, direction, kind = "carbon", "g", "lower", "cost"

    def __init__(self, grams_per_kwh: float, origin: str, sources: Sequence[EnergySource] | None = None) -> None:
        super().__init__(sources)
        self.energy.carbon(grams_per_kwh)  # refuses what is no intensity, before anything runs
        self.grams_per_kwh, self.origin = grams_per_kwh, origin

    def measure(self, statistics: Any) -> float | None:
        """The mass; None where the energy was not measured."""
        joules = super().measure(statistics)
        self.details = {**self.details, "J": joules, "g_per_kWh": self.grams_per_kwh, "origin": self.origin}
        return None if joules is None else self.energy.carbon(self.grams_per_kwh)


class Cost(EnergyUse):
    """Money for the run: hours times the price of what it ran on, and of the energy where a price for that is given.

    Args:
        per_hour: price of an hour by kind of device (``"cpu"``, ``"gpu"``) or by device (``"gpu:1"``). With several
            processes each pays for its own.
        per_kwh: price of a kilowatt-hour; then the cost is not measured where the energy is not.
        currency: of both.
        sources: counters to read; those of the machine if None.

    Raises:
        InputError: a price is negative, or, when the run begins, its device has none.
    """

    name, direction, kind = "cost", "lower", "cost"

    def __init__(
        self,
        per_hour: Mapping[str, float],
        per_kwh: float | None = None,
        currency: str = "USD",
        sources: Sequence[EnergySource] | None = None,
    ) -> None:
        super().__init__(sources if per_kwh is not None else ())
        wrong = [name for name, price in {**per_hour, "kWh": per_kwh or 0.0}.items() if not price >= 0]
        if wrong or not per_hour:
            raise InputError(f"got prices {dict(per_hour)} and {per_kwh}; expected one that is not negative per device")
        self.per_hour, self.per_kwh, self.unit = dict(per_hour), per_kwh, currency
        self._price = 0.0

    def before_run(self, run: Any) -> None:
        """Find the price, before anything is spent."""
        super().before_run(run)
        device = run.executor.device
        price = self.per_hour.get(str(device), self.per_hour.get(device.kind))
        if price is None:
            raise InputError(
                f"got no price for {device}; expected one of {list(self.per_hour)} to be it: add its price"
            )
        self._price = price

    def measure(self, statistics: Any) -> float | None:
        """The sum; ``details`` has what it is made of."""
        joules = super().measure(statistics)
        if not self.observed():
            return None
        if joules is None and self.per_kwh is not None:
            self.reason = self.energy.reason
            return None
        ranks = len(statistics.communication or (None,))  # every process occupies a device of this price
        time = self.energy.seconds / 3600 * self._price * ranks
        power = 0.0 if joules is None or self.per_kwh is None else joules / 3.6e6 * self.per_kwh
        self.details = {
            "seconds": self.energy.seconds,
            "per_hour": self._price,
            "devices": ranks,
            "time": time,
            "energy": power if self.per_kwh is not None else None,
        }
        return time + power


def _sources_of(run: Any) -> tuple[list[EnergySource], str]:
    """Counters of the CPUs and of the GPU in use: idle GPUs are not the run's."""
    sources, reason = find_sources()
    gpu, _ = find_gpu(run.executor.device)
    used_gpu = "" if gpu is None else gpu.name
    used = [source for source in sources if source.name == used_gpu or not source.name.startswith("gpu:")]
    return used, reason or "no counter"
