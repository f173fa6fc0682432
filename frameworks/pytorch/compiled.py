"""Compiled operators on tensors: :mod:`shortcut` put to work, for the call itself, the gradient and torch.library."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

from deep500.errors import InputError, MissingEngine
from deep500.frameworks.pytorch.arrays import backward_by_arrays, by_arrays, desc_from_tensor
from deep500.frameworks.pytorch.library import TorchLibrary
from deep500.frameworks.pytorch.shortcut import MOST, Method, Missing
from deep500.operators.base import CustomOp
from deep500.operators.bridge import can_bridge
from deep500.operators.cpp.spec import FLOATING

Tensors = Sequence[torch.Tensor]


def short_way(op: CustomOp, library: TorchLibrary) -> Callable[..., Any] | None:
    """A builtin function that runs the operator, and records gradients where they are wanted; None if there is no way.

    ``library`` gets faster kernels.
    """
    if not can_bridge(op):
        return None  # written in Python, or run in a process of its own
    ins, outs = op.signature["inputs"], op.signature["outputs"]
    if len(ins) + 2 * len(outs) > MOST:
        return None
    try:
        return _Compiled(op, library, ins, outs).function
    except (Missing, MissingEngine):  # the operator was compiled before, but now there is no compiler
        return None


class _Compiled:
    """The builtin functions of one operator and what they do with calls that they have not seen before."""

    def __init__(self, op: Any, library: TorchLibrary, ins: Sequence[str], outs: Sequence[str]) -> None:
        self.op, self.library, self.ins, self.outs = op, library, len(ins), len(outs)
        self.instance = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(op.address("d500_instance"))
        self.forward = Method(op.address("d500_forward"), ins, outs)
        self.kernel = self.forward.builtin(op.name, self.checked)
        library.use(lambda inputs: _as_list(self.kernel(*inputs)))
        gradient: Callable[..., Any] = library
        if library.backward is not None:
            active = [dtype in FLOATING and i not in op.spec.inactive for i, dtype in enumerate(ins)]
            self.backward = Method(op.address("d500_backward"), [*outs, *ins, *outs], ins, active, len(outs))
            self.gradient = self.backward.builtin(f"{op.name}_backward", self.checked_backward)
            library.use(library.run, self.run_backward)
            gradient = _recorded(self.kernel, self.gradient, library)
        self.function = self.forward.builtin(op.name, library, gradient)

    def learn(self, method: Method, arguments: Tensors, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
        """Remember these shapes for a method; False if that changes nothing. Empty tensors are left to NumPy."""
        shapes = [d.shape for d in (*inputs, *outputs)]
        if any(0 in shape for shape in shapes):
            return False
        sizes = self.op.sizes(inputs, outputs)
        instance = self.instance(sizes.ctypes.data)
        results = shapes[: self.ins] if method is not self.forward else shapes[self.ins :]
        return instance is not None and method.learn([x.shape for x in arguments], results, instance)

    def checked(self, *inputs: torch.Tensor) -> Any:
        """Forward of a call that is new or wrong."""
        descriptors = [desc_from_tensor(x) for x in inputs]
        outputs = self.op.infer(descriptors)
        if self.learn(self.forward, inputs, descriptors, outputs):
            return self.kernel(*inputs)
        results = by_arrays(self.op, inputs)
        return results[0] if len(results) == 1 else tuple(results)

    def run_backward(self, grads: Tensors, inputs: Tensors, outputs: Tensors, needed: Sequence[bool]) -> Any:
        """The kernel of the gradient in torch.library."""
        gradients = self.gradient(*grads, *inputs, *outputs, tuple(needed))
        chosen = [(g, x) for g, x, want in zip(gradients, inputs, needed, strict=True) if want]
        return [torch.zeros_like(x) if g is None else g for g, x in chosen]

    def checked_backward(self, *arguments: Any) -> tuple[torch.Tensor | None, ...]:
        """Backward of a call that is new or wrong."""
        *tensors, needed = arguments
        grads, inputs, outputs = tensors[: self.outs], tensors[self.outs : -self.outs], tensors[-self.outs :]
        descriptors = [desc_from_tensor(x) for x in inputs]
        expected = self.op.infer(descriptors)
        for what, group in (("output gradient", grads), ("output", outputs)):
            for i, (x, want) in enumerate(zip(group, expected, strict=True)):
                if desc_from_tensor(x) != want:
                    raise InputError(
                        f"operator {self.op.name!r}, {what} {i}: got {desc_from_tensor(x)}; expected {want}: pass one "
                        "for each output"
                    )
        if self.learn(self.backward, tensors, descriptors, expected):
            return self.gradient(*arguments)
        gradients = iter(backward_by_arrays(self.op, grads, inputs, outputs, needed))
        return tuple(next(gradients) if want else None for want in needed)


def _recorded(run: Callable[..., Any], run_backward: Callable[..., Any], library: TorchLibrary) -> Callable[..., Any]:
    """The operator as autograd records it."""

    class Recorded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: torch.Tensor) -> Any:
            outputs = run(*inputs)
            ctx.save_for_backward(*inputs, *_as_list(outputs))
            return outputs

        @staticmethod
        def backward(ctx: Any, *grads: torch.Tensor) -> Any:
            if torch.is_grad_enabled():  # create_graph=True
                return tuple(library.differentiable_backward(grads, ctx.saved_tensors, ctx.needs_input_grad))
            return run_backward(*grads, *ctx.saved_tensors, ctx.needs_input_grad)

    # Function.apply itself, in Python, only looks for torch.func's tensors, which shortcut.cpp has sent elsewhere.
    return getattr(super(torch.autograd.Function, Recorded), "apply", Recorded.apply)


def _as_list(outputs: Any) -> list[torch.Tensor]:
    return list(outputs) if isinstance(outputs, tuple) else [outputs]
