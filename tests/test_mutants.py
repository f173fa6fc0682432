"""Faults planted in the PyTorch backend: the gate must catch each one and name what differs first.

A fault is planted where the backend does the thing: in its table of operators, in its optimizer's update, around its
executor. The judge, the NumPy reference, stays as it is, and an unbroken backend must raise no alarm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from deep500.compare.gate import check_equivalence
from tests.compare.networks import RATE, batches, candidate, probe

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402

from deep500.frameworks import pytorch  # noqa: E402
from deep500.frameworks.pytorch.operators import normalization, table  # noqa: E402

pytestmark = pytest.mark.backend("reference", "pytorch")
Patch = pytest.MonkeyPatch


def kernel(operator: str) -> Callable[[Callable[..., Any]], Callable[[Patch], None]]:
    """Plant ``fault(right, *inputs, **attributes)`` for an operator, whose special lowering is taken out of the way."""

    def plant_for(fault: Callable[..., Any]) -> Callable[[Patch], None]:
        def plant(patch: Patch) -> None:
            entry = table.OPS["", operator]

            def wrong(*inputs: Any, **attributes: Any) -> Any:
                return fault(entry.function, *inputs, **attributes)

            patch.setitem(table.OPS, ("", operator), dataclasses.replace(entry, function=wrong, lowering=None))

        return plant

    return plant_for


def replaced(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[[Patch], None]]:
    """Plant ``fault(right, *args)`` in place of a function or method."""

    def plant_for(fault: Callable[..., Any]) -> Callable[[Patch], None]:
        def plant(patch: Patch) -> None:
            right = getattr(owner, name)

            def wrong(*args: Any, **kwargs: Any) -> Any:
                return fault(right, *args, **kwargs)

            patch.setattr(owner, name, wrong)

        return plant

    return plant_for


class Scaled(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a factor."""

    @staticmethod
    def forward(context, x, factor):
        context.factor = factor
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient * context.factor, None


# -- operators ---------------------------------------------------------------------------------------------------------
def _batch_norm(change: Callable[[dict[str, Any]], None]) -> Callable[[Patch], None]:
    names = ("x", "scale", "bias", "mean", "variance", "training", "momentum", "epsilon")

    @replaced(normalization, "batch_norm")
    def fault(right, *args):
        call = dict(zip(names, args, strict=True))
        change(call)
        return right(**call)

    return fault


@replaced(normalization, "batch_norm")
def biased_variance(right, x, scale, bias, mean, variance, training, momentum, epsilon):
    before = variance.clone()
    y = right(x, scale, bias, mean, variance, training, momentum, epsilon)
    if training:
        count = x.numel() // x.shape[1]
        kept = (1 - momentum) * before
        variance.data.copy_(kept + (variance.detach() - kept) * (count - 1) / count)
    return y


@kernel("Conv")
def padded_at_the_other_side(right, x, w, b=None, *, settings):
    pads, half = settings.pads, len(settings.pads) // 2
    return right(x, w, b, settings=settings._replace(pads=[*pads[half:], *pads[:half]]))


@kernel("Conv")
def swapped_channels(right, x, w, b=None, **rest):
    return right(x.flip(1), w, b, **rest)


@kernel("Conv")
def kernel_turned(right, x, w, b=None, **rest):
    return right(x, w.flip(2, 3), b, **rest)


@kernel("AveragePool")
def padding_counted(right, x, *, settings):
    return right(x, settings=settings._replace(count_include_pad=1))


@kernel("Softmax")
def wrong_axis(right, x, *, axis=-1):
    return right(x, axis=0)


@kernel("Relu")
def leaky(right, x):
    return torch.where(x > 0, x, 0.01 * x)


@kernel("Gemm")
def in_single_precision(right, a, b, c=None, **rest):
    return right(a.float(), b.float(), None if c is None else c.float(), **rest).to(a.dtype)


