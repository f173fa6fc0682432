"""Attention as one operator: grouped heads, masks, windows, caches."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from deep500.frameworks.pytorch.operators.table import op
from deep500.networks.attributes import Attending
from deep500.networks.execution.attention_mask import hidden_places
from deep500.networks.execution.operator_table import optional

Tensor = torch.Tensor


@op("Attention")
def attention(
    q: Tensor, k: Tensor, v: Tensor, *operands: Tensor | None, settings: Attending, outputs: tuple[bool, ...] = (True,)
) -> Any:
    """Scaled dot-product attention on ``[N, heads, length, size]``, or ``[N, length, heads * size]`` with head counts.

    A query that may look at nothing yields 0.
    """
    mask, past_key, past_value, lengths = optional(operands, 4)
    plain = (settings.softmax_precision, settings.softcap, settings.left_window_size < 0 > settings.right_window_size)
    if len(outputs) == 1 and plain == (None, 0, True) and past_key is None and past_value is None and lengths is None:
        heads = _one_piece(q, k, mask, settings)
        if heads is not None:
            return _fused(q, k, v, mask, settings, heads)
    flat = q.ndim == 3
    if flat:
        q = q.unflatten(2, (settings.q_num_heads, -1)).transpose(1, 2)
        k, v = (t.unflatten(2, (settings.kv_num_heads, -1)).transpose(1, 2) for t in (k, v))
    past: Any = 0 if past_key is None else past_key.shape[2]
    if past_key is not None and past_value is not None:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    elif lengths is not None:
        past = (lengths - q.shape[2]).reshape(-1, 1, 1, 1)
    present = (k, v)
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    here, there = (torch.arange(t.shape[2], device=q.device) for t in (q, k))
    valid = None if lengths is None else lengths.reshape(-1, 1, 1, 1)
    hidden = hidden_places(here.unsqueeze(1) + past, there, valid, settings)
    weights, stages = _weights(q, k, _bias(q, k, mask, hidden), settings)
    y = weights @ v
    y = y.transpose(1, 2).flatten(2) if flat else y
    return y if len(outputs) == 1 else (y, *present, stages[settings.qk_matmul_output_mode])[: len(outputs)]


def _one_piece(q: Tensor, k: Tensor, mask: Tensor | None, settings: Attending) -> int | None:
    """The number of heads if torch's own function computes the same: heads in equal number, one kind of mask, of the
    keys' length, and nothing to learn in it; else None."""
    heads = settings.q_num_heads if q.ndim == 3 else q.shape[1]
    if heads != (settings.kv_num_heads if q.ndim == 3 else k.shape[1]) or q.dtype.itemsize < 4:
        return None
    if mask is None:
        return heads
    plain = mask.dtype in (torch.bool, q.dtype) and not mask.requires_grad and not settings.is_causal
    return heads if plain and mask.shape[-1] == k.shape[-2] else None


def _fused(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, settings: Attending, heads: int) -> Tensor:
    causal, scale = bool(settings.is_causal), settings.scale
    if q.ndim == 4:
        return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale)
    q, k, v = (t.unflatten(2, (heads, -1)).transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale).transpose(1, 2).flatten(2)


def _bias(q: Tensor, k: Tensor, mask: Tensor | None, hidden: Tensor | None) -> Tensor | None:
    """Mask and hidden places as an addend; a mask shorter than the keys hides the rest."""
    lowest = float("-inf")
    bias = mask
    if mask is not None and mask.dtype == torch.bool:
        bias = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(~mask, lowest)
    if bias is not None and bias.shape[-1] < k.shape[2]:
        bias = F.pad(bias, (0, k.shape[2] - bias.shape[-1]), value=lowest)
    if hidden is not None:
        unseen = torch.zeros(hidden.shape, dtype=q.dtype, device=q.device).masked_fill(hidden, lowest)
        bias = unseen if bias is None else bias + unseen
    return bias


def _weights(q: Tensor, k: Tensor, bias: Any, settings: Attending) -> tuple[Tensor, list[Tensor]]:
    """The weights of the values, and what the operator can show of the way there."""
    scale, softcap = settings.scale, settings.softcap
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    raw = (q * root) @ (k * root).mT
    capped = softcap * torch.tanh(raw / softcap) if softcap else raw
    masked = capped if bias is None else capped + bias
    work = masked.float() if settings.softmax_precision == 1 else masked
    weights = torch.softmax(work, -1).to(q.dtype)
    if bias is not None:
        weights = weights.masked_fill((masked == float("-inf")).all(-1, keepdim=True), 0)
    return weights, [raw, capped, masked, weights]
