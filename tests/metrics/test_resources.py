"""Memory, utilisation, energy and cost against a made-up machine, and what is said where a counter is missing."""

from __future__ import annotations

import copy
import sys
from types import SimpleNamespace

import pytest

import deep500.metrics.energy
import deep500.metrics.resources
from deep500.devices import CPUDevice, GPUDevice
from deep500.errors import InputError
from deep500.measure import gpu
from deep500.metrics import Carbon, Cost, CPUUtilisation, EnergyUse, GPUUtilisation, PeakMemory
from tests.metrics.watched import STEPS, TOTAL, Clock, Executor, watch


class MadeUpGPU:
    """Memory climbs to a peak in the middle of the run; half of the looks find it busy."""

    name = "gpu:0"

    def __init__(self):
        self.looks = 0

    def used_bytes(self):
        self.looks += 1
        return 1000 * min(self.looks, STEPS - self.looks)

    def busy(self):
        self.looks += 1
        return 0.25 if self.looks % 2 else 0.75


@pytest.fixture
def one_gpu(monkeypatch):
    for module in (deep500.metrics.resources, deep500.metrics.energy):
        monkeypatch.setattr(module, "find_gpu", lambda device: (MadeUpGPU(), ""))


def test_peak_of_the_device_is_the_largest_that_was_seen(one_gpu):
    metric = PeakMemory("device")
    assert metric.measure(watch(metric, device=GPUDevice())) == 1000 * STEPS / 2


def test_peak_of_the_framework_is_its_own_counter(monkeypatch):
    metric = PeakMemory("framework")
    assert metric.measure(watch(metric)) is None and metric.reason == "made-up does not count its memory on cpu:0"
    monkeypatch.setattr(Executor, "peak", 12345)
    assert metric.measure(watch(metric)) == 12345


def test_peak_of_the_host_is_the_kernels(monkeypatch):
    metric = PeakMemory()
    assert metric.name == "peak_memory_host" and metric.unit == "B"
    monkeypatch.setattr("deep500.measure.memory._reset_peak", lambda: True)
    sizes = {"VmHWM": 7 << 20, "VmRSS": 1 << 20}
    monkeypatch.setattr("deep500.measure.memory._field", lambda file, name: sizes[name])
    assert metric.measure(watch(metric)) == 7 << 20
    monkeypatch.setattr("deep500.measure.memory._reset_peak", lambda: False)
    assert metric.measure(watch(metric)) is None and "does not let a process reset" in metric.reason
    with pytest.raises(InputError, match="expected one of host, framework, device"):
        PeakMemory("disk")


