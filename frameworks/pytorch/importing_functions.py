"""Functions that the exporter lacks or gets wrong, as others that it has: an entry per function in ``INSTEAD``.

Each is called with the function itself and its arguments, while a module is traced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from deep500.errors import NetworkError
from deep500.registry import load_importer

_branches = load_importer("pytorch", "importing_branches")
_chance = load_importer("pytorch", "importing_chance")


def _cumprod(_: Any, x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Products so far, one by one: the exporters have no operator, and a quotient of sums of logarithms no zeros."""
    parts = list((x if dtype is None else x.to(dtype)).unbind(dim))
    for number in range(1, len(parts)):
        parts[number] = parts[number - 1] * parts[number]
    return torch.stack(parts, dim)


def _cdist(function: Any, x: torch.Tensor, y: torch.Tensor, p: float = 2.0, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Distances whose gradient is 0 where they are, as PyTorch's."""
    if p != 2:
        return function(x, y, p, *args, **kwargs)
    squares = ((x.unsqueeze(-2) - y.unsqueeze(-3)) ** 2).sum(-1)
    zero = squares == 0
    return torch.sqrt(squares.masked_fill(zero, 1.0)).masked_fill(zero, 0.0)


def _pairwise_distance(
    _: Any, x1: torch.Tensor, x2: torch.Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> torch.Tensor:
    """With its epsilon, which the exporter leaves out."""
    return torch.linalg.vector_norm(x1 - x2 + eps, p, -1, keepdim)


def _slogdet(_: Any, x: torch.Tensor) -> Any:
    """By the determinant itself, which must not overflow."""
    determinant = torch.det(x)
    return torch.return_types.linalg_slogdet((torch.sign(determinant), torch.log(torch.abs(determinant))))  # type: ignore[attr-defined]


def _cumsum(function: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """As PyTorch does it itself, and the exporter does not say."""
    return function(x.to(torch.int64) if x.dtype is torch.bool else x, *args, **kwargs)


def _refuse(function: Any, *args: Any, **kwargs: Any) -> Any:
    raise NetworkError(
        f"{_branches.where()}: got {function.__name__} in forward; expected no hook and no gradient there, which a "
        "trace does not hold: x * s + x.detach() * (1 - s) scales a gradient by s, an autograd.Function does the rest"
    )


def _embedding(
    function: Any,
    indices: torch.Tensor,
    weight: torch.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> torch.Tensor:
    """Rows of a table; that of ``padding_idx`` is given no gradient."""
    options = {"max_norm": max_norm is not None, "scale_grad_by_freq": scale_grad_by_freq, "sparse": sparse}
    if any(options.values()):
        name = next(name for name, on in options.items() if on)
        instead = "scale the rows that are read in forward" if name == "max_norm" else "leave it out"
        raise NetworkError(
            f"{_branches.where()}: got an embedding with {name}; expected one whose gradient is that of a table's "
            f"rows, and whose forward leaves the weights as they are: {instead}"
        )
    rows = function(indices, weight)
    if padding_idx is None or not weight.requires_grad:
        return rows
    padding = (indices == padding_idx % weight.shape[0]).unsqueeze(-1)
    return torch.where(padding, rows.detach(), rows)


def _attention(
    function: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, *args: Any, **kwargs: Any
) -> Any:
    """Attention; with a mask of float64, which the exporter's does not take, written out."""
    if attn_mask is None or attn_mask.dtype is not torch.float64:
        return function(query, key, value, attn_mask, *args, **kwargs)
    options = dict(zip(("dropout_p", "is_causal"), args, strict=False)) | kwargs
    if options.get("enable_gqa"):
        key, value = (x.repeat_interleave(query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scale = options.get("scale") or int(query.shape[-1]) ** -0.5  # a traced size would make it a float32 tensor
    weights = torch.softmax(query @ key.transpose(-2, -1) * scale + attn_mask, -1)
    return torch.nn.functional.dropout(weights, options.get("dropout_p", 0.0)) @ value


def _hardsigmoid(function: Any, input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """In float64 without ONNX's operator, whose slope of a sixth has a float's digits."""
    return function(input) if input.dtype is not torch.float64 else torch.clamp(input + 3, 0, 6) / 6


def _diff(_: Any, x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> torch.Tensor:
    x = torch.cat([part for part in (prepend, x, append) if part is not None], dim)
    for _ in range(n):
        length = x.shape[dim]
        x = x.narrow(dim, 1, length - 1) - x.narrow(dim, 0, length - 1)
    return x


def _fake_quantize(function: Any, x: torch.Tensor, scale: Any, zero: Any, low: int, high: int) -> torch.Tensor:
    """Quantized values, with the gradient of x where nothing is clipped."""
    place = torch.round(x.detach() / scale) + zero
    inside = x * ((place >= low) & (place <= high)).to(x.dtype)
    return inside + (function(x, scale, zero, low, high) - inside).detach()


def _matrix_exp(_: Any, x: torch.Tensor) -> torch.Tensor:
    """Its series of a 256th, squared eight times: to 1e-12 for norms up to 256 (PyTorch scales by the values)."""
    identity, x = torch.eye(x.shape[-1], dtype=x.dtype), x / 256
    y = identity + x / 14
    for power in range(13, 0, -1):
        y = identity + x @ y / power
    for _ in range(8):
        y = y @ y
    return y


def _householder_product(_: Any, vectors: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """The first columns of the product of reflections, the last one applied first."""
    rows, columns = vectors.shape[-2:]
    lower = torch.tril(vectors, -1) + torch.eye(rows, columns, dtype=vectors.dtype)
    y = torch.eye(rows, columns, dtype=vectors.dtype)
    for number in range(factors.shape[-1] - 1, -1, -1):
        v, factor = lower.narrow(-1, number, 1), factors.narrow(-1, number, 1).unsqueeze(-1)
        y = y - factor * (v @ (v.transpose(-2, -1) @ y))
    return y


def _sort(function: Any, *args: Any, stable: bool = False, **kwargs: Any) -> Any:
    """Without a word of stability, of which the exporter knows nothing: ONNX's TopK keeps the order of equal values."""
    return function(*args, **kwargs)


def _histc(function: Any, x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """Counts by comparing with every bin, for limits that are numbers."""
    if not min < max:
        return function(x, bins, min, max)
    flat = x.reshape(-1, 1)
    place = torch.floor((flat - min) * bins / (max - min)).clamp(max=bins - 1)
    inside = (flat >= min) & (flat <= max)
    return ((place == torch.arange(bins, device=x.device)) & inside).sum(0).to(x.dtype)


def _grouped_mm(
    function: Any, x: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor | None = None, **kwargs: Any
) -> torch.Tensor:
    """Rows by the matrix of their group: every row by every matrix, of which its own is taken."""
    if x.dim() != 2 or weight.dim() != 3 or offs is None or any(value is not None for value in kwargs.values()):
        return function(x, weight, offs=offs, **kwargs)
    row = torch.arange(x.shape[0], device=x.device)
    begin = torch.cat([offs.new_zeros(1), offs[:-1]])
    member = (row >= begin.unsqueeze(1)) & (row < offs.unsqueeze(1))
    return (torch.matmul(x.unsqueeze(0), weight) * member.unsqueeze(-1).to(x.dtype)).sum(0)


INSTEAD: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.sort, torch.Tensor.sort, torch.argsort, torch.Tensor.argsort), _sort),
    torch.histc: _histc,
    torch.Tensor.histc: _histc,
    **{
        getattr(p, n): _grouped_mm
        for p, n in ((torch, "_grouped_mm"), (torch.nn.functional, "grouped_mm"))
        if hasattr(p, n)
    },
    torch.diff: _diff,
    torch.Tensor.diff: _diff,
    torch.cumsum: _cumsum,
    torch.cumprod: _cumprod,
    torch.Tensor.cumprod: _cumprod,
    torch.cdist: _cdist,
    torch.pairwise_distance: _pairwise_distance,
    torch.nn.functional.pairwise_distance: _pairwise_distance,
    torch.slogdet: _slogdet,
    torch.linalg.slogdet: _slogdet,
    torch.Tensor.slogdet: _slogdet,
    torch.nn.functional.hardsigmoid: _hardsigmoid,
    torch.matrix_exp: _matrix_exp,
    torch.linalg.matrix_exp: _matrix_exp,
    torch.linalg.householder_product: _householder_product,
    torch.Tensor.mH.__get__: lambda _, x: x.transpose(-2, -1),  # type: ignore[attr-defined]  # ONNX's are real
    torch.Tensor.cumsum: _cumsum,
    torch.nn.functional.embedding: _embedding,
    torch.nn.functional.scaled_dot_product_attention: _attention,
    torch.nn.functional.gumbel_softmax: _chance.noisy_gumbel_softmax,
    torch.fake_quantize_per_tensor_affine: _fake_quantize,
    torch.Tensor.data.__get__: lambda _, x: x.detach(),  # type: ignore[attr-defined]
    **dict.fromkeys(
        (
            torch.Tensor.register_hook,
            torch.Tensor.register_post_accumulate_grad_hook,
            torch.Tensor.backward,
            torch.autograd.grad,
            torch.autograd.backward,
        ),
        _refuse,
    ),
}
"""What is traced for a function of PyTorch."""
