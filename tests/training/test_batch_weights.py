"""What batches count, by the network or by a task; and batches in which something counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.networks import add_loss, create
from deep500.tasks import Regression
from deep500.training.batch_weights import BatchWeights
from tests.conftest import load_backend


class Thirds(Regression):
    """Whose loss divides by what only it knows."""

    def weight(self, batch: Any) -> int:
        return 3 * self.count(batch)


def weights_of(**options: Any) -> BatchWeights:
    network = add_loss(create("mlp", shape=(4,), hidden=(), classes=3), **options)
    return BatchWeights(load_backend("reference").from_model(network), "loss")


def batch(*labels: int, **more: Any) -> dict[str, np.ndarray]:
    x = np.ones((len(labels), 4), np.float32)
    return {"input": x, "label": np.array(labels, np.int64), **{n: np.array(v, np.float32) for n, v in more.items()}}


def test_samples_unless_the_loss_divides_by_something_else() -> None:
    plain, ignoring = weights_of(), weights_of(ignore_index=0)
    assert (plain.counted, plain(batch(0, 1, 0)), plain.read) == (False, 3, ())
    assert (ignoring.counted, ignoring(batch(0, 1, 0)), ignoring.read) == (True, 1, ("label",))
    assert ignoring(batch()) == ignoring(batch(0, 0)) == 0


def test_a_task_that_says_it_is_believed() -> None:
    for weights in (weights_of(), weights_of(ignore_index=0)):
        weights.ask(Thirds())
        assert weights.counted and weights(batch(0, 1, 0)) == 9 and weights.read == ()
    weights = weights_of(ignore_index=0)
    weights.ask(Regression())
    assert weights(batch(0, 1, 0)) == 1


def test_an_edit_of_the_network_is_heeded() -> None:
    weights = weights_of(ignore_index=0)
    assert weights(batch(0, 1)) == 1
    network = weights.executor.network
    network.remove_output("loss")
    network.remove_node(network.producer("loss").name)
    network.add_node("SoftmaxCrossEntropyLoss", ["output", "label"], ["loss"], reduction="mean", ignore_index=1)
    network.add_output("loss")
    assert weights(batch(0, 1, 0)) == 2


@pytest.mark.parametrize("backend", ["reference", pytest.param("pytorch", marks=pytest.mark.backend("pytorch"))])
def test_a_batch_in_which_something_counts(backend: str) -> None:
    for options, given in (
        ({"ignore_index": 0}, batch(0, 0)),
        ({"mask": "mask", "ignore_index": 0}, batch(1, 0, mask=[0, 0])),
    ):
        network = add_loss(create("mlp", shape=(4,), hidden=(), classes=3), **options)
        weights = BatchWeights(load_backend(backend).from_model(network, "cpu"), "loss")
        assert weights(given) == 0
        made = weights.counting(given)
        assert weights(made) > 0 and np.isfinite(float(weights.executor.inference(made)["loss"]))
        assert all(made[n].shape == a.shape and made[n].dtype == a.dtype for n, a in given.items())
        assert made["input"] is given["input"] and (given["label"] == 0).any()
    assert weights.counting(counts := batch(1, 2, mask=[1, 0])) == counts


def trained(batch_size: int, **options: Any) -> d5.training.statistics.EpochRecord:
    """Judged before and after an epoch at rate 0."""
    rng = np.random.default_rng(0)
    data = d5.NumpyDataset(rng.normal(size=(23, 4)).astype("f4"), "input", rng.integers(0, 3, 23), "label", classes=3)
    network = add_loss(create("mlp", shape=(4,), hidden=(5,), classes=3), **options)
    module = load_backend("reference")
    executor = module.from_model(network)
    sampler = d5.OrderedSampler(data, batch_size, drop_last_batch=False)
    optimizer = module.GradientDescent(executor, lr=0.0)
    return d5.Trainer(sampler, sampler, executor, optimizer).run(1, []).epochs[-1]


@pytest.mark.parametrize("ignored", [{}, {"ignore_index": 2}])
def test_mean_losses_do_not_depend_on_the_batch_size(ignored: dict[str, int]) -> None:
    """Of 23 samples in batches of 1, 5 and 23: some batches have no label that counts, and are no fault."""
    whole = trained(23, **ignored)
    for batch_size in (1, 5):
        with np.errstate(invalid="ignore"):
            found = trained(batch_size, **ignored)
        assert found.test_loss == pytest.approx(whole.test_loss, rel=1e-6)
        assert found.train_loss == pytest.approx(whole.train_loss, rel=1e-6)
        assert found.test_samples == whole.test_samples == 23


def test_the_mean_of_sums_is_that_of_samples() -> None:
    found = []
    for batch_size in (4, 8):
        network = create("mlp", shape=(2,), hidden=(), classes=1)
        network.add_node("ReduceSum", ["output"], ["loss"], keepdims=0)
        network.add_output("loss")
        module = load_backend("reference")
        executor = module.from_model(network)
        data = d5.NumpyDataset(np.random.default_rng(0).normal(size=(8, 2)).astype("f4"), "input")
        sampler = d5.OrderedSampler(data, batch_size)
        optimizer = module.GradientDescent(executor, lr=0.0)
        found.append(d5.Trainer(sampler, sampler, executor, optimizer).run(1, []).epochs[-1].test_loss)
        mean = float(np.mean(executor.inference(data[:])["output"]))
    assert found == pytest.approx([mean] * 2, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ignored", [255, -100, 1])
def test_labels_that_do_not_count_are_no_errors(ignored: int, smoothing: float) -> None:
    """Accuracy, the highest k and the matrix of the report are of the labels that count, whatever the batch size."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 23)
    labels[::3] = ignored
    data = d5.NumpyDataset(rng.normal(size=(23, 4)).astype("f4"), labels=labels, classes=3, ignore_index=ignored)
    module = load_backend("reference")
    options = {"ignore_index": ignored, "label_smoothing": smoothing}
    network = add_loss(create("mlp", shape=(4,), hidden=(), classes=3), **options)
    for batch_size in (1, 5, 23):
        executor, top = module.from_model(network.copy()), d5.metrics.TopKAccuracy(1)
        sampler = d5.OrderedSampler(data, batch_size, drop_last_batch=False)
        task = d5.tasks.Classification(classes=3)
        trainer = d5.Trainer(sampler, sampler, executor, module.GradientDescent(executor, lr=0.0), task=task)
        with np.errstate(invalid="ignore"):
            record = trainer.run(1, [top]).epochs[-1]
        best = executor.inference(data[:])["output"].argmax(axis=1)
        counts = labels != ignored
        right = 100 * np.mean(best[counts] == labels[counts])
        assert record.test_accuracy == pytest.approx(right) and record.train_accuracy == pytest.approx(right)
        assert top.measure(trainer.statistics) == pytest.approx(right)
        matrix = trainer.evaluate(sampler, "gallery", task.gallery()).sums["confusion"]
        assert matrix.sum() == counts.sum() and np.trace(matrix) == np.sum(best[counts] == labels[counts])
