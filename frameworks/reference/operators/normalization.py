"""Normalizations and losses."""

from __future__ import annotations

from typing import Any

import numpy as np

from deep500.errors import InputError
from deep500.frameworks.reference.operators.elementwise import log_softmax
from deep500.frameworks.reference.operators.table import average, op
from deep500.networks.attributes import BatchNorm

Array = np.ndarray


def _wide(x: Array) -> Array:
    """Narrow floats are normalised in float32, as ONNX's stash_type says."""
    return x if x.dtype.itemsize >= 4 else x.astype(np.float32)


@op("BatchNormalization")
def batch_normalization(
    x: Array, scale: Array, bias: Array, mean: Array, variance: Array, *, settings: BatchNorm, outputs: int = 1
) -> Any:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias for each channel (Ioffe & Szegedy 2015, arXiv 1502.03167).

    With ``training_mode`` mean and (biased) variance are the batch's, and the running ones become
    momentum * old + (1 - momentum) * batch.
    """
    epsilon, momentum, training_mode = settings
    axes = (0, *range(2, x.ndim))
    sizes = (1, -1) + (1,) * (x.ndim - 2)
    wide = _wide(x)
    state: tuple[Array, ...] = ()
    if training_mode:
        old_mean, old_variance = mean, variance
        mean = average(wide, axes)
        centred = wide - mean.reshape(sizes)
        variance = average(np.square(centred), axes)
        state = (
            (old_mean * momentum + mean * (1 - momentum)).astype(old_mean.dtype),
            (old_variance * momentum + variance * (1 - momentum)).astype(old_variance.dtype),
        )
    else:
        centred = wide - mean.reshape(sizes).astype(wide.dtype, copy=False)
    factor = scale / np.sqrt(variance + wide.dtype.type(epsilon))
    centred *= factor.reshape(sizes).astype(wide.dtype, copy=False)
    centred += bias.reshape(sizes).astype(wide.dtype, copy=False)
    return (centred.astype(x.dtype, copy=False), *state)[:outputs]


@op("LayerNormalization")
def layer_normalization(
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> Any:
    """Zero mean and unit variance over the axes from ``axis`` on (Ba et al. 2016, arXiv 1607.06450)."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = _wide(x)
    mean = average(wide, axes, keepdims=True)
    centred = wide - mean
    inverse = 1 / np.sqrt(average(np.square(centred), axes, keepdims=True) + wide.dtype.type(epsilon))
    y = (centred * inverse).astype(x.dtype, copy=False) * scale
    return (y if bias is None else y + bias, mean, inverse)[:outputs]


@op("InstanceNormalization")
def instance_normalization(x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5) -> Array:
    """Zero mean and unit variance over the spatial axes of each sample and channel, then scale and bias."""
    axes, sizes = tuple(range(2, x.ndim)), (-1,) + (1,) * (x.ndim - 2)
    centred = x - average(x, axes, keepdims=True)
    deviation = np.sqrt(average(np.square(centred), axes, keepdims=True) + x.dtype.type(epsilon))
    return centred / deviation * scale.reshape(sizes) + bias.reshape(sizes)


@op("LpNormalization")
def lp_normalization(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    """x divided by its p-norm along an axis; where that is 0, so is the result."""
    norm = np.abs(x).sum(axis, keepdims=True) if p == 1 else np.sqrt(np.square(x).sum(axis, keepdims=True))
    return np.divide(x, norm, out=np.zeros_like(x), where=norm != 0)


@op("LRN")
def local_response_normalization(
    x: Array, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Array:
    """x / (bias + alpha / size * sum of squares of neighbouring channels)^beta (Krizhevsky et al. 2012)."""
    before = (size - 1) // 2
    squares = np.zeros((x.shape[0], x.shape[1] + size, *x.shape[2:]), x.dtype)
    squares[:, before + 1 : before + 1 + x.shape[1]] = np.square(x)
    running = squares.cumsum(1, dtype=np.float64)
    total = (running[:, size:] - running[:, :-size]).astype(x.dtype)
    return x / (x.dtype.type(bias) + x.dtype.type(alpha / size) * total) ** x.dtype.type(beta)


# -- losses -----------------------------------------------------------------------------------------------------------
def _check_labels(labels: Array, classes: int, ignored: Array | bool) -> None:
    wrong = ((labels < 0) | (labels >= classes)) & ~np.asarray(ignored)
    if wrong.any():
        raise InputError(
            f"got class label {labels[wrong].flat[0]}; expected 0 to {classes - 1}: check the labels, or build the "
            "network with more classes"
        )


@op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(
    x: Array, labels: Array, weight: Array | None = None, *, reduction: str = "mean", ignore_index: int | None = None
) -> Array:
    """-weight[label] * x[label] over [N, C, ...]; ``"mean"`` divides by the sum of the weights, not by the count."""
    ignored = np.zeros(labels.shape, bool) if ignore_index is None else labels == ignore_index
    _check_labels(labels, x.shape[1], ignored)
    safe = np.where(ignored, 0, labels)
    picked = np.take_along_axis(x, safe[:, None], 1)[:, 0]
    weights = np.ones(labels.shape, x.dtype) if weight is None else weight[safe]
    weights = np.where(ignored, x.dtype.type(0), weights)
    losses = -picked * weights
    if reduction == "none":
        return losses
    total = losses.sum(dtype=x.dtype)
    return total if reduction == "sum" else total / weights.sum(dtype=x.dtype)


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    x: Array,
    labels: Array,
    weight: Array | None = None,
    *,
    reduction: str = "mean",
    ignore_index: int | None = None,
    outputs: int = 1,
) -> Any:
    """Negative log likelihood of log softmax over axis 1; the second output is that log softmax."""
    log = log_softmax(x, axis=1)
    loss = negative_log_likelihood(log, labels, weight, reduction=reduction, ignore_index=ignore_index)
    return (loss, log)[:outputs]