@kernel("Gemm")
def without_bias(right, a, b, c=None, **rest):
    return right(a, b, None, **rest)


@kernel("Gemm")
def bias_without_gradient(right, a, b, c=None, **rest):
    return right(a, b, c.detach(), **rest)


@kernel("SoftmaxCrossEntropyLoss")
def shifted_labels(right, scores, labels, weights=None, **rest):
    return right(scores, labels.roll(1), weights, **rest)


@kernel("SoftmaxCrossEntropyLoss")
def summed_loss(right, scores, labels, weights=None, **rest):
    return right(scores, labels, weights, **{**rest, "reduction": "sum"})


@kernel("SoftmaxCrossEntropyLoss")
def summed_gradient(right, scores, labels, weights=None, **rest):
    return Scaled.apply(right(scores, labels, weights, **rest), float(len(labels)))


# -- dropout -----------------------------------------------------------------------------------------------------------
@replaced(F, "dropout")
def unscaled_dropout(right, x, p=0.5, training=True, inplace=False):
    return right(x, p, training) * ((1 - p) if training else 1)


@replaced(F, "dropout")
def dropout_of_what_is_kept(right, x, p=0.5, training=True, inplace=False):
    return right(x, 1 - p, training) * p / (1 - p) if training else x


@replaced(F, "dropout")
def dropout_in_evaluation(right, x, p=0.5, training=True, inplace=False):
    return right(x, p, True)


# -- optimizers --------------------------------------------------------------------------------------------------------
OPTIMIZER = pytorch.MomentumOptimizer


def _hyperparameters(**changes: Callable[[dict[str, Any]], Any]) -> Callable[[Patch], None]:
    @replaced(OPTIMIZER, "get_parameters")
    def fault(right, self):
        values = right(self)
        return {**values, **{name: change(values) for name, change in changes.items()}}

    return fault


@replaced(OPTIMIZER, "update")
def negative_decay(right, self):
    with torch.no_grad():
        for parameter in self._parameters.values():
            parameter.grad -= 2 * self.weight_decay * parameter
    right(self)


@replaced(OPTIMIZER, "update")
def forgotten_parameter(right, self):
    *_, last = self._parameters.values()
    last.grad.zero_()
    kept = last.detach().clone()
    right(self)
    with torch.no_grad():
        last.copy_(kept)


@replaced(OPTIMIZER, "update")
def accumulated_gradients(right, self):
    with torch.no_grad():
        old = self.__dict__.setdefault("accumulated", [torch.zeros_like(p) for p in self._parameters.values()])
        for parameter, total in zip(self._parameters.values(), old, strict=True):
            parameter.grad = total.add_(parameter.grad).clone()
    right(self)


# -- executors ---------------------------------------------------------------------------------------------------------
@replaced(pytorch.Executor, "inference")
def stale_batch(right, self, inputs, outputs=None):
    previous = self.__dict__.setdefault("previous", inputs)
    self.__dict__["previous"] = inputs
    return right(self, previous, outputs)


@replaced(pytorch.Executor, "__init__")
def rounded_weights(right, self, network, *args, **kwargs):
    network = network.copy()
    value = network.parameters["fc1.weight"].value if "fc1.weight" in network.parameters else None
    if value is not None:
        network.set_parameter("fc1.weight", value.astype("float16").astype(value.dtype))
    right(self, network, *args, **kwargs)


