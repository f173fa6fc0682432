"""Normalisation and losses."""

from __future__ import annotations

import math
from typing import Any

from deep500.frameworks.tensorflow.operators.reductions import root
from deep500.frameworks.tensorflow.operators.table import number, op, product, rank, sizes
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.attributes import BatchNorm
from deep500.networks.execution.operator_table import positive

Tensor = Any


@op("BatchNormalization", layout="last")
def batch_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    settings: BatchNorm,
    outputs: tuple[bool, ...],
    context: Any,
) -> Any:
    """Running statistics that are parameters follow the executor's mode: while training, the batch's statistics
    normalise and the running ones are updated, the variance unbiased. ``training_mode=1`` means what ONNX says."""
    epsilon, momentum, training_mode = settings
    owned = context.variable(3), context.variable(4)
    if training_mode:
        return _by_the_letter(x, scale, bias, mean, variance, epsilon, momentum, outputs)
    if not context.training or any(v is None for v in owned):
        return _affine(x, scale, bias, mean, variance, epsilon)
    if _fits_fused(x, scale, mean):
        y, new_mean, new_variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x if rank(x) == 4 else _as_image(x),
            scale=scale,
            offset=bias,
            mean=mean,
            variance=variance,
            epsilon=epsilon,
            exponential_avg_factor=1 - momentum,
            is_training=True,
        )
        y = y if rank(x) == 4 else tf.reshape(y, sizes(x))
    else:
        y, batch_mean, batch_variance = _normalised(x, scale, bias, epsilon)
        count = tf.cast(product(sizes(x)[:-1]), batch_variance.dtype)
        unbiased = batch_variance * (count / tf.maximum(count - 1, number(1, count)))
        new_mean, new_variance = (
            old * number(momentum, old) + tf.cast(new, old.dtype) * number(1 - momentum, old)
            for old, new in ((mean, batch_mean), (variance, unbiased))
        )
    context.assign(3, new_mean)
    context.assign(4, new_variance)
    return y


def _fits_fused(x: Tensor, scale: Tensor, mean: Tensor) -> bool:
    """Whether TensorFlow's fused kernel takes it: float32 statistics."""
    return x.dtype in (tf.float32, tf.float16, tf.bfloat16) and scale.dtype == mean.dtype == tf.float32


def _as_image(x: Tensor) -> Tensor:
    n = sizes(x)
    return tf.reshape(x, [n[0], 1, product(n[1:-1]), n[-1]])


def _affine(x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, epsilon: float) -> Tensor:
    if _fits_fused(x, scale, mean) and rank(x) == 4 and variance.dtype == tf.float32:
        return tf.raw_ops.FusedBatchNormV3(
            x=x, scale=scale, offset=bias, mean=mean, variance=variance, epsilon=epsilon, is_training=False
        ).y
    wide = x.dtype if x.dtype == tf.float64 else tf.float32
    x, dtype = tf.cast(x, wide), x.dtype
    scale, bias, mean, variance = (tf.cast(t, wide) for t in (scale, bias, mean, variance))
    factor = scale * tf.math.rsqrt(variance + tf.constant(epsilon, wide))
    return tf.cast((x - mean) * factor + bias, dtype)


