"""Where samples lie: held against what changes when one sample changes, in every network of the zoo."""

from __future__ import annotations

import warnings
from collections import defaultdict

import numpy as np
import onnx
import pytest

from deep500.errors import NetworkError
from deep500.frameworks.reference import from_model
from deep500.networks import Network, add_loss, create
from deep500.networks.execution.inputs import make_inputs
from deep500.transformations.batch_axes import ELEMENTWISE, LOSSES, RULES, find_batch_axes
from deep500.transformations.substitutions.equivalence import in_float64

NETWORKS = {
    "mlp": {"shape": (6,), "hidden": (5,), "classes": 3},
    "lenet": {},
    "simple_cnn": {},
    "transformer": {},
    "lstm": {"width": 8, "shape": (10, 6)},
    "conv1d": {},
    "causal_transformer": {"width": 16, "heads": 2, "layers": 2, "shape": (12,)},
    "gru_language_model": {"width": 8, "embedding": 8, "classes": 50, "shape": (12,)},
    "bigru": {},
}
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


# -- ONNX's own cases as generator: what a rule calls by sample gives the same in pieces -------------------------------
@pytest.fixture(scope="module")
def single_nodes():
    """ONNX's node cases of one node, by operator."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they divide by zero on purpose
        every = collect_testcases(None)
    cases = defaultdict(list)
    for case in every:
        if len(case.model.graph.node) == 1 and not case.model.graph.node[0].domain:
            cases[case.model.graph.node[0].op_type].append(case)
    return cases


def opened(case):
    """The case as a network whose axes and shapes are constants (a first size: what is left), and its inputs."""
    (arrays, _), *_ = case.data_sets
    arrays = [onnx.numpy_helper.to_array(a) if isinstance(a, onnx.TensorProto) else np.asarray(a) for a in arrays]
    if any(array.dtype.kind not in "fiub" for array in arrays):
        return None, {}
    model, values, op_type = onnx.ModelProto(), {}, case.model.graph.node[0].op_type
    model.CopyFrom(case.model)
    del model.graph.input[:]
    for place, (value, array) in enumerate(zip(case.model.graph.input, arrays, strict=True)):
        if place and array.dtype == np.int64 and op_type not in LOSSES:
            constant = np.concatenate([[-1], array[1:]]) if op_type == "Reshape" else array
            model.graph.initializer.append(onnx.numpy_helper.from_array(constant, value.name))
        else:
            model.graph.input.append(value)
            values[value.name] = array
    return Network.from_onnx(model), values


def choices(inputs):
    """Sets of inputs that may have samples, with their axes: each alone, and all of one size along the first axis."""
    for name, value in inputs.items():
        yield from ({name: axis} for axis, size in enumerate(value.shape) if size)
    for size in {value.shape[0] for value in inputs.values() if value.ndim}:
        yield {name: 0 for name, value in inputs.items() if value.ndim and value.shape[0] == size}


def several(inputs, axes):
    """The inputs with at least two samples: where a case has one, a second one is added, of other numbers."""
    return {
        name: np.concatenate([value, np.flip(value)], axes[name])
        if name in axes and value.shape[axes[name]] == 1
        else value
        for name, value in inputs.items()
    }


def assert_same_in_pieces(network, inputs, axes, division):
    """Results of the first sample and of the others, put together, are those of all."""
    executor = from_model(network)
    whole = executor.inference(inputs)
    cut = {name: np.split(inputs[name], [1], axis) for name, axis in axes.items()}
    parts = [executor.inference({**inputs, **{name: pair[i] for name, pair in cut.items()}}) for i in range(2)]
    for name in (name for name in network.outputs if name in division.axes):
        together = np.concatenate([np.asarray(part[name]) for part in parts], division.axes[name])
        np.testing.assert_allclose(together, np.asarray(whole[name]), rtol=1e-4, atol=1e-6, err_msg=str((axes, name)))
    for name in (
        name for name in network.outputs if network.producer(name).op_type == "ReduceSum" and name in division.combined
    ):
        total = sum(np.asarray(part[name], np.float64) for part in parts)
        np.testing.assert_allclose(total, np.asarray(whole[name]), rtol=1e-4, atol=1e-5, err_msg=str((axes, name)))


@pytest.mark.any_backend
@pytest.mark.parametrize("op_type", sorted({*RULES, *ELEMENTWISE}))
def test_what_a_rule_calls_by_sample_gives_the_same_in_pieces(op_type, single_nodes):
    """Every case of the operator and every choice of axes: either no rule calls it by sample, or it is."""
    tried = 0
    for case in single_nodes.get(op_type, ()):
        network, inputs = opened(case)
        for axes in choices(inputs):
            divided = network.copy()
            for name, axis in axes.items():
                divided.set_input(name, [*inputs[name].shape[:axis], "N", *inputs[name].shape[axis + 1 :]])
            division = find_batch_axes(divided, axes)
            if division.axes.keys() & set(network.outputs) or division.combined:
                assert_same_in_pieces(divided, several(inputs, axes), axes, division)
                tried += 1
    assert tried, f"{op_type}: no case of ONNX's has an axis that its rule takes for samples"
