"""Functions that the exporter lacks or gets wrong, as others that it has: an entry per function in ``INSTEAD``.

Each is called with the function itself and its arguments, while a module is traced.
"""

from __future__ import annotations

import inspect
import math
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
    return _vector_norm(torch.linalg.vector_norm, x1 - x2 + eps, p, -1, keepdim)


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


def _unfold(function: Any, x: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """Windows of an axis, which the exporter counts from the first."""
    return function(x, dimension % x.dim(), size, step)


def _vector_norm(
    function: Any, x: torch.Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> torch.Tensor:
    """A norm of another power than 1 and 2 in float64, whose root the exporter takes by a number of float32."""
    number = isinstance(ord, (int, float)) and ord not in (0, 1, 2) and not math.isinf(ord)
    if not number or x.dtype is not torch.float64:
        return function(x, ord, dim, keepdim, **kwargs)
    total = x.abs().pow(ord).sum(dim, keepdim)
    return total.reshape(-1).pow(torch.full((1,), 1 / ord, dtype=x.dtype)).reshape(total.shape)


def _norm(
    function: Any,
    input: torch.Tensor,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    """The older function of the same norms."""
    return _vector_norm(lambda *values: function(*values, *args, **kwargs), input, p, dim, keepdim)


def _normalize(
    function: Any, input: torch.Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Any = None
) -> torch.Tensor:
    """Vectors of length 1 by the same norms."""
    if p in (1, 2) or out is not None:
        return function(input, p, dim, eps, out)
    return input / _vector_norm(torch.linalg.vector_norm, input, p, dim, True).clamp_min(eps)


def _mean_of_scattered(
    function: Any, x: torch.Tensor, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """A mean as a sum over a number; the exporter divides nothing."""
    if reduce != "mean":
        return function(x, dim, index, src, reduce, include_self=include_self)
    count = torch.zeros_like(x).scatter_add(dim, index, torch.ones_like(src))
    total = torch.zeros_like(x).scatter_add(dim, index, src)
    if include_self:
        return (x + total) / (count + 1)
    return torch.where(count > 0, total / count.clamp(min=1), x)


def _cross_entropy(function: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """With probabilities as targets or smoothed labels, which ONNX's operator does not have, written out."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    options = bound.arguments
    logits, target, weight, smooth = (options[n] for n in ("input", "target", "weight", "label_smoothing"))
    labels = not target.is_floating_point()
    if options["size_average"] is not None or options["reduce"] is not None or (labels and not smooth):
        return function(*args, **kwargs)
    axis = 1 if logits.dim() > 1 else 0
    real: Any = (target != options["ignore_index"]).to(logits.dtype) if labels else 1.0
    terms = -torch.log_softmax(logits, axis)
    if weight is not None:
        terms = terms * weight.reshape(-1, *[1] * (logits.dim() - axis - 1))
    evenly = terms.sum(axis) * (smooth / int(logits.shape[axis]))
    if labels:
        chosen = torch.where(real > 0, target, torch.zeros_like(target))
        loss = (terms.gather(axis, chosen.unsqueeze(axis)).squeeze(axis) * (1 - smooth) + evenly) * real
    else:
        loss = (terms * target).sum(axis) * (1 - smooth) + evenly
    if options["reduction"] != "mean":
        return loss if options["reduction"] == "none" else loss.sum()
    if not labels:
        return loss.mean()
    count = (real if weight is None else weight[chosen] * real).sum()
    return (loss.sum().reshape(1) / count.reshape(1)).reshape(())  # numbers without an axis are of float32


def _divergence(
    function: Any,
    input: torch.Tensor,
    target: torch.Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> torch.Tensor:
    """Its mean over the batch, which is a number divided by a number of float32 else."""
    if reduction != "batchmean":
        return function(input, target, size_average, reduce, reduction, log_target)
    terms = function(input, target, reduction="none", log_target=log_target)
    return terms.reshape(terms.shape[0], -1).sum(1).mean()


def _huber(
    _: Any, input: torch.Tensor, target: torch.Tensor, reduction: str = "mean", delta: float = 1.0, weight: Any = None
) -> torch.Tensor:
    """Squares up to a distance, from there on a line."""
    apart = input - target
    size = apart.abs()
    loss = torch.where(size <= delta, 0.5 * apart * apart, delta * (size - 0.5 * delta))
    if weight is not None:
        loss = loss * weight
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _hypot(_: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sqrt(x * x + y * y)


def _sinc(_: Any, x: torch.Tensor) -> torch.Tensor:
    zero = x == 0
    angle = torch.where(zero, torch.ones_like(x), x) * math.pi
    return torch.where(zero, torch.ones_like(x), torch.sin(angle) / angle)


def _atan2(_: Any, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The angle by the smaller of both quotients, and pi with all its digits."""
    y, x = torch.broadcast_tensors(y, x)
    steep, unit = y.abs() > x.abs(), torch.ones_like(x)
    flat = torch.atan(torch.where(steep, unit, y) / torch.where(steep | (x == 0), unit, x))
    behind = torch.where(x < 0, torch.where(y < 0, -unit, unit), torch.zeros_like(x)) * math.pi
    up = torch.where(y < 0, -unit, unit) * (math.pi / 2)
    return torch.where(steep, up - torch.atan(torch.where(steep, x, unit) / torch.where(steep, y, unit)), flat + behind)


def _wide_activation(formula: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """An activation in float64 without ONNX's operator, whose attributes have a float's digits."""

    def instead(function: Any, input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if input.dtype is not torch.float64:
            return function(input, *args, **kwargs)
        in_place = kwargs.pop("inplace", False)
        if args and isinstance(args[-1], bool):
            *args, in_place = args  # type: ignore[assignment]
        result = formula(input, *args, **kwargs)
        return input.copy_(result) if in_place else result

    return instead


def _leaky(x: torch.Tensor, negative_slope: float = 0.01) -> torch.Tensor:
    return torch.where(x > 0, x, x * negative_slope)


def _elu(x: torch.Tensor, alpha: float = 1.0, scale: float = 1.0, width: float = 1.0) -> torch.Tensor:
    """scale x above 0, and scale alpha (exp(x / width) - 1) below."""
    return torch.where(x > 0, x, (torch.exp(x.clamp(max=0) * (1 / width)) - 1) * alpha) * scale


_SELU = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _scaled_sum(function: Any, x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1, **kwargs: Any) -> torch.Tensor:
    """beta x + alpha a b in float64, without the attributes of ONNX's operator."""
    if a.dtype is not torch.float64 or (alpha == 1 and beta == 1):
        return function(x, a, b, beta=beta, alpha=alpha, **kwargs)
    return x * beta + torch.matmul(a, b) * alpha


def _added_products(function: Any, x: Any, a: Any, b: Any, *, value: Any = 1) -> torch.Tensor:
    if value == 1 or x.dtype is not torch.float64:
        return function(x, a, b, value=value)
    return x + (a * b if "mul" in function.__name__ else a / b) * value


def _spread(function: Any, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """Of all numbers as of one row: the exporter counts in float32 where no axis is left."""
    if x.dtype is not torch.float64 or args or "dim" in kwargs or kwargs.get("keepdim") or not x.dim():
        return function(x, *args, **kwargs)
    return function(x.reshape(1, -1), 1, **kwargs).reshape(())


def _take_along(function: Any, x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """A gather, where the other axes have equal sizes."""
    if dim is None or x.dim() != indices.dim():
        return function(x, indices, dim)
    return x.gather(dim, indices)


def _embedding_bag(function: Any, input: torch.Tensor, weight: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Bags of one length, as sums, means or maxima of rows; a padding row is none of them."""
    bound = inspect.signature(torch.nn.functional.embedding_bag).bind(input, weight, *args, **kwargs)
    bound.apply_defaults()
    options = bound.arguments
    if input.dim() != 2 or options["include_last_offset"]:
        return function(input, weight, *args, **kwargs)
    names = ("max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    rows = _embedding(torch.nn.functional.embedding, input, weight, None, **{name: options[name] for name in names})
    padding, mode = options["padding_idx"], options["mode"]
    real = torch.ones_like(input) if padding is None else (input != padding % weight.shape[0]).to(input.dtype)
    real = real.unsqueeze(-1).to(weight.dtype)
    if mode == "max":
        least = rows.masked_fill(real == 0, -math.inf).max(1).values
        return torch.where(real.sum(1) > 0, least, torch.zeros_like(least))
    if options["per_sample_weights"] is not None:
        real = real * options["per_sample_weights"].unsqueeze(-1)
    total = (rows * real).sum(1)
    return total if mode == "sum" else total / real.sum(1).clamp(min=1)


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
    torch.linalg.vector_norm: _vector_norm,
    **dict.fromkeys((torch.norm, torch.Tensor.norm), _norm),
    torch.nn.functional.normalize: _normalize,
    **dict.fromkeys((torch.scatter_reduce, torch.Tensor.scatter_reduce), _mean_of_scattered),
    **dict.fromkeys((torch.hypot, torch.Tensor.hypot), _hypot),
    **dict.fromkeys((torch.take_along_dim, torch.Tensor.take_along_dim), _take_along),
    torch.nn.functional.cross_entropy: _cross_entropy,
    torch.nn.functional.huber_loss: _huber,
    torch.nn.functional.kl_div: _divergence,
    torch.sinc: _sinc,
    **dict.fromkeys((torch.atan2, torch.Tensor.atan2, torch.arctan2), _atan2),
    torch.nn.functional.leaky_relu: _wide_activation(_leaky),
    torch.nn.functional.elu: _wide_activation(_elu),
    torch.nn.functional.celu: _wide_activation(lambda x, alpha=1.0: _elu(x, alpha, 1.0, alpha)),
    **dict.fromkeys((torch.nn.functional.selu, torch.selu), _wide_activation(lambda x: _elu(x, *_SELU))),
    **dict.fromkeys((torch.addmm, torch.Tensor.addmm, torch.baddbmm, torch.Tensor.baddbmm), _scaled_sum),
    **{getattr(p, n): _added_products for p in (torch, torch.Tensor) for n in ("addcmul", "addcdiv")},
    **{getattr(p, n): _spread for p in (torch, torch.Tensor) for n in ("std", "var")},
    torch.nn.functional.embedding_bag: _embedding_bag,
    **dict.fromkeys((torch.nn.functional.dropout1d, torch.nn.functional.dropout2d), _chance.drop_channels),
    torch.nn.functional.dropout3d: _chance.drop_channels,
    **dict.fromkeys(_chance.OWN_SCALES, _chance.refuse_own_scale),
    torch.Tensor.unfold: _unfold,
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
"""A function of PyTorch -> the one that is traced in its place."""
