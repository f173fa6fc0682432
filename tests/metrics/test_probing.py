"""What the trained network is run for once more: top-k, errors against another backend, and what data it saw."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from deep500.errors import InputError
from deep500.metrics import (
    DatasetBias,
    DifferenceMap,
    GradientError,
    L1Error,
    OutputError,
    TestAccuracy,
    TopKAccuracy,
    VarianceOverSeeds,
    WallTime,
)
from deep500.networks import Network, add_loss, create
from tests.metrics.watched import train


def test_top_1_is_the_accuracy_and_top_all_is_everything():
    metrics = [TopKAccuracy(k) for k in (1, 2, 4)]
    _, statistics = train(*metrics)
    top_1, top_2, top_4 = (metric.measure(statistics) for metric in metrics)
    assert top_1 == pytest.approx(TestAccuracy().measure(statistics))
    assert top_1 < top_2 < 100 == top_4
    assert metrics[1].name == "top_2_accuracy"


def test_top_k_needs_scores_to_choose_from():
    five, blind = TopKAccuracy(5), TopKAccuracy(1)
    _, statistics = train(five)
    assert five.measure(statistics) is None and "k=5" in five.reason
    _, statistics = train(blind, validate=False)
    assert blind.measure(statistics) is None and "no validation data" in blind.reason
    with pytest.raises(InputError, match="k=0"):
        TopKAccuracy(0)


def shifted(trainer, amount):
    """Make the trained executor compute something else than its network says."""
    executor = trainer.executor
    inference, backprop = executor.inference, executor.inference_and_backprop

    def wrong(inputs, outputs=None):
        return {name: value + amount for name, value in inference(inputs, outputs).items()}

    def wrong_gradients(inputs, loss="loss"):
        result = backprop(inputs, loss)
        fetch = executor.network.fetch_tensors
        executor.network.fetch_tensors = lambda names: [np.asarray(t) * (1 + amount) for t in fetch(names)]
        return result

    executor.inference, executor.inference_and_backprop = wrong, wrong_gradients


def test_errors_against_the_reference_are_those_that_were_put_in():
    outputs, absolute, gradients = OutputError(), OutputError(L1Error()), GradientError()
    trainer, statistics = train(outputs, absolute, gradients)
    for metric in (outputs, absolute, gradients):
        assert metric.measure(statistics) == 0.0, "the reference against itself"
    assert set(gradients.details) == {name for _, name in trainer.executor.network.gradient("loss")}
    shifted(trainer, 0.125)
    assert absolute.measure(statistics) == pytest.approx(0.125 * (4 * 4 + 1), rel=1e-5), "four samples and the loss"
    assert gradients.measure(statistics) == pytest.approx(0.125, rel=1e-5)
    assert outputs.name == "output_relative_l2_error" and gradients.name == "gradient_relative_l2_error"
    assert absolute.details["output"] == pytest.approx(0.125 * 16, rel=1e-5)


def test_gradients_leave_the_trained_network_as_it_was():
    metric = GradientError()
    network = Network("norm")
    network.add_input("input", ("N", 1, 4, 4))
    for name, trainable in (("scale", True), ("bias", True), ("mean", False), ("var", False)):
        network.add_parameter(name, np.ones(1, "float32"), trainable)
    network.add_node("BatchNormalization", ["input", "scale", "bias", "mean", "var"], ["normal"])
    network.add_node("Flatten", "normal", "output")
    network.add_output("output")
    trainer, statistics = train(metric, network=add_loss(network))
    before = trainer.executor.network.state()
    assert metric.measure(statistics) is not None
    after = trainer.executor.network.state()
    assert all((before[name] == after[name]).all() for name in before)
    trainer.executor.inference_and_backprop(trainer.train_sampler.dataset[:4])
    assert (trainer.executor.network.state()["mean"] != before["mean"]).any(), "else nothing was there to leave"


@pytest.mark.backend("pytorch")
def test_another_backend_agrees_within_rounding():
    metric = GradientError(backend="pytorch")
    _, statistics = train(metric)
    assert 0 < metric.measure(statistics) < 1e-5


def test_what_draws_at_random_is_not_compared():
    metric = GradientError()
    network = create("mlp", shape=(1, 4, 4), classes=4)
    network.add_node("Dropout", "output", "dropped")
    network.remove_output("output")
    network.add_output("dropped")
    _, statistics = train(metric, network=add_loss(network, output="dropped"))
    assert metric.measure(statistics) is None and metric.reason == "Dropout draws other numbers in every backend"
    with pytest.raises(InputError, match="samples=0"):
        OutputError(samples=0)


def test_the_picture_shows_the_largest_difference(tmp_path):
    path = tmp_path / "where.png"
    metric = DifferenceMap(path)
    trainer, statistics = train(metric)
    shifted(trainer, 0.5)
    assert metric.measure(statistics) == pytest.approx(0.5, rel=1e-5)
    assert path.read_bytes().startswith(b"\x89PNG") and metric.details["output"] == "output"
    wrong = DifferenceMap(path, output="nothing")
    _, statistics = train(wrong)
    with pytest.raises(InputError, match="'nothing'"):
        wrong.measure(statistics)


def test_dataset_bias_is_the_chi_square_test_of_the_labels_that_were_drawn():
    even = DatasetBias(4)
    _, statistics = train(even, epochs=1)
    assert even.measure(statistics) == 1.0 and even.details == dict.fromkeys("0123", 12)
    skewed = DatasetBias(5)
    _, statistics = train(skewed, epochs=1)
    assert skewed.measure(statistics) == pytest.approx(chisquare([12, 12, 12, 12, 0]).pvalue)
    with pytest.raises(InputError, match="from 0 to 2"):
        train(DatasetBias(3))
    with pytest.raises(InputError, match="at least two"):
        DatasetBias(1)
    unseen = DatasetBias(2)
    assert unseen.measure(statistics) is None and unseen.reason == "it did not watch a run"


def test_variance_over_seeds_is_of_the_values():
    metric = VarianceOverSeeds(TestAccuracy())
    assert (metric.name, metric.unit, metric.direction) == ("variance_of_test_accuracy", "%²", "lower")
    assert metric.combine([90.0, 92.0, 97.0]).value == pytest.approx(np.var([90, 92, 97], ddof=1))
    assert metric.combine([90.0]).value is None and "--repeat 2" in metric.combine([90.0]).remark
    assert metric.combine([90.0, None]).value is None and metric.combine([90.0, 91.0, None]).value is None
    with pytest.raises(InputError, match="watches the run"):
        VarianceOverSeeds(WallTime())
