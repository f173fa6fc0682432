"""The bound that errors of budgets state: below every peak that any plan was measured to hold."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import BudgetError
from deep500.networks import Network, add_loss, create
from deep500.networks.execution.inputs import make_inputs
from deep500.registry import load_backend
from deep500.transformations.memory_planning import plan_memory
from deep500.transformations.recomputation.lower_bound import lower_bound
from deep500.transformations.recomputation.planning import plan_checkpointing
from deep500.transformations.recomputation.training_step import training_step

NETWORKS = {
    "mlp": {"shape": (4,), "hidden": (3,), "classes": 2},
    "unet": {"width": 4, "levels": 2, "shape": (3, 16, 16)},
    "causal_transformer": {"width": 16, "heads": 2, "shape": (8,), "classes": 9, "layers": 1},
    "transformer": {"width": 8, "heads": 8, "shape": (96,), "layers": 1},  # its scores are the largest values
}


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in ("reference", "pytorch")])
@pytest.mark.parametrize("name", NETWORKS)
def test_no_measured_plan_goes_below(name, backend):
    network = add_loss(create(name, **NETWORKS[name]))
    executor, inputs = load_backend(backend).from_model(network), make_inputs(network, 8, 0)
    bound = lower_bound(training_step(network, 8))
    try:
        least = plan_checkpointing(executor, 1, inputs).predicted_peak
    except BudgetError as error:
        assert error.bound == bound.bytes and f"no plan at all holds less than {bound.bytes}" in str(error)
        least = error.smallest
    assert 0 < bound.bytes <= least


def test_a_product_is_there_with_what_it_reads():
    network = Network("wide")
    network.add_input("x", ("N", 2))
    network.add_parameter("a", np.ones((2, 100), "float32"))
    network.add_parameter("b", np.ones((100, 1), "float32"))
    network.add_node("MatMul", ["x", "a"], ["wide"], name="first")
    network.add_node("Relu", ["wide"], ["positive"])
    network.add_node("MatMul", ["positive", "b"], ["y"], name="second")
    network.add_node("ReduceSum", ["y"], ["loss"], keepdims=0)
    step = training_step(network, 10)
    assert lower_bound(step) == (4 * (1000 + 10), "node 'second' (MatMul) runs")
    assert lower_bound(step, 10) == (4 * 300, "the gradients of all parameters are there")


@pytest.mark.backend("reference")
def test_plans_with_pieces_have_one_too():
    network = add_loss(create("mlp", **NETWORKS["mlp"]))
    executor, inputs = load_backend("reference").from_model(network), make_inputs(network, 4, 0)
    with pytest.raises(BudgetError, match="no plan at all holds less than") as error:
        plan_memory(executor, 90, inputs)
    assert error.value.bound == lower_bound(training_step(network, 4), 4).bytes <= error.value.smallest
