"""Where samples lie: held against what changes when one sample changes, in every network of the zoo."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import NetworkError
from deep500.frameworks.reference import from_model
from deep500.networks import Network, add_loss, create
from deep500.networks.execution.inputs import make_inputs
from deep500.transformations.batch_axes import find_batch_axes
from deep500.transformations.substitutions.equivalence import in_float64

NETWORKS = {
    "mlp": {"shape": (6,), "hidden": (5,), "classes": 3}, "lenet": {}, "simple_cnn": {}, "transformer": {}, "lstm": {},
    "conv1d": {}, "causal_transformer": {}, "gru_language_model": {}, "bigru": {},
}  # fmt: skip
BATCH = 4


@pytest.mark.parametrize("name", NETWORKS)
def test_a_sample_changes_nothing_of_the_others(name):
    """Every value that is by sample, and every sample: what no other one may touch stays the same, bit by bit."""
    network = in_float64(create(name, **NETWORKS[name]))
    found = find_batch_axes(network)
    assert not found.mixing and set(network.outputs) <= found.axes.keys()
    for value in found.axes:
        if value not in network.outputs and value not in network.inputs:
            network.add_output(value)
    executor = from_model(network)
    inputs = make_inputs(network, BATCH, 0)
    other = {n: np.array(v) for n, v in inputs.items()}
    for v in other.values():
        v[2] = (v[2] + 1) % 2 if v.dtype.kind in "iu" else v[2] + 1.0
    before, after = executor.inference(inputs), executor.inference(other)
    moved = 0
    for value, axis in found.axes.items():
        if value in before:
            a, b = (np.moveaxis(np.asarray(side[value]), axis, 0) for side in (before, after))
            per = len(a) // BATCH
            rows = np.r_[0 : 2 * per, 3 * per : BATCH * per]
            assert len(a) % BATCH == 0 and np.allclose(a[rows], b[rows], rtol=1e-12, atol=1e-12), value
            moved += not np.array_equal(a[2 * per : 3 * per], b[2 * per : 3 * per])
    assert moved > 1


def chain(op_type, more=(), shape=("N", 4), **attributes):
    network = Network("chain")
    network.add_input("x", shape)
    names = []
    for place, value in enumerate(more):
        network.add_parameter(f"p{place}", np.asarray(value), trainable=False)
        names.append(f"p{place}")
    network.add_node(op_type, ["x", *names], ["y"], name="node", **attributes)
    network.add_output("y")
    return network


MIXING = {
    "softmax": chain("Softmax", axis=0),
    "maximum": chain("ReduceMax", [np.array([0], np.int64)]),
    "sum of pairs": chain("MatMul", [np.ones((3, 2), np.float32)], shape=(2, 3)) and chain("Transpose", perm=(1, 0)),
    "two samples in a row": chain("Reshape", [np.array([-1, 8], np.int64)]),
    "a number of samples": chain("Reshape", [np.array([2, -1], np.int64)]),
    "running sum": chain("CumSum", [np.array(0, np.int64)]),
    "a row for each sample": chain("Add", [np.ones((5, 4), np.float32)]),
    "cut samples": chain("Slice", [np.array([0], np.int64), np.array([1], np.int64), np.array([0], np.int64)]),
}


@pytest.mark.parametrize("name", [name for name in MIXING if name != "sum of pairs"])
def test_what_mixes_samples_has_no_axis(name):
    found = find_batch_axes(MIXING[name])
    assert "y" not in found.axes and list(found.mixing) == ["node"] and found.mixing["node"]


def test_axes_follow_transpositions_and_reshapes():
    assert find_batch_axes(MIXING["sum of pairs"]).axes["y"] == 1
    assert find_batch_axes(chain("Reshape", [np.array([-1, 2], np.int64)])).axes["y"] == 0
    assert find_batch_axes(chain("Unsqueeze", [np.array([0], np.int64)])).axes["y"] == 1
    assert find_batch_axes(chain("ReduceSum", [np.array([1], np.int64)], keepdims=0)).axes["y"] == 0


def test_sums_over_samples_are_told_apart():
    found = find_batch_axes(add_loss(create("mlp", shape=(4,), hidden=(3,), classes=2)))
    assert found.combined == {"loss": "loss"} and not found.mixing
    assert find_batch_axes(chain("ReduceMean", keepdims=0)).combined == {"y": "node"}


def test_an_axis_that_is_not_there_is_named():
    with pytest.raises(NetworkError, match="got axis 3 of samples for 'x'"):
        find_batch_axes(chain("Relu"), {"x": 3})
    with pytest.raises(NetworkError, match="without an input that has samples"):
        find_batch_axes(chain("Relu", shape=()))
