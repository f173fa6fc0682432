"""Devices by name, and a GPU that is not there."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from deep500.devices import CPUDevice, Device, DeviceWarning, GPUDevice, fall_back, to_device
from deep500.errors import InputError, MissingDevice


@pytest.mark.parametrize(
    ("given", "want"),
    [(None, CPUDevice()), ("cpu", CPUDevice()), ("gpu", GPUDevice()), ("cuda:2", GPUDevice(2)), (GPUDevice(1),) * 2],
)
def test_devices_by_name(given: Any, want: Device) -> None:
    assert to_device(given) == want


@pytest.mark.parametrize("given", ["tpu", "gpu:x", "gpu:-1", "", 3, "cpu:0:1"])
def test_bad_devices_are_errors(given: Any) -> None:
    with pytest.raises(InputError, match=r"expected 'cpu', 'gpu' or 'gpu:<number>'"):
        to_device(given)


def test_a_missing_gpu_falls_back_with_a_warning_or_is_an_error() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fall_back(CPUDevice(), 0) == CPUDevice()
        assert fall_back(GPUDevice(1), 2) == GPUDevice(1)
    with pytest.warns(DeviceWarning, match="got device gpu:1; expected one that this backend sees, which is one GPU"):
        assert fall_back(GPUDevice(1), 1) == CPUDevice()
    with pytest.raises(MissingDevice, match="--device cpu"):
        fall_back(GPUDevice(), 0, strict=True)
