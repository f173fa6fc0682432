"""Figure 16: energy, from the counters of this machine if it has any, and from a made-up one for the rules."""

from __future__ import annotations

import threading
import time

import numpy as np

from deep500.measure.energy import STEPS, EnergyMeter, EnergySource, NvmlSource, find_sources
from tests.benchmarks.measuring.outcome import Options, Outcome, figure, ratio
from tests.measure.test_energy import Counter

SECONDS, WITHIN = 30.0, 0.10


def _rules(draw: np.random.Generator) -> tuple[int, int, int]:
    """Of 100 each: missing counters not measured, short windows refused, long ones that are power times time."""
    missing = short = right = 0
    for _ in range(100):
        with EnergyMeter([]) as meter:
            pass
        missing += meter.energy.joules is None and "not measured" in str(meter.energy)
        for window in (draw.uniform(0.1, 0.99), draw.uniform(100, 1000)):
            source = Counter(draw.uniform(5, 500))
            with EnergyMeter([source], source.clock) as meter:
                source.now += window * STEPS * source.period
            if window < 1:
                short += meter.energy.joules is None
            else:
                right += abs(meter.energy.joules / (source.watts * window * STEPS * source.period) - 1) <= 0.01
    return missing, short, right


def _integrated(source: NvmlSource) -> tuple[float, float]:
    """Joules by the counter and by NVML's power readings, twenty a second, of a window of 30 s."""
    import pynvml

    watts: list[tuple[float, float]] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.wait(0.05):
            watts.append((time.perf_counter(), pynvml.nvmlDeviceGetPowerUsage(source._handle) / 1e3))

    reader = threading.Thread(target=read)
    with EnergyMeter([source]) as meter:
        reader.start()
        time.sleep(SECONDS)
        stop.set()
        reader.join()
    times, power = np.array(watts).T
    return float(meter.energy.joules or 0), float(np.trapezoid(power, times)) * meter.energy.seconds / np.ptp(times)


@figure(
    16,
    "energy",
    'no counter: "not measured" in 100 %; window shorter than the counter\'s period refused; counter '
    "within 10 % of integrated power over 30 s",
)
def energy(options: Options) -> Outcome:
    """The rules on made-up counters; the last part needs a real one that also tells its power."""
    missing, short, right = _rules(np.random.default_rng(options.seed))
    text = (
        f"not measured {ratio(missing, 100)}, refused {ratio(short, 100)}, made-up counters right {ratio(right, 100)}"
    )
    good = missing == short == right == 100
    sources: list[EnergySource]
    sources, reason = find_sources()
    gpus = [source for source in sources if isinstance(source, NvmlSource)]
    if not good:
        return Outcome(text, False)
    if not gpus:
        return Outcome(text, None, f"the rules hold; no counter here to compare with power: {reason or 'RAPL only'}")
    counted, integrated = _integrated(gpus[0])
    text += f"; {gpus[0].name}: {counted:.0f} J by the counter, {integrated:.0f} J by power over {SECONDS:.0f} s"
    return Outcome(text, abs(counted / integrated - 1) <= WITHIN)
