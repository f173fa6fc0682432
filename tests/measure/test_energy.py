"""Energy and memory against counters and allocations that the test makes itself."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from deep500.measure import memory
from deep500.measure.energy import Energy, EnergyMeter, find_sources
from deep500.measure.memory import UsageMeter
from tests.conftest import HANG


class Counter:
    """A source of constant power on a clock of its own, which also integrates the power for comparison."""

    name, period = "made up", 0.01

    def __init__(self, watts):
        self.watts, self.now = watts, 0.0

    def joules(self):
        return self.watts * (self.now // self.period) * self.period

    def clock(self):
        return self.now


def test_energy_is_power_times_time():
    source = Counter(70.0)
    with EnergyMeter([source], source.clock) as meter:
        source.now += 30.0
    assert meter.energy.joules == pytest.approx(70.0 * 30, rel=0.01)
    assert meter.energy.watts == pytest.approx(70, rel=0.01)
    assert meter.energy.carbon(400) == pytest.approx(2100 / 3.6e6 * 400, rel=0.01)


def test_short_windows_and_missing_counters_are_not_measured():
    source = Counter(70.0)
    with EnergyMeter([source], source.clock) as meter:
        source.now += 0.05
    assert meter.energy.joules is None and "shorter than 10 steps" in str(meter.energy)
    with EnergyMeter([]) as meter:
        pass
    assert meter.energy.joules is None and meter.energy.carbon(400) is None and meter.energy.watts is None
    assert str(meter.energy) == "not measured (no counter)"


def rapl(tmp_path, energy, package="intel-rapl:0"):
    folder = tmp_path / package
    folder.mkdir(exist_ok=True)
    for name, text in {"name": "package-0", "energy_uj": energy, "max_energy_range_uj": 1_000_000}.items():
        (folder / name).write_text(f"{text}\n")
    return folder / "energy_uj"


def test_rapl_counts_packages_once_and_survives_starting_again(tmp_path):
    counter = rapl(tmp_path, 900_000)
    rapl(tmp_path, 5, "intel-rapl:0:0")  # a part of the package
    (source, *others), _ = find_sources(tmp_path)
    assert source.name == "package-0" and not [o for o in others if not o.name.startswith("gpu")]
    counter.write_text("100000\n")
    assert source.joules() == pytest.approx(0.2)
    counter.write_text("600000\n")
    assert source.joules() == pytest.approx(0.7)


def test_this_machine_has_counters_or_says_why_not(tmp_path):
    sources, reason = find_sources(tmp_path / "nothing")
    assert "no RAPL counter" in reason
    with EnergyMeter(sources) as meter:
        pass
    assert meter.energy.joules is None and meter.energy.reason
    assert isinstance(meter.energy, Energy)


PEAKS = """
import numpy as np
from deep500.measure.memory import UsageMeter
with UsageMeter() as first:
    block = np.ones(200 << 20, np.uint8)
    total = int(block[:: 1 << 12].sum())
    del block
with UsageMeter() as second:
    pass
print(first.usage.grown_bytes, second.usage.grown_bytes)
"""


def test_peak_memory_is_what_was_allocated_and_is_forgotten_afterwards():
    """In a process of its own: a large one gives memory back while it is measured."""
    done = subprocess.run([sys.executable, "-c", PEAKS], capture_output=True, text=True, check=True, timeout=HANG)
    if "None" in done.stdout:
        pytest.skip("this kernel does not let a process reset its peak")
    first, second = map(int, done.stdout.split())
    assert (200 << 20) * 0.95 <= first <= (200 << 20) * 1.2 and second < 50 << 20


def test_utilisation_is_processor_time_over_wall_time():
    with UsageMeter() as meter:
        total = 0
        for i in range(2_000_000):
            total += i
    assert 0 < meter.usage.utilisation <= 1.05
    assert meter.usage.cpu_seconds <= meter.usage.seconds * meter.usage.cores * 1.05


def test_free_memory_is_the_least_that_anything_leaves(tmp_path, monkeypatch):
    """The machine 9 MiB, the container 4 of which the kernel would drop 1, the process's own limit 3."""
    (tmp_path / "meminfo").write_text("MemTotal:  99 kB\nMemAvailable:  9216 kB\n")
    (tmp_path / "status").write_text("VmSize:  2048 kB\n")
    monkeypatch.setattr(memory, "MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "STATUS", tmp_path / "status")
    monkeypatch.setattr(memory, "GROUP", tmp_path)
    limit = [resource.RLIM_INFINITY]
    monkeypatch.setattr(memory.resource, "getrlimit", lambda _: (limit[0], limit[0]))
    assert memory.free_memory() == 9 << 20
    for name, text in (("max", "max"), ("current", str(5 << 20)), ("stat", f"anon 1\ninactive_file {1 << 20}\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert memory.free_memory() == 9 << 20
    (tmp_path / "memory.max").write_text(str(8 << 20))
    assert memory.free_memory() == 4 << 20
    limit[0] = 5 << 20
    assert memory.free_memory() == 3 << 20
    (tmp_path / "meminfo").unlink()
    (tmp_path / "memory.max").unlink()
    (tmp_path / "status").unlink()
    assert memory.free_memory() is None
