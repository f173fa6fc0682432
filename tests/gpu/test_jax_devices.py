"""JAX with two devices: an executor of the second leaves the first alone."""

from __future__ import annotations

import subprocess
import sys
from unittest import mock

import pytest

pytest.importorskip("jax")


@pytest.mark.process
@pytest.mark.slow
def test_nothing_lands_on_the_other_device() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.jax_second_device"], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0 and "all on the second device" in done.stdout, done.stderr[-2000:]


def test_custom_operators_go_where_the_executor_runs() -> None:
    """On a machine with a card a processor's executor calls compiled operators by XLA, not by Python."""
    import jax

    from deep500.frameworks.jax import custom

    with mock.patch.object(jax, "default_backend", lambda: "gpu"):
        assert custom._platform() == "gpu"
        with jax.default_device(jax.devices("cpu")[0]):
            assert custom._platform() == "cpu"
