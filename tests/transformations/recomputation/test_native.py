"""Executors around models of the user's own: their operators are hidden, so no plan can be made or followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import PlanError, UnsupportedOperator
from deep500.networks import add_loss, create
from deep500.networks.hashing import structure_hash
from deep500.transformations.recomputation import CheckpointingPlan
from tests.conftest import load_backend

GIVEN = {"input": np.ones((2, 4), "float32"), "label": np.zeros(2, "int64")}


def native(name: str) -> Any:
    module: Any = load_backend(name)
    example = np.zeros((1, 4), "float32")
    if name == "pytorch":
        import torch

        return module.from_native(torch.nn.Linear(4, 3), torch.zeros(1, 4))
    if name == "tensorflow":
        import keras

        return module.from_native(keras.layers.Dense(3, name="dense"), example)
    if name == "jax":
        return module.from_native(lambda p, x: x @ p["w"], {"w": np.ones((4, 3), "float32")}, example)
    import onnxruntime as ort

    model = add_loss(create("mlp", shape=(4,), classes=3)).to_onnx(opset=22)
    return module.from_native(ort.InferenceSession(model.SerializeToString()))


@pytest.mark.parametrize("name", ["pytorch", "tensorflow", "jax", "onnxruntime"])
def test_plans_are_refused(name: str) -> None:
    executor = native(name)
    hashed = structure_hash(executor.network)
    plan = CheckpointingPlan(hashed, 2, "loss", "none", (), 0, 0, 0.0, 0.0, "FLOP", "nothing runs again")
    with pytest.raises(UnsupportedOperator, match=r"plan for a native .*; expected a Network of operators"):
        executor.set_checkpointing(plan)
    assert executor.checkpointing is None
    executor.set_checkpointing(None)
    for given in ({"inputs": GIVEN}, {"batch": 2}):
        with pytest.raises(PlanError, match=r"\(deep500\.\w+\.\w+\), a model of its own .*; expected a Network of op"):
            d5.plan_checkpointing(executor, 0.9, **given)
    if name != "onnxruntime":
        assert np.isfinite(float(executor.inference_and_backprop(GIVEN)["loss"]))
