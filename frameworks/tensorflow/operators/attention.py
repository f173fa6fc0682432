"""ONNX's Attention, written after its definition: grouped heads, masks, windows, caches."""

from __future__ import annotations

import math
from typing import Any

from deep500.frameworks.tensorflow.operators.elementwise import softmax
from deep500.frameworks.tensorflow.operators.reductions import matmul
from deep500.frameworks.tensorflow.operators.table import number, op, sizes, static_sizes
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.attributes import Attending
from deep500.networks.execution.attention_mask import hidden_places
from deep500.networks.execution.operator_table import optional

Tensor = Any


def _heads(x: Tensor, heads: int) -> Tensor:
    """``[N, length, heads * size]`` as ``[N, heads, length, size]``."""
    n = sizes(x)
    return tf.transpose(tf.reshape(x, [n[0], n[1], heads, n[2] // heads]), [0, 2, 1, 3])


@op("Attention")
def attention(
    q: Tensor, k: Tensor, v: Tensor, *operands: Tensor | None, settings: Attending, outputs: tuple[bool, ...]
) -> Any:
    """Scaled dot-product attention on ``[N, heads, length, size]``, or ``[N, length, heads * size]`` with head counts.

    A query that may look at nothing yields 0.
    """
    mask, past_key, past_value, lengths = optional(operands, 4)
    flat = q.shape.rank == 3
    if flat:
        q, k, v = _heads(q, settings.q_num_heads), _heads(k, settings.kv_num_heads), _heads(v, settings.kv_num_heads)
    past: Any = tf.zeros([], tf.int64)
    if past_key is not None and past_value is not None:
        past = tf.cast(sizes(past_key)[2], tf.int64)
        k, v = tf.concat([past_key, k], 2), tf.concat([past_value, v], 2)
    elif lengths is not None:
        past = tf.reshape(tf.cast(lengths, tf.int64) - tf.cast(sizes(q)[2], tf.int64), [-1, 1, 1, 1])
    present = (k, v)
    groups = static_sizes(q, 1)[0] // static_sizes(k, 1)[0]
    if groups > 1:
        k, v = tf.repeat(k, groups, 1), tf.repeat(v, groups, 1)
    here, there = tf.range(tf.cast(sizes(q)[2], tf.int64))[:, None] + past, tf.range(tf.cast(sizes(k)[2], tf.int64))
    valid = None if lengths is None else tf.reshape(tf.cast(lengths, tf.int64), [-1, 1, 1, 1])
    hidden = hidden_places(here, there, valid, settings)
    weights, stages = _weights(q, k, _bias(q, k, mask, hidden), settings)
    y = matmul(weights, v)
    if flat:
        y = tf.transpose(y, [0, 2, 1, 3])
        n = sizes(y)
        y = tf.reshape(y, [n[0], n[1], n[2] * n[3]])
    return y if len(outputs) == 1 else (y, *present, stages[settings.qk_matmul_output_mode])[: len(outputs)]


def _addend(hidden: Tensor, like: Tensor) -> Tensor:
    return tf.where(hidden, number(-math.inf, like), number(0, like))


def _bias(q: Tensor, k: Tensor, mask: Tensor | None, hidden: Tensor | None) -> Tensor | None:
    """Mask and hidden places as an addend; a mask shorter than the keys hides the rest."""
    bias = mask
    if mask is not None and mask.dtype == tf.bool:
        bias = _addend(tf.logical_not(mask), q)
    if bias is not None:
        more = sizes(k)[2] - sizes(bias)[-1]
        if isinstance(more, tf.Tensor) or more > 0:
            border = [(0, 0)] * (bias.shape.rank - 1) + [(0, more)]
            bias = tf.pad(bias, border, constant_values=number(-math.inf, bias))
    if hidden is not None:
        unseen = _addend(hidden, q)
        bias = unseen if bias is None else bias + unseen
    return bias


def _weights(q: Tensor, k: Tensor, bias: Any, settings: Attending) -> tuple[Tensor, list[Tensor]]:
    """The weights of the values, and what the operator can show of the way there."""
    scale, softcap = settings.scale, settings.softcap
    root = math.sqrt(1 / math.sqrt(static_sizes(q, 3)[0]) if scale is None else scale)
    raw = matmul(q * number(root, q), tf.transpose(k * number(root, k), [0, 1, 3, 2]))
    capped = number(softcap, raw) * tf.tanh(raw / number(softcap, raw)) if softcap else raw
    masked = capped if bias is None else capped + bias
    work = tf.cast(masked, tf.float32) if settings.softmax_precision == 1 else masked
    if bias is None:
        weights = tf.cast(softmax(work), q.dtype)
    else:  # chosen before and behind: the gradient of a softmax of nothing but -inf is NaN, even times 0
        nothing = tf.reduce_all(masked == number(-math.inf, masked), -1, keepdims=True)
        weights = tf.cast(softmax(tf.where(nothing, number(0, work), work)), q.dtype)
        weights = tf.where(nothing, number(0, weights), weights)
    return weights, [raw, capped, masked, weights]
