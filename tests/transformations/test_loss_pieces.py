"""The last layer and its loss in pieces: the whole network, differentiated as it is, is the oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deep500.errors import InputError, NetworkError
from deep500.networks import Network, add_loss, create
from deep500.networks.emit import Emitter
from deep500.networks.execution.capabilities import step_memory
from deep500.registry import load_backend
from deep500.transformations.loss_pieces import microbatch_loss
from deep500.transformations.microbatching import microbatch
from deep500.transformations.mixed_precision import mixed_precision
from deep500.transformations.substitutions.equivalence import in_float64
from tests.transformations.test_microbatching import step

BACKENDS = ("reference", "pytorch", "tensorflow", "jax", "onnxruntime")
COUNTING = ("reference", "pytorch", "jax")
"""Backends that tell what a step holds."""
ITEMS, TOKENS, WIDTH, CLASSES = 3, 5, 4, 6


def assert_same(network, cut, inputs, backend="reference"):
    whole, pieces = step(network, inputs, backend), step(cut, inputs, backend)
    assert pieces.keys() == whole.keys() - (set(network.outputs) - set(cut.outputs)) and len(pieces) > 2
    for name, value in pieces.items():
        np.testing.assert_allclose(value, whole[name], rtol=1e-12, atol=1e-12, err_msg=name)


def batch(seed=0, classes=CLASSES, ignored=()):
    rng = np.random.default_rng(seed)
    labels = rng.choice([*range(classes), *ignored], (ITEMS, TOKENS))
    return {
        "x": rng.standard_normal((ITEMS, TOKENS, WIDTH)),
        "label": labels,
        "mask": rng.integers(0, 2, labels.shape).astype(float) + 0.25,
    }


@st.composite
def heads(draw):
    """A network that ends in a layer and a loss of tokens, in one of the ways in which these are written."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    net = Network("head")
    net.add_input("x", ("N", TOKENS, WIDTH), "float64")
    net.add_input("label", ("N", TOKENS), "int64")

    def parameter(name, *shape):
        net.add_parameter(name, rng.standard_normal(shape))
        return name

    def constant(name, *numbers):
        net.add_parameter(name, np.array(numbers, np.int64), trainable=False)
        return name

    def node(kind, inputs, name, **attributes):
        net.add_node(kind, inputs, [name], name=name, **attributes)
        return name

    value, layout = node("MatMul", ["x", parameter("first", WIDTH, WIDTH)], "features"), "NTD"
    if draw(st.booleans()):
        value, layout = node("Transpose", [value], "time_first", perm=[1, 0, 2]), "TND"
    before = draw(st.sampled_from(["nothing", "activation", "norm"]))
    if before == "activation":
        value = node("Gelu", [node("Mul", [value, parameter("scale", WIDTH)], "scaled")], "active")
    elif before == "norm":
        value = node("LayerNormalization", [value, parameter("gain", WIDTH), parameter("shift", WIDTH)], "normed")
    flat = layout == "NTD" and draw(st.booleans())
    if flat and draw(st.booleans()):  # as PyTorch's exporter writes a Linear
        value = node("Reshape", [value, constant("rows", -1, WIDTH)], "flat")
        value = node(
            "Gemm", [value, parameter("weight", CLASSES, WIDTH), parameter("bias", CLASSES)], "output", transB=1
        )
    else:
        tied = draw(st.booleans())
        weight = parameter("table", CLASSES, WIDTH) if tied else parameter("weight", WIDTH, CLASSES)
        weight = node("Transpose", [weight], "tied", perm=[1, 0]) if tied else weight
        value = node("MatMul", [value, weight], "product")
        late = draw(st.booleans()) and not flat
        if not late:
            value = node("Add", [parameter("bias", CLASSES), value], "biased")
        if flat:
            value = node("Reshape", [value, constant("rows", -1, CLASSES)], "output")
        else:
            value = node("Transpose", [value], "turned", perm=[0, 2, 1] if layout == "NTD" else [1, 2, 0])
            value = node("Add", [value, parameter("bias", CLASSES, 1)], "output") if late else value
    labels = node("Reshape", ["label", constant("all", -1)], "labels") if flat else "label"
    _add_loss(draw, net, node, parameter, constant, value, labels, flat)
    return net, "scaled" if before == "activation" else value


