"""Normalisation and losses."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F

from deep500.frameworks.pytorch.operators.table import op
from deep500.networks.attributes import BatchNorm
from deep500.networks.execution.chains import DOMAIN
from deep500.networks.execution.operator_table import positive

Tensor = torch.Tensor


_again = threading.local()  # backward passes may run in threads of the framework's own


@contextmanager
def running_again() -> Iterator[None]:
    """While values are computed again, running statistics stay as the first run left them."""
    before = getattr(_again, "on", False)
    _again.on = True
    try:
        yield
    finally:
        _again.on = before


def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    training: bool,
    momentum: float,
    epsilon: float,
) -> Tensor:
    """BatchNormalization that follows the executor's mode: while training it normalises with the batch's statistics and
    updates the running ones in place, the variance unbiased. ``momentum`` is the weight of the new, as in torch."""
    if training and getattr(_again, "on", False):
        mean, variance = mean.clone(), variance.clone()  # as many tensors as before, for torch counts what it saves
    return F.batch_norm(x, mean, variance, scale, bias, training, momentum, epsilon)


@op("BatchNormalization")
def batch_norm_onnx(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    settings: BatchNorm,
    outputs: tuple[bool, ...] = (True,),
) -> Any:
    """As ONNX defines it: ``training_mode=1`` returns new running statistics, of the biased variance."""
    epsilon, momentum, training_mode = settings
    if not training_mode:
        mixed = {scale.dtype, bias.dtype, mean.dtype, variance.dtype} != {x.dtype}
        if not mixed and not (mean.requires_grad or variance.requires_grad):  # what torch's kernel does not pass
            return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)
        shape = (1, -1, *[1] * (x.ndim - 2))
        factor = (scale / (variance + epsilon).sqrt()).reshape(shape)
        return ((x - mean.reshape(shape)) * factor + bias.reshape(shape)).to(x.dtype)
    y = F.batch_norm(x, None, None, scale, bias, True, 0.0, epsilon)
    if len(outputs) == 1:
        return y
    axes = (0, *range(2, x.ndim))
    with torch.no_grad():
        batch_variance, batch_mean = torch.var_mean(x, axes, correction=0)
        new_mean = (mean * momentum + batch_mean * (1 - momentum)).to(mean.dtype)
        new_variance = (variance * momentum + batch_variance * (1 - momentum)).to(variance.dtype)
    return (y, new_mean, new_variance)[: len(outputs)]


@op("InstanceNormalization")
def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    return F.instance_norm(x, None, None, scale, bias, True, 0.0, epsilon)


@op("GroupNormalization")
def group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    return F.group_norm(x, num_groups, scale, bias, epsilon)


@op("LayerNormalization")
def layer_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: tuple[bool, ...] = (True,),
) -> Any:
    axis = positive(axis, x.ndim)
    shape = x.shape[axis:]
    if scale.shape == shape and (bias is None or bias.shape == shape):
        y = F.layer_norm(x, shape, scale, bias, epsilon)
    else:
        y = F.layer_norm(x, shape, None, None, epsilon) * scale
        y = y if bias is None else y + bias
    if len(outputs) == 1:
        return y
    work = x if x.dtype == torch.float64 else x.float()
    variance, mean = torch.var_mean(work, tuple(range(axis, x.ndim)), correction=0, keepdim=True)
    return (y, mean, (variance + epsilon).rsqrt())[: len(outputs)]


@op("LayerNormalizationGradient", domain=DOMAIN)
def layer_norm_gradient(
    dy: Tensor, x: Tensor, scale: Tensor, *, axis: int, epsilon: float, outputs: tuple[bool, ...] = (True,)
) -> Any:
    """A gradient that a rule wrote as nodes, recognised: of x, and of the scale if it is read."""
    shape, asked = x.shape[axis:], [True, len(outputs) > 1, False]
    _, mean, inverse = torch.native_layer_norm(x, shape, None, None, epsilon)
    results = torch.ops.aten.native_layer_norm_backward(dy, x, shape, mean, inverse, scale, None, asked)
    return results[:2] if len(outputs) > 1 else results[0]


@op("RMSNormalization")
def rms_norm(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    if scale.shape == x.shape[positive(axis, x.ndim) :] and scale.dtype == x.dtype and x.dtype.itemsize >= 4:
        return F.rms_norm(x, scale.shape, scale, epsilon)
    axes = tuple(range(positive(axis, x.ndim), x.ndim))
    work = x if x.dtype == torch.float64 else x.float()
    return (work * (work.square().mean(axes, keepdim=True) + epsilon).rsqrt()).to(x.dtype) * scale


@op("LpNormalization")
def lp_norm(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    norm = torch.linalg.vector_norm(x, p, axis, keepdim=True)
    return x / torch.where(norm == 0, 1, norm)


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    outputs: tuple[bool, ...] = (True,),
) -> Any:
    ignored = -100 if ignore_index is None else ignore_index
    labels = labels.long()
    if len(outputs) == 1:
        return F.cross_entropy(scores, labels, weights, reduction=reduction, ignore_index=ignored)
    logs = torch.log_softmax(scores, 1)
    return F.nll_loss(logs, labels, weights, reduction=reduction, ignore_index=ignored), logs


@op("NegativeLogLikelihoodLoss")
def nll_loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    ignored = -100 if ignore_index is None else ignore_index
    return F.nll_loss(scores, labels.long(), weights, reduction=reduction, ignore_index=ignored)
