"""Executors under a plan: the same training, bit for bit, in less memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deep500.errors import PlanError, UnsupportedOperator
from deep500.frameworks.reference import Executor
from deep500.networks import GraphExecutor, Network, add_loss, create
from deep500.networks.hashing import structure_hash
from deep500.training.optimizers import AdamOptimizer, MomentumOptimizer
from deep500.transformations.recomputation import CheckpointingPlan, find_regions, load_plan
from deep500.transformations.recomputation.plan_file import PlannedRegion
from tests.conftest import load_backend
from tests.tolerances import assert_close
from tests.transformations.recomputation.test_rewriting import NETWORKS, inputs_of

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda executor: MomentumOptimizer(executor, "loss", 0.1, 0.9),
    "adam": lambda executor: AdamOptimizer(executor, "loss", 0.01),
}


def everything_again(net: Network, batch: int) -> CheckpointingPlan:
    """All regions at all levels run again: the plan that changes most."""
    regions = find_regions(net, batch)
    regions = tuple(
        PlannedRegion(name, name, tuple(v for node in nodes for v in node.writes))
        for name, nodes in regions.nodes.items()
    )
    return CheckpointingPlan(structure_hash(net), batch, "loss", "none", regions, 0, 0, 0.0, 0.0, "FLOP", "everything")


def train(executor: Any, optimizer: str, inputs: dict[str, np.ndarray], steps: int = 3) -> dict[str, np.ndarray]:
    """All outputs of all steps, the last gradients, and the parameters and statistics in the end."""
    executor.reseed(7)
    optimize = OPTIMIZERS[optimizer](executor)
    results: dict[str, Any] = {}
    for step in range(steps):
        results.update({f"{name} of step {step}": np.array(value) for name, value in optimize.step(inputs).items()})
    names = [f"{name}.grad" for name in executor.network.get_params()]
    results.update(zip(names, map(np.array, executor.network.fetch_tensors(names)), strict=True))
    return {**results, **executor.network.state()}


@pytest.mark.parametrize(
    ("name", "optimizer", "backend_name"),
    [
        *product(NETWORKS, OPTIMIZERS, ["reference", "onnxruntime"]),
        *product(NETWORKS, ["momentum"], ["tensorflow"]),
        ("dropout", "momentum", "jax"),  # whose other networks XLA rounds differently
    ],
)
@pytest.mark.slow
def test_training_under_a_plan_is_the_same_to_the_bit(
    name: str, optimizer: str, backend_name: str, tmp_path: Path
) -> None:
    """Dropout draws the same numbers, running statistics are updated once, and the plan comes from its file."""
    make, batch = NETWORKS[name]
    net = make()
    inputs = inputs_of(net, batch)
    make_executor = load_backend(backend_name).Executor
    free, planned = make_executor(net), make_executor(net)
    planned.set_checkpointing(load_plan(everything_again(net, batch).save(tmp_path / "plan.json")))
    want, got = (train(executor, optimizer, inputs) for executor in (free, planned))
    assert want.keys() == got.keys()
    for value in want:
        if (name, backend_name) == ("transformer", "tensorflow") and want[value].dtype.kind == "f":
            # a value with readers in a region and outside: its gradients are added up in another order
            assert np.linalg.norm(got[value] - want[value]) <= 5e-6 * np.linalg.norm(want[value]), value
        else:
            assert_close(got[value], want[value], "exact", f"{value} of {name}")
    if backend_name != "reference":
        return
    assert _repeated(free) == 0
    assert _repeated(planned) > 3
    planned.set_checkpointing(None)
    planned.inference_and_backprop(inputs)
    assert _repeated(planned) == 0


def _repeated(executor: Executor) -> int:
    return sum(step.node.name.startswith("again/") for step in executor._training("loss").program.steps)


def test_a_plan_is_held_to_its_network_batch_and_loss() -> None:
    net = add_loss(create("resnet", depth=8))
    executor = Executor(net)
    with pytest.raises(PlanError, match="plan again for this network"):
        executor.set_checkpointing(everything_again(add_loss(create("lenet")), 2))
    assert executor.checkpointing is None
    executor.set_checkpointing(everything_again(net, 2))
    with pytest.raises(PlanError, match="expected 2, the batch size for which"):
        executor.inference_and_backprop(inputs_of(net, 3))
    with pytest.raises(PlanError, match="expected 'loss', for which"):
        executor.inference_and_backprop(inputs_of(net, 2), loss="output")
    assert executor.inference(inputs_of(net, 3), ["output"])["output"].shape == (3, 10)
    executor.network.add_node("Relu", ["output"], ["more"])
    with pytest.raises(PlanError, match="plan again for this network"):
        executor.inference_and_backprop(inputs_of(net, 2))


@pytest.mark.parametrize("wrong", [0.5, 3, "plan.json", {}, object()])
def test_what_is_no_plan_is_refused(wrong: Any) -> None:
    executor = Executor(add_loss(create("mlp")))
    with pytest.raises(PlanError, match=rf"got {type(wrong).__name__}.*expected a CheckpointingPlan or None"):
        executor.set_checkpointing(wrong)
    assert executor.checkpointing is None


class _Other(Executor):
    backend = "other"
    _forget_training = GraphExecutor._forget_training


def test_a_backend_that_cannot_says_so() -> None:
    net = add_loss(create("mlp"))
    executor = _Other(net)
    executor.set_checkpointing(None)
    with pytest.raises(UnsupportedOperator, match="backend 'other'"):
        executor.set_checkpointing(everything_again(net, 2))
    assert executor.checkpointing is None