def _add_loss(draw, net, node, parameter, constant, value, labels, flat):
    options = {"ignore_index": draw(st.sampled_from([None, 0, -100]))}
    options = {name: number for name, number in options.items() if number is not None}
    more = []
    if draw(st.booleans()):
        net.add_parameter("weights", np.linspace(0.5, 2, CLASSES), trainable=False)
        more = ["weights"]
    kind = draw(st.sampled_from(["SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"]))
    if kind == "NegativeLogLikelihoodLoss":
        value = node("LogSoftmax", [value], "log_p", axis=1)
    reduction = draw(st.sampled_from(["mean", "sum", "none", "masked"]))
    if reduction in ("mean", "sum"):
        loss = node(kind, [value, labels, *more], "judged", reduction=reduction, **options)
    else:
        loss = node(kind, [value, labels, *more], "single", reduction="none", **options)
        if reduction == "masked":
            net.add_input("mask", ("N", TOKENS), "float64")
            mask = node("Reshape", ["mask", "all"], "flat_mask") if flat else "mask"
            total = node("ReduceSum", [node("Mul", [loss, mask], "masked")], "total", keepdims=0)
            loss = node("Div", [total, node("ReduceSum", [mask], "amount", keepdims=0)], "judged")
        else:
            loss = node("ReduceMean", [loss], "judged", keepdims=int(draw(st.booleans())))
    if draw(st.booleans()):  # a penalty beside it, which no row is in
        square = node("ReduceSumSquare", ["first"], "penalty", keepdims=0)
        loss = node("Add", [loss, square], "together")
    node("Squeeze", [loss], "loss")
    net.add_output("loss")


@settings(max_examples=40, deadline=None)
@given(head=heads(), data=st.data(), seed=st.integers(0, 99))
def test_any_head_with_its_loss_trains_the_same(head, data, seed):
    network, _ = head
    rows = ITEMS * TOKENS
    first = data.draw(st.integers(1, rows - 2))
    pieces = data.draw(st.sampled_from([2, 4, [first, rows - first - 1, 1]]))
    ignored = [-100] if any(node.attributes.get("ignore_index") == -100 for node in network.nodes) else []
    inputs = {name: value for name, value in batch(seed, ignored=ignored).items() if name in network.inputs}
    cut = microbatch_loss(network, pieces)
    assert sum(node.op_type.endswith("Loss") for node in cut.nodes) >= (pieces if isinstance(pieces, int) else 3)
    assert_same(network, cut, inputs)


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in BACKENDS])
def test_language_models_train_the_same_in_every_backend(backend):
    name = "causal_transformer" if backend == "pytorch" else "gru_language_model"
    sizes = {"width": 8, "heads": 2, "layers": 1} if name == "causal_transformer" else {"width": 4, "embedding": 3}
    options = {"ignore_index": 2, "label_smoothing": 0.1, "mask": "mask"}
    network = in_float64(add_loss(create(name, classes=7, shape=(3,), **sizes), **options))
    rng = np.random.default_rng(1)
    inputs = {"input": rng.integers(0, 7, (3, 3)), "label": rng.integers(0, 7, (3, 3)), "mask": rng.random((3, 3))}
    cut = microbatch_loss(network, 2)
    assert_same(network, cut, inputs, backend)
    executor = load_backend(backend).from_model(cut)
    whole = load_backend(backend).from_model(network)
    for outputs in (["loss"], ["output", "loss"]):
        for name, value in executor.inference(inputs, outputs).items():
            expected = whole.inference(inputs, [name])[name]
            np.testing.assert_allclose(cut_array(executor, value), cut_array(whole, expected), rtol=1e-12, atol=1e-12)


def cut_array(executor, value):
    return np.asarray(executor.network.to_numpy(value))


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in BACKENDS[:4]])
def test_a_batch_of_which_every_label_is_ignored_and_pieces_without_rows(backend):
    network = in_float64(add_loss(create("mlp", shape=(4,), hidden=(3,), classes=3), ignore_index=1))
    inputs = {"input": np.random.default_rng(0).standard_normal((2, 4)), "label": np.ones(2, np.int64)}
    whole, cut = step(network, inputs, backend), step(microbatch_loss(network, 4), inputs, backend)
    for name, value in cut.items():
        np.testing.assert_array_equal(value, whole[name], err_msg=name)
    assert np.isnan(cut["loss"]) and not any(value.any() for name, value in cut.items() if name.endswith(".grad"))