MOMENTUM = "the step before agreed"
# fmt: off
MUTANTS = {  # what is wrong: (how it is planted, which check catches it, what it names)
    "batch norm epsilon 1e-3": (_batch_norm(lambda c: c.update(epsilon=1e-3)), "evaluation forward", "'bn'"),
    "batch norm momentum turned round": (
        _batch_norm(lambda c: c.update(momentum=1 - c["momentum"])), "running statistics", "'bn.mean'"),
    "batch norm keeps its old statistics": (
        _batch_norm(lambda c: c.update(mean=c["mean"].clone(), variance=c["variance"].clone())),
        "running statistics", "'bn.mean'"),
    "batch norm by running statistics in training": (
        _batch_norm(lambda c: c.update(training=False)), "training forward", "'bn'"),
    "biased running variance": (biased_variance, "running statistics", "'bn.var'"),
    "padding at the other side": (padded_at_the_other_side, "evaluation forward", "'conv'"),
    "channels swapped": (swapped_channels, "evaluation forward", "'conv'"),
    "convolution instead of correlation": (kernel_turned, "evaluation forward", "'conv'"),
    "padding counted by average pooling": (padding_counted, "evaluation forward", "'pool'"),
    "softmax over the wrong axis": (wrong_axis, "evaluation forward", "'attention'"),
    "leaky ReLU": (leaky, "evaluation forward", "'relu'"),
    "single precision within double": (in_single_precision, "evaluation forward", "'fc1'"),
    "no bias": (without_bias, "evaluation forward", "'fc1'"),
    "no gradient of the bias": (bias_without_gradient, "gradients", "by node 'fc2' (Gemm), by 1.0e+00 (it is zero)"),
    "labels shifted": (shifted_labels, "evaluation forward", "'loss'"),
    "loss summed": (summed_loss, "evaluation forward", "'loss'"),
    "gradient summed instead of averaged": (summed_gradient, "gradients", "(it is 8 times the judge's)"),
    "dropout without scale": (unscaled_dropout, "dropout", "scale of the kept values"),
    "dropout of what should be kept": (dropout_of_what_is_kept, "dropout", "share of kept values"),
    "dropout in evaluation": (dropout_in_evaluation, "evaluation forward", "'dropped'"),
    "dampened momentum": (_hyperparameters(dampening=lambda v: v["momentum"]), "optimizer", MOMENTUM),
    "no momentum": (_hyperparameters(momentum=lambda v: 0.0), "optimizer", MOMENTUM),
    "Nesterov's momentum": (_hyperparameters(nesterov=lambda v: True), "optimizer", "after step 1"),
    "no weight decay": (_hyperparameters(weight_decay=lambda v: 0.0), "optimizer", "after step 1"),
    "weight decay of the wrong sign": (negative_decay, "optimizer", "after step 1"),
    "rate off by one percent": (_hyperparameters(lr=lambda v: 1.01 * v["lr"]), "optimizer", "after step 1"),
    "gradients accumulate": (accumulated_gradients, "optimizer", MOMENTUM),
    "a parameter is forgotten": (forgotten_parameter, "optimizer", "after step 1"),
    "stale batch": (stale_batch, "evaluation forward", "a state is kept"),
    "weights through half precision": (rounded_weights, "weights", "'fc1.weight'"),
}
# fmt: on


@pytest.fixture(scope="module", params=[False, True], ids=["deterministic", "dropout"])
def network(request):
    return probe(request.param)


def test_no_false_alarm(network):
    """Without this, everything below could be an alarm that always rings."""
    result = check_equivalence(network, batches(), [candidate("reference"), candidate("pytorch")])
    assert result, [str(check) for check in result.checks if not check.passed]


@pytest.mark.parametrize("name", MUTANTS)
def test_caught_and_named(name, monkeypatch):
    plant, check, words = MUTANTS[name]
    plant(monkeypatch)
    pair = [candidate("reference"), candidate("pytorch")]
    result = check_equivalence(probe(dropout="dropout" in name), batches(), pair)
    alarm = result.first("pytorch")
    assert alarm is not None, f"{name}: not caught"
    assert alarm.name == check and words in alarm.where, f"{name}: got {alarm}"
    assert result.first("reference") is None, "the judge is unbroken"
    assert alarm is result.checks[-1] or result.checks[-1].framework == "reference", "it stops at the first"


def test_there_are_enough_mutants():
    assert len(MUTANTS) >= 12 and 0 < RATE < 1