def test_cpu_utilisation_is_processor_time_over_what_there_was(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(
        "deep500.measure.memory.time", SimpleNamespace(perf_counter=clock, process_time=lambda: 1.5 * clock.now)
    )
    monkeypatch.setattr("deep500.measure.memory.usable_cores", lambda: 3)
    metric = CPUUtilisation()
    assert metric.measure(watch(metric, clock=clock)) == pytest.approx(50)
    assert metric.details["processors"] == 3


def test_gpu_utilisation_is_the_mean_of_looks_a_period_apart(one_gpu):
    clock = Clock()
    metric = GPUUtilisation(period=0.2, clock=clock)
    statistics = watch(metric, clock=clock, device=GPUDevice())
    # time of the parts passes in synchronize(), which is not called here: a step takes its rest only
    assert metric.measure(statistics) is None and "the run is too short" in metric.reason
    metric = GPUUtilisation(period=0.01, clock=clock)
    assert metric.measure(watch(metric, clock=clock, device=GPUDevice())) == pytest.approx(50, abs=2)
    assert metric.details["looks"] == STEPS // 3


def test_without_a_gpu_nothing_of_it_is_measured():
    for metric in (PeakMemory("device"), GPUUtilisation()):
        assert metric.measure(watch(metric)) is None and metric.reason == "the run used cpu:0"


class Counter:
    """Constant power on the run's clock."""

    name, period = "made up", 0.01

    def __init__(self, watts, clock):
        self.watts, self.clock = watts, clock

    def joules(self):
        return self.watts * self.clock.now


@pytest.fixture
def metered(monkeypatch):
    """A clock, and a counter of 90 W on it."""
    clock = Clock()
    monkeypatch.setattr("deep500.measure.energy.time", SimpleNamespace(perf_counter=clock))
    monkeypatch.setattr(
        EnergyUse.before_run.__globals__["EnergyMeter"].__init__, "__defaults__", (None, clock, "no counter")
    )
    return clock, [Counter(90.0, clock)]


def test_energy_and_carbon_are_power_times_time(metered):
    clock, sources = metered
    energy, carbon = EnergyUse(sources), Carbon(400, "a made-up grid", sources)
    breakdown = deep500.metrics.TimingBreakdown(clock.nanoseconds)  # waits, so that time passes
    statistics = watch(energy, carbon, breakdown, clock=clock)
    seconds = breakdown.measure(statistics)
    assert energy.measure(statistics) == pytest.approx(90 * seconds) == pytest.approx(90 * TOTAL)
    assert energy.details["sources"] == ["made up"] and energy.details["watts"] == pytest.approx(90)
    assert carbon.measure(statistics) == pytest.approx(90 * seconds / 3.6e6 * 400)
    assert carbon.details["origin"] == "a made-up grid"


@pytest.mark.parametrize(("per_kwh", "ranks"), [(None, 1), (0.3, 1), (0.3, 4)])
def test_cost_is_hours_and_energy_times_their_prices(metered, per_kwh, ranks):
    clock, sources = metered
    cost = Cost({"cpu": 7.2}, per_kwh, "EUR", sources)
    breakdown = deep500.metrics.TimingBreakdown(clock.nanoseconds)
    statistics = watch(cost, breakdown, clock=clock)
    if ranks > 1:
        statistics.communication = {str(rank): {} for rank in range(ranks)}
    expected = TOTAL / 3600 * 7.2 * ranks + 90 * TOTAL / 3.6e6 * (per_kwh or 0)
    assert cost.measure(statistics) == pytest.approx(expected) and cost.unit == "EUR" and cost.reason == ""


@pytest.mark.parametrize("make", [lambda s: Cost({"cpu": 1.0}), EnergyUse, lambda s: Carbon(400, "here", s)])
def test_half_a_run_has_neither_energy_nor_cost(metered, make):
    clock, sources = metered
    metric = make(sources)
    assert metric.measure(watch(metric, clock=clock, began_at=1)) is None and "was resumed" in metric.reason


def test_the_price_of_the_very_device_comes_first_and_none_is_an_error(one_gpu):
    cost = Cost({"gpu": 1.0, "gpu:1": 2.0})
    watch(cost, device=GPUDevice(1))
    assert cost._price == 2.0
    with pytest.raises(InputError, match="no price for cpu:0"):
        watch(cost, device=CPUDevice())
    with pytest.raises(InputError, match="not negative"):
        Cost({"cpu": -1.0})
    with pytest.raises(InputError, match="not negative"):
        Carbon(-1, "nowhere")


def test_without_a_counter_energy_is_not_measured_and_never_0(metered):
    clock, _ = metered
    made = [EnergyUse([]), Carbon(400, "somewhere", []), Cost({"cpu": 1.0}, 0.3, sources=[])]
    statistics = watch(*made, clock=clock)
    for metric in made:
        assert metric.measure(statistics) is None and metric.reason == "no counter"


def test_a_run_shorter_than_the_counters_period_is_refused(metered):
    clock, sources = metered
    sources[0].period = 100.0
    energy, cost = EnergyUse(sources), Cost({"cpu": 1.0}, 0.3, sources=sources)
    statistics = watch(energy, cost, clock=clock)
    for metric in (energy, cost):
        assert metric.measure(statistics) is None and "shorter than 10 steps of the counter" in metric.reason


def test_counters_are_not_copied_with_the_metric(metered):
    clock, _ = metered

    class Pointer(Counter):
        def __deepcopy__(self, memo):
            raise ValueError("ctypes objects containing pointers cannot be pickled")

    first, second = (copy.deepcopy(EnergyUse([Pointer(50.0, clock)])) for _ in range(2))
    breakdown = deep500.metrics.TimingBreakdown(clock.nanoseconds)
    watch(first, breakdown, clock=clock)
    assert first.measure(None) == pytest.approx(50 * TOTAL) and second.measure(None) is None


def test_idle_gpus_are_not_the_runs(one_gpu, monkeypatch):
    names = ["package-0", "gpu:0", "gpu:1"]
    sources = [SimpleNamespace(name=name, period=0.001, joules=lambda: 1.0) for name in names]
    monkeypatch.setattr(deep500.metrics.energy, "find_sources", lambda: (sources, ""))
    metric = EnergyUse()
    metric.measure(watch(metric, device=GPUDevice()))
    assert metric.details["sources"] == ["package-0", "gpu:0"]


@pytest.mark.backend("jax")
def test_jax_cannot_forget_a_peak():
    import deep500.frameworks.jax as d5fw

    executor_of_jax = d5fw.Executor
    executor = executor_of_jax.__new__(executor_of_jax)
    executor._peak_before, peaks = None, iter([100, 100, 300, None])
    executor.jax_device = SimpleNamespace(memory_stats=lambda: {"peak_bytes_in_use": next(peaks)})
    executor.peak_memory(reset=True)
    assert executor.peak_memory() is None, "the run may have stayed below an earlier peak"
    assert executor.peak_memory() == 300 and executor.peak_memory() is None


@pytest.mark.backend("pytorch")
def test_pytorch_counts_on_gpus_and_forgets(monkeypatch):
    import torch

    import deep500.frameworks.pytorch as d5fw
    from deep500.networks import create

    executor = d5fw.from_model(create("mlp"))
    assert executor.peak_memory() is None
    executor.torch_device, forgotten = SimpleNamespace(type="cuda"), []
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {"requested_bytes.all.peak": 4096})
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", forgotten.append)
    assert executor.peak_memory() == 4096 and not forgotten
    assert executor.peak_memory(reset=True) == 4096 and forgotten == [executor.torch_device]