@pytest.mark.backend("pytorch")
def test_it_is_pytorchs_cross_entropy():
    import torch

    rng = np.random.default_rng(3)
    x, weight, labels = rng.standard_normal((9, 4)), rng.standard_normal((4, 5)), rng.integers(-1, 5, 9)
    classes = rng.random(5)
    network = Network("head")
    network.add_input("x", ("N", 4), "float64")
    network.add_input("label", ("N",), "int64")
    network.add_parameter("w", weight)
    network.add_parameter("classes", classes, trainable=False)
    network.add_node("MatMul", ["x", "w"], ["scores"])
    network.add_node("SoftmaxCrossEntropyLoss", ["scores", "label", "classes"], ["loss"], ignore_index=-1)
    network.add_output("loss")
    got = step(microbatch_loss(network, 3), {"x": x, "label": labels}, "pytorch")
    w = torch.tensor(weight, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(
        torch.tensor(x) @ w, torch.tensor(labels), torch.tensor(classes), ignore_index=-1
    )
    loss.backward()
    np.testing.assert_allclose(got["loss"], loss.detach().numpy(), rtol=1e-12)
    np.testing.assert_allclose(got["w.grad"], w.grad.numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in COUNTING])
def test_a_step_holds_a_quarter(backend):
    network = Network("head")
    network.add_input("x", ("N", 16, 8))
    network.add_parameter("w", np.ones((8, 500), "float32"))
    network.add_node("MatMul", ["x", "w"], ["scores"])
    network.add_node("Transpose", ["scores"], ["output"], perm=[0, 2, 1])
    network.add_output("output")
    add_loss(network)
    network.remove_output("output")
    inputs = {"x": np.ones((16, 16, 8), "float32"), "label": np.ones((16, 16), np.int64)}
    whole, cut = (
        step_memory(load_backend(backend).from_model(net), inputs) for net in (network, microbatch_loss(network, 8))
    )
    assert whole is not None and cut is not None and cut < 0.25 * whole


def test_files_hold_it(tmp_path):
    network = in_float64(add_loss(create("gru_language_model", classes=7, shape=(5,), width=4, embedding=3)))
    microbatch_loss(network, 3).to_onnx(tmp_path / "cut.onnx")
    rng = np.random.default_rng(1)
    inputs = {"input": rng.integers(0, 7, (3, 5)), "label": rng.integers(0, 7, (3, 5))}
    assert_same(network, Network.from_onnx(tmp_path / "cut.onnx"), inputs)


def test_a_longer_part_is_cut_and_samples_stand_in_for_rows():
    network = in_float64(add_loss(create("lenet")))
    rng = np.random.default_rng(0)
    inputs = {"input": rng.standard_normal((6, *network.inputs["input"].shape[1:])), "label": rng.integers(0, 9, 6)}
    cut = microbatch_loss(network, 3, since="input")
    assert sum(node.op_type == "Conv" for node in cut.nodes) >= 3 * 2
    assert_same(network, cut, inputs)


@pytest.mark.parametrize("backend", [pytest.param(b, marks=pytest.mark.backend(b)) for b in BACKENDS])
def test_the_whole_step_in_pieces_whose_outputs_stay(backend):
    """A second loss and an output in the middle, too."""
    network = in_float64(create("mlp", shape=(4,), hidden=(3,), classes=3))
    network.add_node("Relu", ["output"], ["low"])
    network.add_node("Split", ["low"], ["first", "rest"], axis=1, num_outputs=2)
    network.add_node("Mul", ["rest", "rest"], ["squares"])
    network.add_node("ReduceMean", ["squares"], ["penalty"], keepdims=0)
    network.add_output("first")
    emit = Emitter(add_loss(network, output="output", loss="judged"))
    emit("Add", "judged", "penalty", output="loss")
    network.add_output("loss")
    rng = np.random.default_rng(0)
    inputs = {"input": rng.standard_normal((5, 4)), "label": rng.integers(0, 3, 5)}
    cut = microbatch_loss(network, [2, 1, 2], since="input", outputs=True)
    assert set(cut.outputs) == set(network.outputs)
    assert_same(network, cut, inputs, backend)


def test_16_bits_are_scaled_in_16_bits():
    network = add_loss(create("gru_language_model", classes=9, shape=(5,), width=4, embedding=3))
    low = mixed_precision(network, "bf16")
    rng = np.random.default_rng(1)
    inputs = {"input": rng.integers(0, 7, (3, 5)), "label": rng.integers(0, 7, (3, 5))}
    whole, cut = step(low, inputs, "pytorch"), step(microbatch_loss(low, 3), inputs, "pytorch")
    for name, value in cut.items():
        np.testing.assert_allclose(value, whole[name], rtol=0.05, atol=2e-3, err_msg=name)


