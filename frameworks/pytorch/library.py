"""A custom operator in ``torch.library``: what ``torch.compile``, ``torch.export``, FakeTensors and autograd see of it.

Every operator becomes ``deep500::<name>_<key>(Tensor[] inputs) -> Tensor[]``, and one that has a gradient also
``..._backward(Tensor[] grads, Tensor[] inputs, Tensor[] outputs, bool[] wanted) -> Tensor[]``, which returns the wanted
input gradients. Lists, because an operator without descriptors takes any number of tensors. The key is a hash of the
content for compiled operators and random for others, so neither two operators nor two processes that share
PyTorch's cache of compiled code can take one for another. What is registered stays until the process ends.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad

from deep500.errors import InputError, UnsupportedOperator
from deep500.frameworks.pytorch.arrays import backward_by_arrays, by_arrays, desc_from_tensor, dtype_name
from deep500.frameworks.pytorch.dtypes import torch_dtype
from deep500.frameworks.pytorch.gpu import common_device, launch
from deep500.frameworks.pytorch.transforms import Hessian, Tangent, TransformableOp
from deep500.operators.base import CustomOp, for_more_derivatives
from deep500.operators.bridge import can_bridge, operator_key
from deep500.tensors import Dim, TensorDescriptor

Tensors = Sequence[torch.Tensor]


class TorchLibrary:
    """One operator's registration.

    Attributes:
        forward: the ``OpOverload`` in ``torch.ops.deep500``.
        backward: the gradient's, None without one.
    """

    def __init__(self, op: CustomOp) -> None:
        self.op = op
        self.run: Any = partial(by_arrays, op)  # what runs on tensors of the CPU
        self.run_backward: Any = partial(backward_by_arrays, op)
        name = f"{re.sub(r'[^0-9A-Za-z_]', '_', op.name)}_{lasting_key(op) or secrets.token_hex(8)}"
        self.backward = self._define_backward(f"{name}_backward") if op.differentiable else None
        self.forward = self._define_forward(name)
        self.transformable = TransformableOp(op, self)

    def use(self, run: Any, run_backward: Any = None) -> None:
        """Run faster functions on tensors of the CPU, such as those of compiled.py."""
        self.run, self.run_backward = run, run_backward or self.run_backward

    def _define_forward(self, name: str) -> Any:
        def forward(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
            if common_device(self.op, inputs) is None:
                return self.run(inputs)
            results = self.op.infer([desc_from_tensor(x) for x in inputs])
            return launch(self.op, "forward", inputs, [inputs], results, [True] * len(results))

        defined = torch.library.custom_op(
            f"deep500::{name}", forward, mutates_args=(), schema="(Tensor[] inputs) -> Tensor[]"
        )
        defined.register_fake(self.fake)
        defined.register_autograd(self._differentiate, setup_context=_remember)
        return getattr(torch.ops.deep500, name).default

    def _define_backward(self, name: str) -> Any:
        def backward(
            grads: list[torch.Tensor], inputs: list[torch.Tensor], outputs: list[torch.Tensor], needed: list[bool]
        ) -> list[torch.Tensor]:
            if common_device(self.op, [*grads, *inputs, *outputs]) is None:
                return self.run_backward(grads, inputs, outputs, needed)
            results = [desc_from_tensor(x) for x in inputs]
            return launch(self.op, "backward", inputs, [grads, inputs, outputs], results, needed)

        defined = torch.library.custom_op(
            f"deep500::{name}",
            backward,
            mutates_args=(),
            schema="(Tensor[] grads, Tensor[] inputs, Tensor[] outputs, bool[] wanted) -> Tensor[]",
        )
        defined.register_fake(
            lambda grads, inputs, outputs, needed: [
                torch.empty_like(x, memory_format=torch.contiguous_format)
                for x, want in zip(inputs, needed, strict=True)
                if want
            ]
        )
        defined.register_autograd(self._differentiate_twice, setup_context=_remember_backward)
        return getattr(torch.ops.deep500, name).default

    def __call__(self, *inputs: torch.Tensor) -> Any:
        """Run it as PyTorch runs any operator; one tensor, or a tuple of them."""
        for i, x in enumerate(inputs):
            if not isinstance(x, torch.Tensor):
                raise InputError(
                    f"operator {self.op.name!r}: got {type(x).__name__} as input {i}; expected a tensor: convert it "
                    "with torch.as_tensor"
                )
        outputs = self.transformable(*inputs) if _is_transformed() else self.forward(list(inputs))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    # -- gradients ----------------------------------------------------------------------------------------------------
    def _differentiate(self, ctx: Any, grads: list[torch.Tensor]) -> list[torch.Tensor | None]:
        if self.backward is None:
            raise self.no_gradient()
        return self.differentiable_backward(grads, ctx.saved_tensors, ctx.needs_input_grad[0])

    def no_gradient(self) -> UnsupportedOperator:
        """The error for an operator without a gradient."""
        return UnsupportedOperator(
            f"operator {self.op.name!r}: got a gradient to pass on; expected one that has a backward: write it, or "
            "detach() its inputs"
        )

    def differentiable_backward(
        self, grads: Tensors, saved: Tensors, needed: Sequence[bool]
    ) -> list[torch.Tensor | None]:
        """The needed input gradients through ``torch.library``; None for the others."""
        inputs, outputs = list(saved[: len(needed)]), list(saved[len(needed) :])
        assert self.backward is not None
        gradients = iter(self.backward(list(grads), inputs, outputs, list(needed)))
        return [next(gradients) if want else None for want in needed]

    def _differentiate_twice(self, ctx: Any, cotangents: list[torch.Tensor | None]) -> Any:
        """Backward is linear in the output gradients, whose gradient is the Jacobian times the cotangents; that of the
        inputs is the Hessian times them, as the Hessian is symmetric."""
        has, op = getattr(self.op, "signature", {}), self.op
        if not (has.get("jvp") and has.get("hvp")):
            raise UnsupportedOperator(
                f"operator {op.name!r}: got a gradient of its gradient to compute; expected first gradients only, so "
                "leave out create_graph=True, or an operator with more derivatives: "
                f"{for_more_derivatives(op, 'jvp', 'hvp')}"
            )
        outs, custom = ctx.count, self.transformable
        grads, outputs = ctx.saved_tensors[:outs], ctx.saved_tensors[-outs:]
        inputs = ctx.saved_tensors[outs:-outs]
        rest = iter(cotangents)
        along = [next(rest) if want else None for want in ctx.needed]
        tangents = [torch.zeros_like(x) if v is None else v for v, x in zip(along, inputs, strict=True)]
        # As functions with derivatives, for hvp() of torch.autograd.functional differentiates along the cotangents.
        pushed = Tangent.apply(custom, len(inputs), *inputs, *tangents, *outputs)
        bent = Hessian.apply(custom, len(inputs), *grads, *inputs, *tangents)
        chosen = [tensor if w else None for tensor, w in zip(bent, ctx.needed, strict=True)]
        return list(pushed), chosen, [None] * outs, None

    # -- without data -------------------------------------------------------------------------------------------------
    def fake(self, inputs: Tensors) -> list[torch.Tensor]:
        """Empty outputs for inputs without data; sizes may be symbols where the operator's descriptors have rules."""
        symbols: dict[str, Any] = {}
        descriptors = [TensorDescriptor(dtype_name(x), tuple(_dim(s, symbols) for s in x.shape)) for x in inputs]
        outputs = self._inferred(descriptors, symbols)
        if outputs is None and symbols:
            outputs = self._inferred([desc_from_tensor(x) for x in inputs], {})  # for these sizes only: int() guards
        if outputs is None:
            raise UnsupportedOperator(
                f"operator {self.op.name!r}: got outputs of unknown size for {', '.join(map(str, descriptors))}; "
                "expected sizes that follow from those of the inputs: declare output_descriptors"
            )
        device = inputs[0].device if inputs else torch.device("cpu")
        return [torch.empty(shape, dtype=torch_dtype(dtype), device=device) for dtype, shape in outputs]

    def _inferred(
        self, inputs: Sequence[TensorDescriptor], symbols: dict[str, Any]
    ) -> list[tuple[str | None, list[Any]]] | None:
        """Dtypes and sizes of the outputs, None if some size does not follow from these inputs."""
        try:
            outputs = self.op.infer(inputs)
        except UnsupportedOperator:
            if symbols:
                return None
            raise
        sizes = [None if y.shape is None else [symbols.get(d, d) for d in y.shape] for y in outputs]  # type: ignore[arg-type]
        if any(shape is None or any(d is None or isinstance(d, str) for d in shape) for shape in sizes):
            return None
        return [(y.dtype, shape or []) for y, shape in zip(outputs, sizes, strict=True)]


def _is_transformed() -> bool:
    """Whether tensors may be those of ``torch.func``, or have tangents (``torch.autograd.forward_ad.dual_level()``)."""
    return forward_ad._current_level >= 0 or torch._C._are_functorch_transforms_active()


def _remember(ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
    ctx.save_for_backward(*inputs[0], *output)


def _remember_backward(ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
    grads, tensors, outputs, needed = inputs
    ctx.count, ctx.needed = len(grads), needed
    ctx.save_for_backward(*grads, *tensors, *outputs)


def _dim(size: Any, symbols: dict[str, Any]) -> Dim:
    """A size for a descriptor: a number, or a name for a symbol of PyTorch's."""
    if isinstance(size, int):
        return size
    name = str(size.node.expr)
    symbols[name] = size
    return name


def lasting_key(op: CustomOp) -> str | None:
    """A hash of a compiled operator's content; None for operators without one."""
    if not can_bridge(op) or op.shape_plan() is None:
        return None
    return operator_key(op)[:16]
