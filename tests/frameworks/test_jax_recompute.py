"""JAX under checkpointing plans: the gradients of the run without one, in less memory than XLA plans for that."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from deep500.networks import Network
from deep500.transformations.recomputation import plan_network
from tests.conftest import load_backend
from tests.tolerances import assert_close
from tests.transformations.recomputation.test_execution import everything_again, train
from tests.transformations.recomputation.test_rewriting import NETWORKS, inputs_of

pytestmark = pytest.mark.backend("jax")


def trained(net: Network, inputs: dict[str, np.ndarray], plan: Any) -> dict[str, np.ndarray]:
    executor = load_backend("jax").Executor(net)
    executor.set_checkpointing(plan)
    return train(executor, "momentum", inputs)


_SAME = """
import numpy as np
from tests.frameworks.test_jax_recompute import NETWORKS, trained, everything_again, inputs_of
make, batch = NETWORKS["unet"]
inputs = inputs_of(make(), batch)
want, got = (trained(make(), inputs, plan) for plan in (None, everything_again(make(), batch)))
assert any(np.any(value) for value in want.values()) and want.keys() == got.keys()
differ = [value for value in want if not np.array_equal(want[value], got[value])]
assert not differ, differ
"""


def test_only_the_algebraic_simplifier_rounds_differently() -> None:
    """XLA compiles another function, and so rounds differently; without one of its passes all bits are the same."""
    options = f"{os.environ.get('XLA_FLAGS', '')} --xla_disable_hlo_passes=algsimp"
    environment = {**os.environ, "XLA_FLAGS": options}
    done = subprocess.run([sys.executable, "-c", _SAME], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_dropout_draws_the_same_numbers() -> None:
    make, batch = NETWORKS["dropout"]
    inputs = inputs_of(make(), batch)
    want, got = (trained(make(), inputs, plan) for plan in (None, everything_again(make(), batch)))
    for value in want:
        assert_close(got[value], want[value], "exact", value)


@pytest.mark.parametrize(("name", "share"), [("resnet", 0.78), ("transformer", 0.7)])
def test_memory_falls(name: str, share: float) -> None:
    """XLA's own count of what it reserves for values; its peak shrinks at least as the plan says."""
    make, batch = NETWORKS[name]
    net, batch = make(), batch * 4
    inputs = inputs_of(net, batch)
    executor = load_backend("jax").Executor(net)
    full = executor.step_memory(inputs)
    executor.set_checkpointing(plan_network(net, share, batch))
    assert 0 < executor.step_memory(inputs) <= share * full
    executor.set_checkpointing(None)
    assert executor.step_memory(inputs) == full
