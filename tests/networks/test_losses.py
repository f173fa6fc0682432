"""Losses against PyTorch's own in float64: values and gradients, in every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deep500.errors import NetworkError
from deep500.networks import Network, add_loss
from tests.tolerances import as_numpy

RNG = np.random.default_rng(18)
N, T, C, S = 4, 9, 5, 3
SCORES = RNG.normal(size=(N, T, C))
LENGTHS = {"input_length": np.array([9, 7, 3, 4]), "label_length": np.array([3, 2, 1, 0])}
WORDS = {"label": np.array([[2, 2, 2], [1, 4, 9], [3, -1, 0], [7, 7, 7]]), **LENGTHS}  # padding is anything
IMPOSSIBLE = {**WORDS, "input_length": np.array([4, 7, 3, 4])}  # three equal labels need five frames
CLASSES = {"label": np.array([[1, 4, -100], [0, -100, 2], [3, 3, 1], [-100, 0, 2]])}
SEEN = {"label": np.abs(CLASSES["label"]) % C}
MASK = {"weight": np.array([[1, 0.5, 0], [0, 1, 2], [1, 1, 1], [0, 3, 1.0]])}
SHARES = RNG.dirichlet(np.ones(C), size=N) * np.array([1, 1, 1, 0, 1.0])


def network(shape: tuple[int, ...], kind: str, **options: Any) -> Network:
    """Scores plus a bias that trains, and the loss."""
    net = Network("loss")
    net.add_input("scores", ("N", *shape), "float64")
    net.add_parameter("bias", np.zeros(shape))
    net.add_node("Add", ["scores", "bias"], ["output"])
    net.add_output("output")
    return add_loss(net, kind, **options)


def by_torch(scores: np.ndarray, function: Any) -> tuple[float, np.ndarray]:
    import torch

    x = torch.tensor(scores, requires_grad=True)
    value = function(torch.nn.functional, x, torch.tensor)
    value.backward()
    return value.item(), x.grad.numpy().sum(0)


def torch_ctc(feeds, **options):
    def function(F, x, tensor):
        args = (tensor(feeds["label"]), tensor(feeds["input_length"]), tensor(feeds["label_length"]))
        return F.ctc_loss(x.log_softmax(2).transpose(0, 1), *args, **options)

    return function


def masked(F, x, tensor):
    each = F.cross_entropy(x, tensor(SEEN["label"]), reduction="none")
    return (each * tensor(MASK["weight"])).sum() / MASK["weight"].sum()


OPTIONS: list[tuple[str, tuple[int, ...], str, dict[str, Any], dict[str, Any], Any]] = [
    ("ctc", (T, C), "ctc", {}, WORDS, torch_ctc(WORDS)),
    ("ctc-sum", (T, C), "ctc", {"reduction": "sum"}, WORDS, torch_ctc(WORDS, reduction="sum")),
    ("ctc-infinity", (T, C), "ctc", {"zero_infinity": True}, IMPOSSIBLE, torch_ctc(IMPOSSIBLE, zero_infinity=True)),
    (
        "ignore",
        (C, S),
        "cross_entropy",
        {"ignore_index": -100},
        CLASSES,
        lambda F, x, t: F.cross_entropy(x, t(CLASSES["label"])),
    ),
    (
        "smoothing",
        (C, S),
        "cross_entropy",
        {"label_smoothing": 0.1},
        SEEN,
        lambda F, x, t: F.cross_entropy(x, t(SEEN["label"]), label_smoothing=0.1),
    ),
    (
        "smoothing-ignore",
        (C, S),
        "cross_entropy",
        {"label_smoothing": 0.2, "ignore_index": -100},
        CLASSES,
        lambda F, x, t: F.cross_entropy(x, t(CLASSES["label"]), label_smoothing=0.2),
    ),
    ("mask", (C, S), "cross_entropy", {"mask": "weight"}, {**SEEN, **MASK}, masked),
    (
        "kl",
        (C,),
        "kl_divergence",
        {},
        {"label": SHARES},
        lambda F, x, t: F.kl_div(x.log_softmax(1), t(SHARES), reduction="batchmean"),
    ),
    (
        "huber",
        (T, C),
        "huber",
        {"delta": 0.7},
        {"label": -SCORES},
        lambda F, x, t: F.huber_loss(x, t(-SCORES), delta=0.7),
    ),
]


def scores_of(shape: tuple[int, ...]) -> np.ndarray:
    return SCORES.reshape(N, -1)[:, : int(np.prod(shape))].reshape(N, *shape)


LONG = ("ctc-sum", "ctc-infinity", "ignore", "smoothing", "huber", "kl")
"""What only repeats another row, or is one node after another: compiling it for every backend takes long."""
ROWS = [pytest.param(*o[1:], id=o[0], marks=[pytest.mark.long] if o[0] in LONG else []) for o in OPTIONS]


@pytest.mark.parametrize(("shape", "kind", "options", "feeds", "theirs"), ROWS)
def test_value_and_gradient_are_pytorchs(backend, shape, kind, options, feeds, theirs):
    scores = scores_of(shape)
    executor = backend.from_model(network(shape, kind, **options))
    got = executor.inference_and_backprop({"scores": scores, **feeds}, "loss")["loss"]
    value, gradient = by_torch(scores, theirs)
    np.testing.assert_allclose(as_numpy(got), value, rtol=1e-9)
    (ours,) = executor.network.fetch_tensors(["bias.grad"])
    np.testing.assert_allclose(as_numpy(ours), gradient, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("blank", [0, 4])
def test_ctc_of_every_item_and_any_blank(blank):
    """Without reduction, against PyTorch and against the sum over every alignment."""
    import itertools

    import torch

    from deep500.frameworks.reference import Executor

    scores, labels = RNG.normal(size=(2, 4, 5)), np.array([[1, 1], [2, 3]])
    feeds = {"label": labels, "input_length": np.array([4, 3]), "label_length": np.array([2, 2])}
    net = network((4, 5), "ctc", blank=blank, reduction="none")
    got = Executor(net).inference({"scores": scores, **feeds})["loss"]
    log_p = torch.tensor(scores).log_softmax(2)
    arguments = [torch.tensor(feeds[name]) for name in ("label", "input_length", "label_length")]
    want = torch.nn.functional.ctc_loss(log_p.transpose(0, 1), *arguments, blank=blank, reduction="none")
    np.testing.assert_allclose(got, want, rtol=1e-12)
    for item, length in enumerate(feeds["input_length"]):
        total = 0.0
        for path in itertools.product(range(5), repeat=int(length)):
            joined = [a for a, b in zip(path, (None, *path), strict=False) if a not in (b, blank)]
            if joined == labels[item].tolist():
                total += np.exp(sum(float(log_p[item, t, a]) for t, a in enumerate(path)))
        np.testing.assert_allclose(got[item], -np.log(total), rtol=1e-12)


def test_a_transcript_that_does_not_fit_has_an_infinite_loss_and_no_gradient():
    from deep500.frameworks.reference import Executor

    executor = Executor(network((T, C), "ctc", reduction="sum"))
    got = executor.inference_and_backprop({"scores": SCORES, **IMPOSSIBLE}, "loss")["loss"]
    assert np.isposinf(got) and np.isfinite(executor.network.fetch_tensors(["bias.grad"])[0]).all()


@pytest.mark.parametrize(
    ("shape", "kind", "options", "message"),
    [
        ((C,), "ctc", {}, r"got scores of shape .*expected \(items, frames, classes\)"),
        ((T, C), "ctc", {"blank": 5}, "got blank 5 and 5 classes"),
        ((T, C), "ctc", {"reduction": "all"}, "got reduction 'all'"),
        ((C,), "cross_entropy", {"label_smoothing": 1.0}, "got label_smoothing=1.0"),
        ((C,), "cross_entropy", {"smoothing": 0.1}, "got option 'smoothing'.*label_smoothing"),
        ((C,), "mean_squared_error", {"delta": 1}, "got option 'delta'; expected none"),
        ((C,), "huber", {"delta": 0}, "got delta=0"),
        ((C,), "focal", {}, "got loss 'focal'"),
    ],
)
def test_what_has_no_meaning_is_refused(shape, kind, options, message):
    with pytest.raises(NetworkError, match=message):
        network(shape, kind, **options)
