"""CTC in C++ against PyTorch's in float64, gradient by Enzyme, and as a node of networks in every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deep500 as d5
from deep500.networks import Network, add_loss
from deep500.operators import find_operator
from tests.tolerances import as_numpy

RNG = np.random.default_rng(18)
T, N, C, S = 9, 4, 5, 3
SCORES = RNG.normal(size=(T, N, C))
LABELS = np.array([[2, 2, 2], [1, 4, 9], [3, -1, 0], [7, 7, 7]])  # what is behind the end is anything
FRAMES, COUNTS = np.array([9, 7, 3, 4]), np.array([3, 2, 1, 0])
IMPOSSIBLE = np.array([4, 7, 3, 4])  # three equal labels need five frames


def operator(dtype: str = "float64", **attributes: Any) -> d5.CustomOp:
    shapes = [(dtype, (T, N, C)), ("int64", (N, S)), ("int64", (N,)), ("int64", (N,))]
    return find_operator("CTCLoss", attributes, [d5.tensordesc(shape, kind) for kind, shape in shapes])


def theirs(frames: np.ndarray, weight: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """PyTorch's values, and its gradient by the scores, through LogSoftmax."""
    import torch

    scores = torch.tensor(SCORES, requires_grad=True)
    arguments = [torch.tensor(array) for array in (LABELS, frames, COUNTS)]
    values = torch.nn.functional.ctc_loss(scores.log_softmax(2), *arguments, **options)
    (values * torch.tensor(weight, dtype=torch.float64)).sum().backward()
    return values.detach().numpy(), scores.grad.numpy()


def ours(frames: np.ndarray, weight: Any, **attributes: Any) -> tuple[np.ndarray, np.ndarray]:
    shifted = SCORES - np.log(np.exp(SCORES).sum(2, keepdims=True))
    op, inputs = operator(**attributes), [shifted, LABELS, frames, COUNTS]
    outputs = op.run(inputs)
    gradient = op.run_backward([np.asarray(weight, np.float64)], inputs, outputs)[0]
    through = gradient - np.exp(shifted) * gradient.sum(2, keepdims=True)
    return outputs[0], through


@pytest.mark.long
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_values_and_gradients_are_pytorchs(reduction: str) -> None:
    weight = RNG.normal(size=N) if reduction == "none" else 0.7
    for got, want in zip(
        ours(FRAMES, weight, reduction=reduction), theirs(FRAMES, weight, reduction=reduction), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_what_cannot_be_said_is_infinite_or_nothing() -> None:
    values, gradient = ours(IMPOSSIBLE, np.ones(N), reduction="none")
    want, _ = theirs(IMPOSSIBLE, np.ones(N), reduction="none")
    np.testing.assert_allclose(values, want, rtol=1e-9)
    assert np.isposinf(values[0]) and np.isfinite(values[1:]).all() and not gradient[:, 0].any()
    options = {"reduction": "mean", "blank": 0}
    for got, expected in zip(
        ours(IMPOSSIBLE, 1.0, zero_infinity=1, **options),
        theirs(IMPOSSIBLE, 1.0, zero_infinity=True, **options),
        strict=True,
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_any_class_may_be_the_blank() -> None:
    global_blank = 4
    labels = np.array([[2, 2, 2], [1, 3, 4], [3, 4, 4], [4, 4, 4]])
    import torch

    log_p = torch.tensor(SCORES).log_softmax(2)
    arguments = [torch.tensor(array) for array in (labels, FRAMES, COUNTS)]
    want = torch.nn.functional.ctc_loss(log_p, *arguments, blank=global_blank)
    got = operator(blank=global_blank).run([log_p.numpy(), labels, FRAMES, COUNTS])[0]
    np.testing.assert_allclose(got, want, rtol=1e-9)


@pytest.mark.long
def test_bad_lengths_and_labels_are_refused() -> None:
    log_p = np.zeros((T, N, C))
    for frames, counts, labels, said in (
        (np.array([10, 7, 3, 4]), COUNTS, LABELS, "item 0: got input_length 10; expected 0 to 9"),
        (FRAMES, np.array([3, 4, 1, 0]), LABELS, "item 1: got label_length 4; expected 0 to 3"),
        (FRAMES, COUNTS, np.full((N, S), 5), "item 0: got label 5; expected 0 to 4"),
    ):
        with pytest.raises(d5.errors.Deep500Error, match=said):
            operator().run([log_p, labels, frames, counts])


@pytest.mark.parametrize("attributes", [{"reduction": "all"}, {"blank": 5}, {"blank": -1}])
def test_wrong_settings_are_refused_before_anything_is_built(attributes: dict[str, Any]) -> None:
    with pytest.raises(d5.errors.InputError, match="operator CTCLoss: got"):
        operator(**attributes)


@pytest.mark.long
def test_it_is_the_same_as_the_nodes_in_every_backend(backend) -> None:
    results = []
    for compiled in (True, False):
        net = Network("ctc")
        net.add_input("scores", ("N", T, C), "float64")
        net.add_parameter("bias", np.zeros((T, C)))
        net.add_node("Add", ["scores", "bias"], ["output"])
        net.add_output("output")
        executor = backend.from_model(add_loss(net, "ctc", compiled=compiled))
        feeds = {"scores": SCORES.swapaxes(0, 1), "label": LABELS, "input_length": FRAMES, "label_length": COUNTS}
        loss = executor.inference_and_backprop(feeds, "loss")["loss"]
        results.append((as_numpy(loss), as_numpy(executor.network.fetch_tensors(["bias.grad"])[0])))
    for got, want in zip(*results, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)
