"""Variable lengths: padding is never read, whatever is in it, forward and backward, in every backend."""

from __future__ import annotations

import numpy as np
import pytest

import deep500 as d5
from deep500.errors import DataError, InputError
from deep500.tasks import Classification
from deep500.training.data import PackedSampler, SequenceDataset, hold_out, length_mask

LENGTHS = [3, 1, 4, 2, 4, 2]


def sequences(labels=(0, 1, 1, 0, 1, 0), **keywords):
    rng = np.random.default_rng(3)
    return SequenceDataset([rng.normal(size=(n, 2)).astype(np.float32) for n in LENGTHS], labels, **keywords)


def test_batches_are_padded_and_say_how_long_samples_are():
    data, short = sequences(), sequences(pad="batch")
    batch = data[[1, 3]]
    assert batch["input"].shape == (2, 4, 2) and short[[1, 3]]["input"].shape == (2, 2, 2)
    assert batch["input_length"].tolist() == [1, 2] and not batch["input"][0, 1:].any()
    assert np.array_equal(short[[1, 3]]["input"], batch["input"][:, :2])
    assert data[2]["input"].shape == (4, 2) and data[2]["label"] == 1 and data[-1]["input_length"] == 2
    assert data[[]]["input"].shape == (0, 4, 2) and data.digest() == sequences().digest()
    assert hold_out(data, 0.34)[1].lengths.tolist() == [LENGTHS[i] for i in hold_out(data, 0.34)[1].positions]


