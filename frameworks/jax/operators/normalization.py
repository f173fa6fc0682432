"""Normalisation and losses."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.operators.reductions import root
from deep500.frameworks.jax.operators.table import Array, op
from deep500.networks.attributes import BatchNorm
from deep500.networks.execution.operator_table import positive


def _per_channel(x: Array, rank: int) -> Array:
    return x.reshape((1, -1) + (1,) * (rank - 2))


def _normalised(x: Array, mean: Array, variance: Array, scale: Array, bias: Array, epsilon: float) -> Array:
    factor = scale * jax.lax.rsqrt(variance + epsilon)
    shift = bias - mean * factor
    return (x * _per_channel(factor, x.ndim) + _per_channel(shift, x.ndim)).astype(x.dtype)


@op("BatchNormalization")
def batch_norm(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    variance: Array,
    *,
    settings: BatchNorm,
    outputs: tuple[bool, ...] = (True,),
    context: Any,
) -> Any:
    """Running statistics follow the mode, the variance unbiased; ``training_mode=1`` keeps ONNX's biased one."""
    epsilon, momentum, training_mode = settings
    owned = all(name in context.statistics for name in context.node.inputs[3:5])
    follows = context.training and context.follows and not training_mode and owned
    if not follows and not training_mode:
        return _normalised(x, mean, variance, scale, bias, epsilon)
    axes = (0, *range(2, x.ndim))
    batch_mean = x.mean(axes)
    centre = _per_channel(batch_mean, x.ndim)
    biased = ((x - centre) ** 2).mean(axes)
    factor = scale * jax.lax.rsqrt(biased + epsilon)
    # What is centred is written twice: XLA then computes it once, instead of anew in all that reads it.
    y = ((x - centre) * _per_channel(factor, x.ndim) + _per_channel(bias, x.ndim)).astype(x.dtype)
    if follows:
        count = x.size // x.shape[1]
        _remember(context, batch_mean, biased * (count / max(count - 1, 1)), momentum)
        return y
    running = (old * momentum + new * (1 - momentum) for old, new in ((mean, batch_mean), (variance, biased)))
    return (y, *(new.astype(mean.dtype) for new in running)) if len(outputs) > 1 else y


def _remember(context: Any, mean: Array, variance: Array, momentum: float) -> None:
    """Enter new running statistics; those that several nodes share are updated by one after the other."""
    for name, new in zip(context.node.inputs[3:5], (mean, variance), strict=True):
        if name in context.state:
            old = context.updates.get(name, context.state[name])
            share = jax.lax.stop_gradient(new) * (1 - momentum)
            context.updates[name] = (old * momentum + share).astype(old.dtype)


@op("InstanceNormalization")
def instance_norm(x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5) -> Array:
    y, _, _ = _standardised(x, tuple(range(2, x.ndim)), epsilon)
    return y * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)


def _standardised(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """Centred and scaled over some axes; also the mean and the inverse deviation. In float32 at least."""
    work = x if x.dtype == np.float64 else x.astype(np.float32)
    mean = work.mean(axes, keepdims=True)
    centred = work - mean
    inverse = jax.lax.rsqrt((centred * centred).mean(axes, keepdims=True) + epsilon)
    return (centred * inverse).astype(x.dtype), mean, inverse


@op("GroupNormalization")
def group_norm(
    x: Array, scale: Array, bias: Array, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Array:
    grouped = x.reshape(x.shape[0], num_groups, -1)
    y = _standardised(grouped, (2,), epsilon)[0].reshape(x.shape)
    return y * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim)


@op("LayerNormalization")
def layer_norm(
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: tuple[bool, ...] = (True,),
) -> Any:
    y, mean, inverse = _standardised(x, tuple(range(positive(axis, x.ndim), x.ndim)), epsilon)
    y = y * scale if bias is None else y * scale + bias
    return y if len(outputs) == 1 else (y, mean, inverse)[: len(outputs)]


@op("RMSNormalization")
def rms_norm(x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Array:
    axes = tuple(range(positive(axis, x.ndim), x.ndim))
    work = x if x.dtype == np.float64 else x.astype(np.float32)
    return (work * jax.lax.rsqrt((work * work).mean(axes, keepdims=True) + epsilon)).astype(x.dtype) * scale


@op("LpNormalization")
def lp_norm(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    norm = jnp.abs(x).sum(axis, keepdims=True) if p == 1 else root((x * x).sum(axis, keepdims=True), 2)
    return x / jnp.where(norm == 0, 1, norm)


# -- losses -----------------------------------------------------------------------------------------------------------
def _pick(logs: Array, labels: Array, weights: Array | None, ignored: int | None, reduction: str) -> Array:
    """Minus the log probability of each label; one that does not exist gives NaN."""
    labels = labels.astype(np.int64)
    seen = jnp.ones(labels.shape, bool) if ignored is None else labels != ignored
    safe = jnp.where(seen, labels, 0)
    safe = jnp.where(safe < 0, logs.shape[1], safe)  # not counted from the back
    picked = -jnp.take_along_axis(logs, safe[:, None], 1, mode="fill")[:, 0]
    weight = jnp.ones((), logs.dtype) if weights is None else jnp.take(weights, safe, mode="fill", fill_value=np.nan)
    loss = jnp.where(seen, picked * weight, 0)
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    if weights is None and ignored is None:
        return loss.sum() / math.prod(labels.shape)
    return loss.sum() / jnp.where(seen, weight, 0).sum()


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    outputs: tuple[bool, ...] = (True,),
) -> Any:
    logs = jax.nn.log_softmax(scores, 1)
    loss = _pick(logs, labels, weights, ignore_index, reduction)
    return loss if len(outputs) == 1 else (loss, logs)


@op("NegativeLogLikelihoodLoss")
def nll_loss(
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Array:
    return _pick(scores, labels, weights, ignore_index, reduction)