def _normalised(x: Tensor, scale: Tensor, bias: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """The output and the batch's mean and biased variance."""
    wide = tf.cast(x, x.dtype if x.dtype == tf.float64 else tf.float32)
    axes = list(range(rank(x) - 1))
    mean = tf.reduce_mean(wide, axes)
    centred = wide - mean
    variance = tf.reduce_mean(tf.square(centred), axes)
    factor = tf.cast(scale, wide.dtype) * tf.math.rsqrt(variance + number(epsilon, wide))
    return tf.cast(centred * factor + tf.cast(bias, wide.dtype), x.dtype), mean, variance


def _by_the_letter(
    x: Tensor,
    scale: Tensor,
    bias: Tensor,
    mean: Tensor,
    variance: Tensor,
    epsilon: float,
    momentum: float,
    outputs: tuple[bool, ...],
) -> Any:
    y, batch_mean, batch_variance = _normalised(x, scale, bias, epsilon)
    running = [
        old * number(momentum, old) + tf.cast(new, old.dtype) * number(1 - momentum, old)
        for old, new in ((mean, batch_mean), (variance, batch_variance))
    ]
    return y if len(outputs) == 1 else (y, *running)[: len(outputs)]


def _wide(x: Tensor) -> Tensor:
    return x if x.dtype == tf.float64 else tf.cast(x, tf.float32)


def _standard(x: Tensor, axes: list[int], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Zero mean and unit variance over axes; also the mean and the inverse deviation."""
    mean = tf.reduce_mean(x, axes, keepdims=True)
    centred = x - mean
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(centred), axes, keepdims=True) + number(epsilon, x))
    return centred * inverse, mean, inverse


@op("InstanceNormalization", layout="last")
def instance_norm(x: Tensor, scale: Tensor, bias: Tensor, *, epsilon: float = 1e-5) -> Tensor:
    y, _, _ = _standard(_wide(x), list(range(1, rank(x) - 1)), epsilon)
    return tf.cast(y, x.dtype) * scale + bias


@op("GroupNormalization")
def group_norm(
    x: Tensor, scale: Tensor, bias: Tensor, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Tensor:
    n = sizes(x)
    groups = tf.reshape(_wide(x), [n[0], num_groups, -1])
    y = tf.cast(tf.reshape(_standard(groups, [2], epsilon)[0], n), x.dtype)
    shape = [-1, *[1] * (len(n) - 2)]
    return y * tf.reshape(scale, shape) + tf.reshape(bias, shape)


@op("LayerNormalization")
def layer_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: tuple[bool, ...],
) -> Any:
    y, mean, inverse = _standard(_wide(x), list(range(positive(axis, rank(x)), rank(x))), epsilon)
    y = tf.cast(y, x.dtype) * scale
    y = y if bias is None else y + bias
    return y if len(outputs) == 1 else (y, mean, inverse)[: len(outputs)]


@op("RMSNormalization")
def rms_norm(x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Tensor:
    axes, work = list(range(positive(axis, rank(x)), rank(x))), _wide(x)
    inverse = tf.math.rsqrt(tf.reduce_mean(tf.square(work), axes, keepdims=True) + number(epsilon, work))
    return tf.cast(work * inverse, x.dtype) * scale


@op("LpNormalization")
def lp_norm(x: Tensor, *, axis: int = -1, p: int = 2) -> Tensor:
    size = tf.abs(x) if p == 1 else tf.square(x)
    norm = tf.reduce_sum(size, axis, keepdims=True)
    norm = norm if p == 1 else root(norm, 2)
    return x / tf.where(tf.equal(norm, 0), tf.ones_like(norm), norm)


@op("MeanVarianceNormalization")
def mean_variance_norm(x: Tensor, *, axes: Any = (0, 2, 3)) -> Tensor:
    axes = list(axes)
    mean = tf.reduce_mean(x, axes, keepdims=True)
    variance = tf.reduce_mean(tf.square(x), axes, keepdims=True) - tf.square(mean)
    return (x - mean) / (tf.sqrt(variance) + number(1e-9, x))


@op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
    outputs: tuple[bool, ...],
) -> Any:
    if len(outputs) == 1 and weights is None and ignore_index is None and rank(scores) == 2:
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
        return losses if reduction == "none" else REDUCE[reduction](losses)
    logs = tf.nn.log_softmax(scores, 1)
    loss = nll_loss(logs, labels, weights, ignore_index=ignore_index, reduction=reduction)
    return loss if len(outputs) == 1 else (loss, logs)


REDUCE = {"mean": tf.reduce_mean, "sum": tf.reduce_sum}


@op("NegativeLogLikelihoodLoss")
def nll_loss(
    scores: Tensor,
    labels: Tensor,
    weights: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``"mean"`` divides by the sum of the weights."""
    r = rank(scores)
    ignored = tf.zeros_like(labels, tf.bool) if ignore_index is None else labels == number(ignore_index, labels)
    safe = tf.where(ignored, tf.zeros_like(labels), labels)
    last = tf.transpose(scores, [0, *range(2, r), 1])
    picked = tf.gather(last, safe, batch_dims=r - 1)
    factor = tf.ones_like(picked) if weights is None else tf.gather(weights, safe)
    factor = tf.where(ignored, tf.zeros_like(factor), factor)
    losses = -picked * factor
    if reduction == "none":
        return losses
    total = tf.reduce_sum(losses)
    if reduction == "sum":
        return total
    counted = tf.reduce_sum(factor)
    nothing = tf.equal(counted, 0)  # 0 / 0, whose gradient is 0, as in PyTorch
    return tf.where(nothing, number(math.nan, total), total / tf.where(nothing, tf.ones_like(counted), counted))