def test_what_cannot_be_cut_says_why():
    network = add_loss(create("resnet", depth=8))
    with pytest.raises(NetworkError, match=r"BatchNormalization.*statistics in training.*begin later"):
        microbatch_loss(network, 2, since="input")
    with pytest.raises(NetworkError, match=r"since=..nowhere"):
        microbatch_loss(network, 2, since="nowhere")
    with pytest.raises(InputError, match="expected two or more"):
        microbatch_loss(network, 1)
    maximum = Network("maximum")
    maximum.add_input("x", ("N", 4))
    maximum.add_parameter("w", np.ones((4, 2), "float32"))
    maximum.add_node("MatMul", ["x", "w"], ["y"])
    maximum.add_node("ReduceMax", ["y"], ["loss"], name="most", keepdims=0)
    with pytest.raises(NetworkError, match=r"node 'most' .ReduceMax. is none"):
        microbatch_loss(maximum, 2)


REDUCING = ("ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2", "ReduceLogSumExp")
MEETINGS = (*REDUCING, "Softmax", "CumSum", "all", "products", "batch statistics", "shifted", "none")
"""Ways in which samples of (samples, features) meet, or do not."""


def met(net, kind, value, name):
    """A value of the same shape, in which samples met."""
    emit = Emitter(net, f"{name}/")
    if kind == "none":
        return emit("Tanh", value)
    if kind == "all":
        return emit("Sub", value, emit("ReduceMean", value, keepdims=1))
    if kind == "products":
        return emit("MatMul", value, emit("MatMul", emit("Transpose", value, perm=[1, 0]), value))
    if kind == "shifted":  # each sample sees the one before it
        first = emit("Slice", value, emit.ints(0), emit.ints(1), emit.ints(0))
        rest = emit("Slice", value, emit.ints(0), emit.ints(-1), emit.ints(0))
        return emit("Concat", first, rest, axis=0)
    if kind == "batch statistics":
        centred = emit("Sub", value, emit("ReduceMean", value, emit.ints(0), keepdims=1))
        return emit("Div", centred, emit("Sqrt", emit("ReduceMean", emit("Mul", centred, centred), emit.ints(0))))
    if kind == "Softmax":
        return emit(kind, value, axis=0)
    if kind == "CumSum":
        return emit(kind, value, emit.constant(np.int64(0)))
    return emit("Sub", value, emit(kind, value, emit.ints(0), keepdims=1))


@given(
    kinds=st.lists(st.sampled_from([*MEETINGS, "none"]), min_size=1, max_size=2),
    begin=st.sampled_from(["", "x", "h0", "h1"]),
    stopped=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_where_samples_meet_pieces_are_equal_or_refused(kinds, begin, stopped, seed):
    """Of the loss and of the whole step, from anywhere; a value may stand for a constant (no gradient passes)."""
    rng = np.random.default_rng(seed)
    net = Network("meeting")
    net.add_input("x", ("N", 3), "float64")
    net.add_input("label", ("N", 3), "float64")
    value = "x"
    for place, kind in enumerate(kinds):
        net.add_parameter(f"w{place}", rng.standard_normal((3, 3)))
        net.add_node("MatMul", [value, f"w{place}"], [f"h{place}"])
        value = met(net, kind, f"h{place}", f"m{place}")
        if stopped:
            value = Emitter(net, f"s{place}/")(
                "Add", f"h{place}", Emitter(net, f"t{place}/")("StopGradient", value, domain="deep500")
            )
    net.add_node("Identity", [value], ["output"])
    net.add_output("output")
    add_loss(net, "mean_squared_error", output="output")
    inputs = {"x": rng.standard_normal((6, 3)), "label": rng.standard_normal((6, 3))}
    for transform in (
        lambda: microbatch_loss(net, 3, since=begin or ()),
        lambda: microbatch_loss(net, 3, since="x", outputs=True),
        lambda: microbatch(net, 3),
    ):
        try:
            cut = transform()
        except NetworkError:
            continue
        whole, pieces = step(net, inputs), step(cut, inputs)
        for name in pieces:
            np.testing.assert_allclose(pieces[name], whole[name], rtol=1e-10, atol=1e-12, err_msg=name)
