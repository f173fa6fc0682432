"""What else reading found: where a run really is, what is counted, and that one GPU's fault is not all of theirs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

from deep500.devices import DeviceWarning, GPUDevice
from deep500.measure import energy
from deep500.networks import create


def test_prices_belong_to_the_device_that_was_used() -> None:
    pytest.importorskip("torch")
    from deep500.transformations.substitutions.cost.measured import Measured

    with pytest.warns(DeviceWarning):
        assert Measured("pytorch", ":memory:", device="gpu:99").place.device == "cpu:0"
    assert Measured("pytorch", ":memory:").place.device == "cpu"


def test_onnxruntime_asks_the_session_where_it_runs() -> None:
    ort = pytest.importorskip("onnxruntime")
    from deep500.frameworks.onnxruntime import executor

    there = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    silent = SimpleNamespace(get_providers=lambda: there[1:])
    with (
        mock.patch.object(ort, "get_available_providers", lambda: there),
        mock.patch.object(executor, "open_session", lambda *_: silent),
        pytest.warns(DeviceWarning),
    ):
        assert executor.from_model(create("mlp"), "gpu").device.kind == "cpu"
    loud = SimpleNamespace(get_providers=lambda: there)
    with (
        mock.patch.object(ort, "get_available_providers", lambda: there),
        mock.patch.object(executor, "open_session", lambda *_: loud),
    ):
        assert executor._has_gpu(executor.to_device("gpu:1"))


def test_memory_is_what_tensors_asked_for() -> None:
    torch = pytest.importorskip("torch")
    from deep500.frameworks.pytorch import memory

    counts = iter([100, 140, 260])
    said = {"allocated_bytes.all.current": 1024, "allocated_bytes.all.peak": 2048}
    with (
        mock.patch.multiple(torch.cuda, synchronize=lambda d: None, reset_peak_memory_stats=lambda d: None),
        mock.patch.object(
            torch.cuda,
            "memory_stats",
            lambda d: {
                **said,
                **dict.fromkeys(["requested_bytes.all.current", "requested_bytes.all.peak"], next(counts)),
            },
        ),
    ):
        assert memory.footprint(lambda: None, torch.device("cuda", 0)) == (160, 40)


def test_a_gpu_without_a_counter_leaves_the_others_theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(handle: int) -> int:
        if handle == 0:
            raise RuntimeError("Not Supported")
        return 1000

    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetTotalEnergyConsumption=read,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    sources, reason = energy.find_sources(tmp_path)
    assert [source.name for source in sources] == ["gpu:1"] and "gpu:0 has no energy counter (Not Supported)" in reason


def test_tensorflow_is_told_how_to_round_and_records_it() -> None:
    """Its switch is the process's: it follows whichever executor runs."""
    tensorflow = pytest.importorskip("deep500.frameworks.tensorflow")
    from deep500.frameworks.tensorflow.runtime import tf

    network = create("mlp", shape=(4,), hidden=(3,), classes=2)
    feeds = {"input": np.zeros((2, 4), "float32")}
    asked = tf.config.experimental.tensor_float_32_execution_enabled
    exact, rough = (tensorflow.from_model(network, precision=precision) for precision in ("ieee", "tf32"))
    assert exact.precision == rough.precision == "ieee"  # processors know no TF32
    for executor, precision, switch in ((exact, "ieee", False), (rough, "tf32", True), (exact, "ieee", False)):
        executor.device, executor.precision = GPUDevice(0), precision
        executor.inference(feeds)
        assert asked() is switch
