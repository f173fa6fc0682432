"""What a loss divides by, read off the nodes of every loss that Deep500 writes, and of transformed networks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.errors import InputError
from deep500.networks import add_loss, create, to_dtype
from deep500.networks.network import Network
from deep500.transformations.denominators import loss_denominator
from deep500.transformations.loss_pieces import microbatch_loss
from deep500.transformations.microbatching import microbatch
from tests.conftest import load_backend

CLASSES = np.array([0.5, 0.0, 3.0])
LABELS = np.array([0, 1, 2, 2, 0, 1, 0])
MASK = np.array([0.5, 1.0, 0.0, 2.0, 0.25, 1.0, 1.0])


def mlp() -> Network:
    return to_dtype(create("mlp", shape=(4,), hidden=(3,), classes=3), "float64")


def with_classes(reduction: str = "mean", **options: Any) -> Network:
    network = mlp()
    network.add_input("label", ("N",), "int64")
    network.add_parameter("classes", CLASSES, trainable=False)
    inputs = ["output", "label", "classes"]
    network.add_node("SoftmaxCrossEntropyLoss", inputs, ["loss"], "loss", reduction=reduction, **options)
    network.add_output("loss")
    return network


COUNTED = {
    "labels": (lambda: add_loss(mlp(), ignore_index=2), (LABELS != 2).sum()),
    "mask": (lambda: add_loss(mlp(), mask="mask"), MASK.sum()),
    "mask of labels": (lambda: add_loss(mlp(), mask="mask", ignore_index=0), MASK[LABELS != 0].sum()),
    "smooth": (lambda: add_loss(mlp(), label_smoothing=0.1, ignore_index=0), (LABELS != 0).sum()),
    "classes": (with_classes, CLASSES[LABELS].sum()),
    "classes of labels": (lambda: with_classes(ignore_index=2), CLASSES[LABELS[LABELS != 2]].sum()),
}


@pytest.mark.parametrize("change", [None, microbatch, microbatch_loss], ids=["plain", "pieces", "loss in pieces"])
@pytest.mark.parametrize("name", COUNTED)
def test_it_is_what_the_loss_was_divided_by(name: str, change: Any) -> None:
    """Twice: the number itself, and that sums of parts over it are the loss of the whole."""
    make, want = COUNTED[name]
    network = make() if change is None else change(make(), 2)
    found, executor = loss_denominator(network, "loss"), load_backend("reference").from_model(network)
    x = np.random.default_rng(0).normal(size=(7, 4))
    batch = {"input": x, "label": LABELS} | ({"mask": MASK} if "mask" in name else {})
    assert found.counted and found.count(batch, executor) == pytest.approx(want, rel=1e-15)
    parts = [{n: a[rows] for n, a in batch.items()} for rows in (slice(0, 4), slice(4, 7))]
    weights = [found.count(part, executor) for part in parts]
    losses = [float(executor.inference(part)["loss"]) for part in parts]
    whole = float(executor.inference(batch)["loss"])
    assert np.average(losses, weights=weights) == pytest.approx(whole, rel=1e-12)
    assert sum(weights) == pytest.approx(want) and abs(np.mean(losses) - whole) > 1e-4


@pytest.mark.parametrize("kind", ["cross_entropy", "mean_squared_error", "huber", "kl_divergence"])
def test_means_over_samples(kind: str) -> None:
    network = add_loss(mlp(), kind)
    found = loss_denominator(network, "loss")
    if kind != "kl_divergence":  # which has no pieces
        assert loss_denominator(microbatch(network, 2), "loss") == found
    assert (found.kind, found.counted, found.whole, found.reads) == ("samples", False, True, ())
    found.check("loss", "here")


def test_options_that_change_no_divisor() -> None:
    assert loss_denominator(add_loss(mlp(), label_smoothing=0.1), "loss").kind == "samples"
    assert loss_denominator(microbatch_loss(add_loss(mlp()), 2), "loss").kind == "samples"
    assert loss_denominator(mlp(), "output").kind == "samples"


def added(network: Network, *terms: tuple[str, list[str], dict[str, Any]]) -> Network:
    """Terms of a loss, and their sum."""
    for number, (op_type, inputs, attributes) in enumerate(terms):
        network.add_node(op_type, inputs, [f"term{number}"], **attributes)
    network.add_node("Sum", [f"term{number}" for number in range(len(terms))], ["loss"])
    network.add_output("loss")
    return network


def two_terms(**options: Any) -> Network:
    network = mlp()
    network.add_input("label", ("N",), "int64")
    network.add_node("Mul", ["output", "output"], ["square"])
    cross = ("SoftmaxCrossEntropyLoss", ["output", "label"], {"reduction": "mean", **options})
    return added(network, cross, ("ReduceMean", ["square"], {"keepdims": 0}))


def penalised() -> Network:
    network = mlp()
    network.add_input("label", ("N",), "int64")
    network.add_node("ReduceSumSquare", ["fc1.weight"], ["penalty"], keepdims=0)
    cross = ("SoftmaxCrossEntropyLoss", ["output", "label"], {"reduction": "mean", "ignore_index": 1})
    return added(network, cross, ("Identity", ["penalty"], {}))


def test_terms_of_a_sum_divide_by_one_number() -> None:
    assert loss_denominator(two_terms(), "loss").kind == "samples"
    assert loss_denominator(two_terms(ignore_index=1), "loss").kind == "several"
    found = loss_denominator(penalised(), "loss")  # what depends on no sample is the same in each part
    assert (found.kind, found.ignored) == ("labels", 1)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: with_classes("sum"), "which is a sum;"),
        (lambda: two_terms(ignore_index=1), "a sum of terms that divide by different numbers"),
    ],
    ids=["sum", "several"],
)
def test_what_is_no_mean_is_refused_where_parts_are_put_together(make: Any, what: str) -> None:
    with pytest.raises(InputError, match=f"got 2 ranks with the loss 'loss', .*{what}.* expected a mean.*leave it out"):
        loss_denominator(make(), "loss").check("loss", "2 ranks")


def test_classes_that_are_trained_weigh_nothing_else() -> None:
    network = with_classes()
    network.set_parameter("classes", CLASSES, trainable=True)
    assert loss_denominator(network, "loss").kind == "several"


def test_labels_and_weights_that_the_network_computes() -> None:
    network = mlp()
    network.add_input("target", ("N", 1), "int64")
    network.add_input("classes", (3,), "float64")
    network.add_parameter("axis", np.array([1]), trainable=False)
    network.add_node("Squeeze", ["target", "axis"], ["label"])
    inputs = ["output", "label", "classes"]
    network.add_node("SoftmaxCrossEntropyLoss", inputs, ["loss"], reduction="mean", ignore_index=2)
    network.add_output("loss")
    found = loss_denominator(network, "loss")
    batch = {"target": LABELS[:, None], "classes": CLASSES}
    assert found.kind == "value" and set(found.reads) == {"target", "classes"}
    want = CLASSES[LABELS[LABELS != 2]].sum()
    assert found.count(batch, load_backend("reference").from_model(network)) == pytest.approx(want, rel=1e-15)
