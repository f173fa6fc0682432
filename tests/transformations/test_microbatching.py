"""Networks that work on pieces of the batch: the whole one is the oracle in every backend; sizes by enumeration."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep500.errors import InputError, NetworkError
from deep500.networks import Network, add_loss, create
from deep500.networks.execution.inputs import make_inputs
from deep500.registry import load_backend
from deep500.transformations.microbatching import divide_batch, microbatch
from deep500.transformations.substitutions.equivalence import in_float64
from tests.transformations.test_batch_axes import NETWORKS

pytestmark = pytest.mark.slow

BATCH = 7
BACKENDS = ("reference", "pytorch", "tensorflow", "jax", "onnxruntime")


def with_loss(name, **options):
    return in_float64(add_loss(create(name, **NETWORKS.get(name, {})), **options))


def step(network, inputs, backend="reference"):
    """Loss, outputs and the gradients of all parameters."""
    executor = load_backend(backend).from_model(network)
    outputs = executor.inference_and_backprop(inputs, "loss")
    names = [f"{name}.grad" for name in network.trainable()]
    gradients = dict(zip(names, executor.network.fetch_tensors(names), strict=True))
    return {name: np.asarray(executor.network.to_numpy(value)) for name, value in {**outputs, **gradients}.items()}


def assert_same(network, cut, inputs, backend="reference"):
    whole, pieces = step(network, inputs, backend), step(cut, inputs, backend)
    assert whole.keys() == pieces.keys() and len(whole) > 2
    for name, value in whole.items():
        np.testing.assert_allclose(pieces[name], value, rtol=1e-10, atol=1e-12, err_msg=name)
    assert any(np.abs(value).max() > 1e-6 for name, value in whole.items() if name.endswith(".grad"))


def batch_of(network, size=BATCH):
    inputs = make_inputs(network, size, 0)
    rng = np.random.default_rng(1)
    return {n: rng.integers(0, 2, v.shape) if v.dtype.kind in "iu" else v for n, v in inputs.items()}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_the_zoo_train_the_same(name):
    network = with_loss(name)
    assert_same(network, microbatch(network, 3), batch_of(network))


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in BACKENDS])
@pytest.mark.parametrize("pieces", [2, [4, 1, 2]])
@pytest.mark.parametrize("name", ["lenet", "transformer", "lstm"])
def test_backends_train_the_same(name, pieces, backend):
    network = with_loss(name)
    assert_same(network, microbatch(network, pieces), batch_of(network), backend)


@pytest.mark.parametrize(
    "options",
    [
        {"ignore_index": 0},
        {"label_smoothing": 0.1},
        {"kind": "mean_squared_error"},
        {"kind": "huber"},
        {"ignore_index": 1, "label_smoothing": 0.2},
    ],
)
def test_means_weigh_pieces_by_what_they_count(options):
    network = with_loss("mlp", **options)
    inputs = batch_of(network)
    assert_same(network, microbatch(network, [1, 5, 1]), inputs)  # a piece in which every label is ignored, too


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in BACKENDS])
def test_a_batch_of_which_every_label_is_ignored(backend):
    network = with_loss("mlp", ignore_index=1)
    inputs = {**batch_of(network), "label": np.ones(BATCH, np.int64)}
    whole, cut = step(network, inputs, backend), step(microbatch(network, 2), inputs, backend)
    assert all(np.isfinite(value).all() for name, value in whole.items() if name.endswith(".grad"))
    for name, value in whole.items():
        np.testing.assert_allclose(cut[name], value, rtol=1e-10, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in BACKENDS[:4]])
@pytest.mark.parametrize(("pieces", "batch"), [(4, 5), (4, 2), (8, 5), (3, 1)])
def test_fewer_samples_than_pieces_leave_some_empty(pieces, batch, backend):
    network = with_loss("lenet")
    assert_same(network, microbatch(network, pieces), batch_of(network, batch), backend)


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in BACKENDS])
@pytest.mark.parametrize("samples", [4, 9])
def test_pieces_differ_by_one(samples, backend):
    """Chunks of one size would be 3, 3, 3 and 0 of 9."""
    network = with_loss("mlp")
    cut, batch = microbatch(network, 4), batch_of(network, samples)
    names = [f"input.piece{piece}" for piece in range(4)]
    pieces = load_backend(backend).from_model(cut).inference(batch, names)
    assert [len(pieces[name]) for name in names] == [samples // 4 + (piece < samples % 4) for piece in range(4)]
    assert_same(network, cut, batch, backend)


@pytest.mark.backend("onnxruntime")
def test_onnx_runtime_refuses_fewer_samples_than_pieces():
    network = with_loss("mlp")
    with pytest.raises(NetworkError, match=r"operands that do not fit .*Input shape:\{0,3\}"):  # its loss of nothing
        step(microbatch(network, 4), batch_of(network, 2), "onnxruntime")


@pytest.mark.parametrize("op_type", ["Sub", "Mul"])
def test_samples_read_what_all_of_them_sum_up_to(op_type):
    """Centring over the batch, a gate by its mean: the mean is whole before any piece reads it."""
    network = Network("centred")
    network.add_input("x", ("N", 4), "float64")
    network.add_parameter("w", np.random.default_rng(0).standard_normal((4, 3)))
    network.add_parameter("axes", np.array([0]), trainable=False)
    for kind, read, written in [
        ("MatMul", ["x", "w"], "y"),
        ("ReduceMean", ["y", "axes"], "mean"),
        (op_type, ["y", "mean"], "z"),
        ("Tanh", ["z"], "t"),
        ("ReduceSum", ["t"], "loss"),
    ]:
        network.add_node(kind, read, written)
    network.add_output("loss")
    network.add_output("t")
    assert_same(network, microbatch(network, np.int64(3)), {"x": np.random.default_rng(1).standard_normal((7, 4))})


def test_classes_have_weights():
    network = Network("weighted")
    network.add_input("x", ("N", 4), "float64")
    network.add_input("label", ("N",), "int64")
    network.add_parameter("w", np.random.default_rng(0).standard_normal((4, 3)))
    network.add_parameter("weights", np.array([0.5, 2.0, 3.0]), trainable=False)
    network.add_node("MatMul", ["x", "w"], "scores")
    network.add_node("SoftmaxCrossEntropyLoss", ["scores", "label", "weights"], "loss", ignore_index=-1)
    for name in ("scores", "loss"):
        network.add_output(name)
    rng = np.random.default_rng(1)
    inputs = {"x": rng.standard_normal((7, 4)), "label": np.array([0, 1, -1, 2, 2, -1, 0])}
    assert_same(network, microbatch(network, 3), inputs)


@settings(max_examples=15, deadline=None)
@given(sizes=st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_any_sizes_give_the_same(sizes):
    network = with_loss("mlp")
    assert_same(network, microbatch(network, sizes), batch_of(network, sum(sizes)))


def test_some_nodes_alone_are_cut():
    network = with_loss("lenet")
    convolutions = [node.name for node in network.nodes if node.op_type == "Conv"]
    cut = microbatch(network, 3, nodes=convolutions)
    assert sum(node.op_type == "Conv" for node in cut.nodes) == 3 * len(convolutions)
    assert sum(node.op_type == "Relu" for node in cut.nodes) == sum(node.op_type == "Relu" for node in network.nodes)
    assert_same(network, cut, batch_of(network))


def test_what_stands_around_a_whole_normalization_is_cut():
    network = in_float64(add_loss(create("resnet", depth=8)))
    convolutions = [node.name for node in network.nodes if node.op_type == "Conv"]
    assert_same(network, microbatch(network, 2, nodes=convolutions), batch_of(network))


def test_it_is_an_ordinary_network(tmp_path):
    network = with_loss("lenet")
    cut = microbatch(network, 2)
    cut.to_onnx(tmp_path / "cut.onnx")
    assert_same(network, Network.from_onnx(tmp_path / "cut.onnx"), batch_of(network))
    assert cut.inputs == network.inputs and cut.outputs == network.outputs and cut.trainable() == network.trainable()


@pytest.mark.parametrize(
    ("name", "node", "reason"),
    [("resnet", "bn1", "statistics in training"), ("squeezenet", "dropout", "mask is drawn")],
)
def test_what_mixes_samples_is_refused_by_name(name, node, reason):
    with pytest.raises(NetworkError, match=rf"node '{node}' .*{reason}.*name the others with nodes"):
        microbatch(add_loss(create(name)), 2)


def test_bad_pieces_say_so():
    network = add_loss(create("mlp", shape=(4,), hidden=(3,), classes=2))
    for pieces in (1, 0, [4], [2, 0]):
        with pytest.raises(InputError, match="expected two or more"):
            microbatch(network, pieces)
    with pytest.raises(NetworkError, match="got node 'fc9'"):
        microbatch(network, 2, nodes=["fc9"])


# -- sizes -------------------------------------------------------------------------------------------------------------
def compositions(batch, sizes):
    """Every multiset of sizes that adds up to the batch."""
    for count in range(1, batch + 1):
        yield from (c for c in itertools.combinations_with_replacement(sizes, count) if sum(c) == batch)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), batch=st.integers(1, 9))
def test_sizes_are_those_of_enumeration(data, batch):
    sizes = data.draw(st.lists(st.integers(1, batch), min_size=1, max_size=5, unique=True))
    times = {m: data.draw(st.floats(0.1, 10)) for m in sizes}
    memory = {m: data.draw(st.integers(1, 9)) for m in sizes}
    limit = data.draw(st.integers(1, 9))
    allowed = [m for m in sizes if memory[m] <= limit]
    best = min((sum(times[m] for m in c) for c in compositions(batch, allowed)), default=None)
    if best is None:
        with pytest.raises(InputError, match="expected some that add up"):
            divide_batch(batch, times, memory, limit)
    else:
        found = divide_batch(batch, times, memory, limit)
        assert sum(found) == batch and sum(times[m] for m in found) == pytest.approx(best)
        assert all(memory[m] <= limit for m in found)


def test_the_least_limit_that_works_is_named():
    with pytest.raises(InputError, match="the least limit that works is 3"):
        divide_batch(4, {2: 1.0, 4: 1.0}, {2: 3, 4: 5}, limit=2)
    with pytest.raises(InputError, match="name size 1"):
        divide_batch(5, {2: 1.0}, {2: 3}, limit=9)
