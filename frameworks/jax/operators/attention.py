"""Attention as one operator: grouped heads, masks, windows, caches."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.frameworks.jax.operators.table import Array, op
from deep500.networks.attributes import Attending
from deep500.networks.execution.attention_mask import hidden_places
from deep500.networks.execution.operator_table import optional


def _heads(x: Array, count: int) -> Array:
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


@op("Attention")
def attention(
    q: Array, k: Array, v: Array, *operands: Array | None, settings: Attending, outputs: tuple[bool, ...] = (True,)
) -> Any:
    """Scaled dot-product attention on ``[N, heads, length, size]``, or ``[N, length, heads * size]`` with head counts.

    A query that may look at nothing yields 0.
    """
    mask, past_key, past_value, lengths = optional(operands, 4)
    flat = q.ndim == 3
    if flat:
        q, k, v = _heads(q, settings.q_num_heads), _heads(k, settings.kv_num_heads), _heads(v, settings.kv_num_heads)
    past: Any = 0 if past_key is None else past_key.shape[2]
    if past_key is not None and past_value is not None:
        k, v = jnp.concatenate([past_key, k], 2), jnp.concatenate([past_value, v], 2)
    elif lengths is not None:
        past = (lengths - q.shape[2]).reshape(-1, 1, 1, 1)
    present = (k, v)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = jnp.repeat(k, groups, 1), jnp.repeat(v, groups, 1)
    here, there = np.arange(q.shape[2])[:, None] + past, np.arange(k.shape[2])
    valid = None if lengths is None else lengths.reshape(-1, 1, 1, 1)
    hidden = hidden_places(here, there, valid, settings)
    weights, stages = _weights(q, k, _bias(q, k, mask, hidden), settings)
    y = jnp.matmul(weights, v)
    y = y.swapaxes(1, 2).reshape(*y.shape[:1], y.shape[2], -1) if flat else y
    return y if len(outputs) == 1 else (y, *present, stages[settings.qk_matmul_output_mode])[: len(outputs)]


def _bias(q: Array, k: Array, mask: Array | None, hidden: Array | None) -> Array | None:
    """Mask and hidden places as an addend; a mask shorter than the keys hides the rest."""
    lowest, zero = np.array(-np.inf, q.dtype), np.zeros((), q.dtype)
    bias = mask
    if mask is not None and mask.dtype == np.bool_:
        bias = jnp.where(mask, zero, lowest)
    if bias is not None and bias.shape[-1] < k.shape[2]:
        widths = [(0, 0)] * (bias.ndim - 1) + [(0, k.shape[2] - bias.shape[-1])]
        bias = jnp.pad(bias, widths, constant_values=-np.inf)
    if hidden is not None:
        unseen = jnp.where(hidden, lowest, zero)
        bias = unseen if bias is None else bias + unseen
    return bias


def _weights(q: Array, k: Array, bias: Any, settings: Attending) -> tuple[Array, list[Array]]:
    """The weights of the values, and what the operator can show of the way there."""
    scale, softcap = settings.scale, settings.softcap
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    raw = jnp.matmul(q * root, (k * root).swapaxes(-1, -2))
    capped = softcap * jnp.tanh(raw / softcap) if softcap else raw
    masked = capped if bias is None else capped + bias
    work = masked.astype(np.float32) if settings.softmax_precision == 1 else masked
    blind = jnp.isneginf(work).all(-1, keepdims=True)
    weights = jnp.where(blind, 0, jax.nn.softmax(jnp.where(blind, 0, work), -1)).astype(q.dtype)
    return weights, [raw, capped, masked, weights]
