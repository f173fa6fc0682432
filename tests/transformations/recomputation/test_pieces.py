"""Pieces of the batch that are computed again: the same results, and a part of the memory."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import PlanError
from deep500.networks import add_loss, create
from deep500.registry import load_backend
from deep500.transformations.microbatching import microbatch
from deep500.transformations.recomputation.pieces import plan_pieces
from tests.transformations.test_microbatching import batch_of, step, with_loss

BATCH = 32


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param(b, marks=pytest.mark.backend(b))
        for b in ("reference", "pytorch", "tensorflow", "jax", "onnxruntime")
    ],
)
@pytest.mark.slow
def test_results_are_those_of_the_whole(backend):
    network = with_loss("lenet")
    cut, inputs = microbatch(network, 4), batch_of(network, BATCH)
    executor = load_backend(backend).from_model(cut)
    executor.set_checkpointing(plan_pieces(cut, BATCH))
    outputs = executor.inference_and_backprop(inputs, "loss")
    whole = step(network, inputs, backend)
    names = [f"{name}.grad" for name in network.trainable()]
    found = {**outputs, **dict(zip(names, executor.network.fetch_tensors(names), strict=True))}
    for name, value in whole.items():
        np.testing.assert_allclose(np.asarray(executor.network.to_numpy(found[name])), value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in ("reference", "pytorch")])
@pytest.mark.parametrize(("pieces", "share"), [(2, 0.65), (8, 0.4)])
def test_the_measured_peak_falls(backend, pieces, share):
    network = add_loss(create("causal_transformer"))
    inputs = batch_of(network, BATCH)
    whole = load_backend(backend).from_model(network).step_memory(inputs)
    cut = microbatch(network, pieces)
    executor = load_backend(backend).from_model(cut)
    executor.set_checkpointing(plan_pieces(cut, BATCH))
    assert executor.step_memory(inputs) < share * whole


def test_bytes_and_operations_are_counted():
    plans = [plan_pieces(microbatch(add_loss(create("simple_cnn")), pieces), BATCH) for pieces in (2, 4, 8)]
    peaks, extra = [plan.predicted_peak for plan in plans], [plan.predicted_extra for plan in plans]
    assert peaks == sorted(peaks, reverse=True) and peaks[0] < plans[0].peak_without
    assert extra == sorted(extra) and len(plans[2].regions) == 7


def test_a_network_without_pieces_is_refused():
    with pytest.raises(PlanError, match=r"make it with microbatch"):
        plan_pieces(add_loss(create("simple_cnn")), BATCH)