@pytest.mark.backend("tensorflow")
def test_tensorflow_counts_on_gpus_and_forgets(monkeypatch):
    import tensorflow as tf

    import deep500.frameworks.tensorflow as d5fw
    from deep500.networks import create

    executor = d5fw.from_model(create("mlp"))
    assert executor.peak_memory() is None
    executor.device, forgotten = GPUDevice(1), []
    monkeypatch.setattr(tf.config.experimental, "get_memory_info", lambda name: {"peak": 77, "current": 5})
    monkeypatch.setattr(tf.config.experimental, "reset_memory_stats", forgotten.append)
    assert executor.peak_memory() == 77 and not forgotten
    assert executor.peak_memory(reset=True) == 77 and forgotten == ["GPU:1"]


class NVML(SimpleNamespace):
    """As much of NVML as is asked: three GPUs, the handle is the number."""

    def __init__(self):
        super().__init__(
            nvmlInit=lambda: None,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetHandleByUUID=lambda uuid: {"GPU-b": 1}[uuid],
            nvmlDeviceGetIndex=lambda handle: handle,
            nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(used=handle * 1000),
            nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=handle * 10),
        )


@pytest.mark.parametrize(("visible", "index", "number"), [("", 2, 2), ("2,1", 0, 2), ("GPU-b,0", 0, 1)])
def test_the_frameworks_number_of_a_gpu_becomes_the_machines(monkeypatch, visible, index, number):
    monkeypatch.setitem(sys.modules, "pynvml", NVML())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    device, reason = gpu.find_gpu(GPUDevice(index))
    assert (device.name, device.used_bytes(), device.busy()) == (f"gpu:{number}", 1000 * number, number / 10)
    assert reason == ""


def test_a_gpu_without_its_driver_is_a_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert gpu.find_gpu(GPUDevice()) == (None, "no NVML (pip install nvidia-ml-py)")
    broken = NVML()
    broken.nvmlInit = lambda: (_ for _ in ()).throw(RuntimeError("driver not loaded"))
    monkeypatch.setitem(sys.modules, "pynvml", broken)
    assert gpu.find_gpu(GPUDevice()) == (None, "no NVML (driver not loaded)")
