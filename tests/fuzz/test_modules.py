"""A commit's piece of a hundred drawn modules, three ways in; and that faults would be found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.networks import untie
from tests.conftest import HANG

pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from tests.fuzz import modules

pytestmark = [pytest.mark.slow, pytest.mark.backend("pytorch")]

ROOT = Path(__file__).resolve().parents[2]


def fuzz(*words: str, timeout: float) -> None:
    command = [sys.executable, "-m", "tests.fuzz.modules", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=timeout, check=False)
    assert done.returncode == 0 and "findings: none" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]


def test_a_hundred_modules_train_as_they_do_in_pytorch(numbers: Callable[[int], range]) -> None:
    some = numbers(100)
    fuzz("--count", str(len(some)), "--from", str(some.start), "--seed", "1", timeout=HANG)


@pytest.mark.long
def test_a_thousand_modules() -> None:
    fuzz("--count", "1000", "--seed", "500", timeout=3 * 3600)


@pytest.mark.parametrize("fault", ["untied", "frozen", "weights"])
def test_a_fault_would_be_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of their own where they are tied, one that does not train, and one that has another value."""
    number = next(n for n in range(100) if "tied" in modules.drawn(0, n).words)
    module = modules.drawn(0, number)
    assert modules.judge(module, "module") == ""

    def broken(*arguments: Any) -> modules.Read:
        network = read(*arguments).network
        name = next(n for n in network.trainable() if len(network.consumers(n)) > 1)
        if fault == "untied":
            network = untie(network, [name])
        elif fault == "frozen":
            network.set_parameter(name, network.parameter(name).value, trainable=False)
        else:
            network.set_parameter(name, network.parameter(name).value + np.float32(0.1))
        return modules.Read(network, [], set())

    read = modules.network_of
    monkeypatch.setattr(modules, "network_of", broken)
    assert modules.judge(module, "module")