def test_labels_may_be_sequences_too():
    data = sequences(labels=[[1], [2, 3], [1, 1, 1], [4], [2], [3, 3]], label_name="words")
    batch = data[1:3]
    assert batch["words"].tolist() == [[2, 3, 0], [1, 1, 1]] and batch["words_length"].tolist() == [2, 3]
    assert data.classes == 5 and data.labels is None
    flat = SequenceDataset(np.arange(6), lengths=[2, 4])
    assert flat[1]["input"].tolist() == [2, 3, 4, 5] and length_mask(flat.lengths, 3).tolist() == [[1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize(
    ("sequence", "labels", "keywords", "message"),
    [
        ([np.zeros(2), np.zeros(0)], None, {}, r"sequence 1: got length 0"),
        ([np.zeros((2, 1)), np.zeros((2, 3))], None, {}, r"sizes \[\(1,\), \(3,\)\]"),
        (np.zeros(5), None, {"lengths": [2, 2]}, "add up to 4; expected 5"),
        ([np.zeros(2)], [1, 2], {}, "2 labels for 1 sequences"),
        ([np.zeros(2)], [[3]], {"classes": 3}, r"got label 3"),
    ],
)
def test_bad_sequences_are_refused(sequence, labels, keywords, message):
    with pytest.raises(DataError, match=message):
        SequenceDataset(sequence, labels, **keywords)


def test_samplers_know_the_lengths():
    data = sequences(pad="batch")
    assert [batch["input_length"].tolist() for batch in PackedSampler(data, 4)] == [[1, 2, 2, 3], [4, 4]]
    buckets = d5.BucketSampler(data, 2, num_buckets=3, drop_last_batch=False)
    assert all(np.ptp(batch["input_length"]) <= 1 for batch in buckets)
    for sampler in (PackedSampler, d5.BucketSampler):
        with pytest.raises(InputError, match=r"without lengths|has none"):
            sampler(d5.NumpyDataset(np.zeros(4)), 2)


@pytest.mark.parametrize(("kind", "direction"), [("LSTM", "bidirectional"), ("GRU", "reverse"), ("RNN", "forward")])
def test_recurrent_nodes_and_their_gradients_stop_at_the_length(backend, kind, direction):
    """Against torch on each sequence by itself, in float64."""
    import torch

    rng, gates = np.random.default_rng(0), {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    dirs = 2 if direction == "bidirectional" else 1
    lengths, hidden = [3, 1, 4], 2
    network = d5.Network("ragged")
    network.add_input("x", (4, "N", 2), "float64")
    network.add_input("n", ("N",), "int32")
    weights = {"w": (dirs, gates * hidden, 2), "r": (dirs, gates * hidden, hidden), "b": (dirs, 2 * gates * hidden)}
    for name, shape in weights.items():
        network.add_parameter(name, rng.normal(size=shape))
    more = {"linear_before_reset": 1} if kind == "GRU" else {}
    inputs = ["x", "w", "r", "b", "n"]
    network.add_node(kind, inputs, ["y", "last"], name="rnn", hidden_size=hidden, direction=direction, **more)
    network.add_node("ReduceSumSquare", ["y"], ["all"], keepdims=0)
    network.add_node("ReduceSum", ["last"], ["ends"], keepdims=0)
    network.add_node("Add", ["all", "ends"], ["loss"])
    network.add_output("loss")
    x = rng.normal(size=(4, 3, 2))  # what is past a length is noise, not 0
    executor = backend.from_model(network)
    got = executor.inference_and_backprop({"x": x, "n": np.array(lengths, np.int32)}, "loss")

    order = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2], "RNN": [0]}[kind]
    module = getattr(torch.nn, kind)(2, hidden, bidirectional=dirs == 2, dtype=torch.float64)
    turned = {}
    for name, value in executor.network.state().items():
        blocks = np.split(value, 2 * gates if name == "b" else gates, axis=1)
        turned[name] = np.concatenate([blocks[i] for i in [*order, *(gates + j for j in order)][: len(blocks)]], axis=1)
    with torch.no_grad():
        for d, ending in enumerate(["", "_reverse"][:dirs]):
            half = gates * hidden
            for name, value in (
                (f"weight_ih_l0{ending}", turned["w"][d]),
                (f"weight_hh_l0{ending}", turned["r"][d]),
                (f"bias_ih_l0{ending}", turned["b"][d, :half]),
                (f"bias_hh_l0{ending}", turned["b"][d, half:]),
            ):
                getattr(module, name).copy_(torch.tensor(value))
    loss = torch.zeros((), dtype=torch.float64)
    for item, length in enumerate(lengths):
        part = torch.tensor(x[:length, item])
        y, end = module(part.flip(0) if direction == "reverse" else part)
        loss = loss + (y**2).sum() + (end[0] if kind == "LSTM" else end).sum()
    loss.backward()
    to_numpy = executor.network.to_numpy
    assert float(to_numpy(got["loss"])) == pytest.approx(loss.item(), rel=1e-9)
    for name, own in (("w.grad", "weight_ih_l0"), ("r.grad", "weight_hh_l0")):
        blocks = np.split(to_numpy(executor.network.fetch_tensors([name])[0])[0], gates)
        want = getattr(module, own).grad.numpy()
        np.testing.assert_allclose(np.concatenate([blocks[i] for i in order]), want, rtol=1e-9, atol=1e-12)


def test_padding_changes_neither_loss_nor_gradient(backend):
    network = d5.add_loss(d5.networks.create("lstm", width=4, classes=2, shape=(4, 2), lengths=True))
    executor = backend.from_model(network)
    batch = sequences()[0:6]
    within = length_mask(batch["input_length"], 4)[..., None]
    noisy = {**batch, "input": np.where(within, batch["input"], np.float32(7))}
    results = []
    for given in (batch, noisy):
        outputs = executor.inference_and_backprop(given, "loss")
        (gradient,) = executor.network.fetch_tensors(["lstm.weight_ih.grad"])
        results.append([np.array(executor.network.to_numpy(tensor)) for tensor in (outputs["loss"], gradient)])
    assert np.array_equal(results[0][0], results[1][0]) and np.array_equal(results[0][1], results[1][1])
    assert np.abs(results[0][1]).max() > 0


def test_a_packed_validation_says_the_same(backend):
    network = d5.add_loss(d5.networks.create("lstm", width=4, classes=2, shape=(4, 2), lengths=True))
    executor = backend.from_model(network)
    optimizer, train = backend.GradientDescent(executor, lr=0.1), d5.OrderedSampler(sequences(), 3)
    trainer = d5.Trainer(train, None, executor, optimizer, task=Classification())
    said = [trainer.evaluate(made(sequences(), 4), "test") for made in (PackedSampler, d5.OrderedSampler)]
    assert said[0].accuracy() == said[1].accuracy() and said[0].loss() == pytest.approx(said[1].loss(), rel=1e-5)
