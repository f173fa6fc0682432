"""In a process of its own: a second device of the processor stands for a card; nothing may land on the first."""

from __future__ import annotations

import os
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import numpy as np

from deep500.devices import CPUDevice
from deep500.errors import MissingDevice
from deep500.frameworks import jax as backend
from tests.frameworks.test_zoo_gradients import case

assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
first, second = jax.devices()
places = set()
mapped = jax.tree.map


def spy(function: Any, tree: Any, *rest: Any, **options: Any) -> Any:
    """Sees where constants are folded: the compiler makes arrays of the results."""
    if function is np.asarray:
        places.update(d for array in jax.tree.leaves(tree) if isinstance(array, jax.Array) for d in array.devices())
    return mapped(function, tree, *rest, **options)


jax.tree.map = spy
for name in ("mlp", "transformer", "lstm"):
    network, feeds, _ = case(name)
    executor = backend.from_model(network, CPUDevice(1))
    optimizer = backend.AdamOptimizer(executor)
    before = {id(array) for array in jax.live_arrays()}
    executor.inference(feeds)
    optimizer.step(feeds)
    new = [array for array in jax.live_arrays() if id(array) not in before]
    strangers = [array.shape for array in new if array.devices() != {second}]
    assert not strangers, f"{name}: on the first device: {strangers}"
    assert all(array.devices() == {second} for array in executor.tensors.values()), name
    assert all(np.isfinite(np.asarray(array)).all() for array in executor.gradients.values())

from deep500.networks import Network  # noqa: E402

network = Network("folds")
network.add_input("x", (2,), "float32")
network.add_parameter("a", np.ones(2, "float32"), trainable=False)
network.add_node("Sigmoid", ["a"], ["b"])
network.add_node("Mul", ["x", "b"], ["y"])
network.add_output("y")
executor = backend.from_model(network, CPUDevice(1))
assert np.asarray(executor.inference({"x": np.ones(2, "float32")})["y"]).shape == (2,)
assert second in places and first not in places, places
try:
    backend.from_model(network, CPUDevice(7))
except MissingDevice as error:
    assert "expected one of the 2 processors" in str(error), error
else:
    raise AssertionError("a processor that is not there was taken")
print("all on the second device")
