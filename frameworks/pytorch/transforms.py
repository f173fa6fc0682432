"""Custom operators under ``torch.func`` and in forward mode: Jacobians, gradients and Hessians as functions of tensors.

Four functions refer to each other: the operator, its gradient ``J' g``, the Jacobian times a tangent ``J v`` and the
Hessian of ``<g, operator>`` times a tangent. Each knows how the others are its derivatives, so that ``torch.func.jvp``,
``grad``, ``jacfwd(jacrev(f))`` and their ``vmap`` work as far as the operator has derivatives. Third ones it has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from deep500.errors import UnsupportedOperator
from deep500.frameworks.pytorch.arrays import host_array
from deep500.frameworks.pytorch.dtypes import from_array
from deep500.operators.base import CustomOp, for_more_derivatives

Tensors = Sequence[torch.Tensor]


class TransformableOp:
    """An operator as a function that ``torch.func`` can transform; always returns a tuple.

    Args:
        library: its :class:`~deep500.frameworks.pytorch.library.TorchLibrary`.
    """

    def __init__(self, op: CustomOp, library: Any) -> None:
        self.op, self.library = op, library

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs: tuple[torch.Tensor, ...] = OperatorFunction.apply(self, *inputs)
        return outputs


class OperatorFunction(torch.autograd.Function):
    """The outputs."""

    @staticmethod
    def forward(custom: TransformableOp, *inputs: Any) -> Any:
        return tuple(custom.library.forward(list(inputs)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.custom, ctx.count = inputs[0], len(inputs) - 1
        _keep(ctx, *inputs[1:], *output)
        ctx.mark_non_differentiable(*(y for y in output if not y.is_floating_point()))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if ctx.custom.library.backward is None:
            raise ctx.custom.library.no_gradient()
        x, y = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        needed = tuple(ctx.needs_input_grad[1:])
        whole = [
            torch.zeros_like(b) if g is None or not b.is_floating_point() else g for g, b in zip(grads, y, strict=True)
        ]
        gradients = iter(Gradient.apply(ctx.custom, ctx.count, needed, *whole, *x, *y))
        return (None, *(next(gradients) if want else None for want in needed))

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        _require(ctx.custom.op, "jvp", "tangents of forward mode")
        x, y = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
        moved = Tangent.apply(ctx.custom, ctx.count, *x, *_filled(tangents, x), *y)
        return tuple(t if b.is_floating_point() else None for t, b in zip(moved, y, strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _one_by_one(OperatorFunction, info, in_dims, inputs)


class Gradient(torch.autograd.Function):
    """Of the needed inputs, from the outputs' gradients, the inputs and the outputs."""

    @staticmethod
    def forward(custom: TransformableOp, count: int, needed: Any, *tensors: Any) -> Any:
        outs = (len(tensors) - count) // 2
        g, x, y = tensors[:outs], tensors[outs:-outs], tensors[-outs:]
        return tuple(custom.library.backward(list(g), list(x), list(y), list(needed)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.custom, ctx.count, ctx.needed, *tensors = inputs
        ctx.outs = (len(tensors) - ctx.count) // 2
        _keep(ctx, *tensors)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        _require(ctx.custom.op, "hvp", "a gradient of its gradient to compute")
        g, x, y = _groups(ctx)
        rest = iter(cotangents)
        v = _filled([next(rest) if want else None for want in ctx.needed], x)
        pushed = Tangent.apply(ctx.custom, ctx.count, *x, *v, *y)
        bent = Hessian.apply(ctx.custom, ctx.count, *g, *x, *v)
        return (None, None, None, *pushed, *_floating(bent, x), *[None] * ctx.outs)

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, ___: Any, *tangents: Any) -> Any:
        g, x, y = _groups(ctx)
        of_g, of_x = tangents[: ctx.outs], tangents[ctx.outs : -ctx.outs]
        total = Gradient.apply(ctx.custom, ctx.count, ctx.needed, *_filled(of_g, g), *x, *y)
        if all(t is None for t in of_x):
            return total
        _require(ctx.custom.op, "hvp", "a tangent of its gradient to compute")
        bent = Hessian.apply(ctx.custom, ctx.count, *g, *x, *_filled(of_x, x))
        chosen = [b for b, want in zip(bent, ctx.needed, strict=True) if want]
        return tuple(a + b for a, b in zip(total, chosen, strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _one_by_one(Gradient, info, in_dims, inputs)


class Tangent(torch.autograd.Function):
    """Change of the outputs along tangents of the inputs; takes inputs, tangents and outputs."""

    @staticmethod
    def forward(custom: TransformableOp, count: int, *tensors: Any) -> Any:
        x, v = tensors[:count], tensors[count : 2 * count]
        return tuple(map(from_array, custom.op.jvp(_arrays(x), _arrays(v))[1]))  # type: ignore[attr-defined]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.custom, ctx.count, *tensors = inputs
        _keep(ctx, *tensors)
        ctx.mark_non_differentiable(*(y for y in output if not y.is_floating_point()))

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        n, saved = ctx.count, ctx.saved_tensors
        x, v, y = saved[:n], saved[n : 2 * n], saved[2 * n :]
        needed = tuple(ctx.needs_input_grad[2 + n : 2 + 2 * n])
        g = [torch.zeros_like(b) if not b.is_floating_point() else c for c, b in zip(cotangents, y, strict=True)]
        gradients = iter(Gradient.apply(ctx.custom, n, needed, *g, *x, *y))
        back = [next(gradients) if want else None for want in needed]
        bent: Any = [None] * n
        if any(ctx.needs_input_grad[2 : 2 + n]):
            _require(ctx.custom.op, "hvp", "a gradient of its tangent to compute")
            bent = _floating(Hessian.apply(ctx.custom, n, *g, *x, *v), x)
        return (None, None, *bent, *back, *[None] * len(y))

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, *tangents: Any) -> Any:
        n, saved = ctx.count, ctx.saved_tensors
        if any(t is not None for t in tangents[:n]):
            raise _too_many(ctx.custom.op)
        x, y = saved[:n], saved[2 * n :]
        moved = Tangent.apply(ctx.custom, n, *x, *_filled(tangents[n : 2 * n], x), *y)
        return tuple(t if b.is_floating_point() else None for t, b in zip(moved, y, strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _one_by_one(Tangent, info, in_dims, inputs)


class Hessian(torch.autograd.Function):
    """Change of the gradients along tangents; takes output gradients, inputs and tangents."""

    @staticmethod
    def forward(custom: TransformableOp, count: int, *tensors: Any) -> Any:
        outs = len(tensors) - 2 * count
        g, x, v = tensors[:outs], tensors[outs : outs + count], tensors[outs + count :]
        return tuple(map(from_array, custom.op.hvp(_arrays(g), _arrays(x), _arrays(v))))  # type: ignore[attr-defined]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.custom, ctx.count, *tensors = inputs
        ctx.outs = len(tensors) - 2 * ctx.count
        _keep(ctx, *tensors)
        ctx.mark_non_differentiable(*(y for y in output if not y.is_floating_point()))

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        first = ctx.outs + ctx.count
        g, x = ctx.saved_tensors[: ctx.outs], ctx.saved_tensors[ctx.outs : first]
        bent = Hessian.apply(ctx.custom, ctx.count, *g, *x, *_filled(cotangents, x))  # it is symmetric
        # Whether anybody will read a third derivative is not known here: hvp() of torch.autograd.functional does not.
        third = [
            UnknownTensor.shaped_like(y, _too_many(ctx.custom.op)) if want else None
            for y, want in zip((*g, *x), ctx.needs_input_grad[2 : 2 + first], strict=True)
        ]
        return (None, None, *third, *_floating(bent, x))

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, *tangents: Any) -> Any:
        first = ctx.outs + ctx.count
        if any(t is not None for t in tangents[:first]):
            raise _too_many(ctx.custom.op)
        g, x = ctx.saved_tensors[: ctx.outs], ctx.saved_tensors[ctx.outs : first]
        return tuple(Hessian.apply(ctx.custom, ctx.count, *g, *x, *_filled(tangents[first:], x)))

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
        return _one_by_one(Hessian, info, in_dims, inputs)


class UnknownTensor(torch.Tensor):
    """A tensor that raises an error whenever its elements are asked for."""

    error: Exception

    @staticmethod
    def shaped_like(like: torch.Tensor, error: Exception) -> UnknownTensor:
        """Return one of the shape and dtype of ``like``."""
        unknown = torch.Tensor._make_wrapper_subclass(UnknownTensor, like.shape, dtype=like.dtype, device=like.device)
        unknown.error = error
        return unknown

    @classmethod
    def __torch_dispatch__(  # type: ignore[override] # its stub says that the arguments have no defaults
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise next(x.error for x in tree_leaves((args, kwargs)) if isinstance(x, UnknownTensor))


def _keep(ctx: Any, *tensors: Any) -> None:
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)


def _groups(ctx: Any) -> tuple[Tensors, Tensors, Tensors]:
    saved, outs = ctx.saved_tensors, ctx.outs
    return saved[:outs], saved[outs:-outs], saved[-outs:]


def _filled(tangents: Sequence[Any], like: Tensors) -> list[torch.Tensor]:
    return [
        torch.zeros_like(x) if t is None or not x.is_floating_point() else t
        for t, x in zip(tangents, like, strict=True)
    ]


def _floating(tensors: Tensors, like: Tensors) -> list[torch.Tensor | None]:
    return [t if x.is_floating_point() else None for t, x in zip(tensors, like, strict=True)]


def _arrays(tensors: Tensors) -> list[Any]:
    return [host_array(t) for t in tensors]


def _one_by_one(function: Any, info: Any, in_dims: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, Any]:
    """One call after the other, as an operator takes its inputs one by one."""
    many = [
        function.apply(*(x.select(d, i) if isinstance(d, int) else x for x, d in zip(inputs, in_dims, strict=True)))
        for i in range(info.batch_size)
    ]
    stacked = tuple(torch.stack(parts) for parts in zip(*many, strict=True))
    return stacked, (0,) * len(stacked)


def _require(op: CustomOp, kind: str, got: str) -> None:
    if not getattr(op, "signature", {}).get(kind):
        raise UnsupportedOperator(
            f"operator {op.name!r}: got {got}; expected plain tensors and first gradients, or an operator with more "
            f"derivatives: {for_more_derivatives(op, kind)}"
        )


def _too_many(op: CustomOp) -> UnsupportedOperator:
    return UnsupportedOperator(
        f"operator {op.name!r}: got a derivative of forward mode along inputs, or a third derivative; expected at most "
        "forward mode over reverse mode: torch.func.jacfwd(torch.func.jacrev(f)), which torch.func.hessian is"
    )
