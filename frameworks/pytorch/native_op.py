"""A function of PyTorch's as an operator, so that whatever checks and measures operators can take it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from deep500.frameworks.pytorch.arrays import desc_from_tensor
from deep500.frameworks.pytorch.dtypes import from_array, to_array, torch_dtype
from deep500.operators.base import CustomOp, Descriptors, as_list
from deep500.operators.native import NativeFunction
from deep500.tensors import TensorDescriptor


class NativeOp(NativeFunction):
    """A function of tensors as an operator; made by :func:`custom_op_from_native`."""

    def _trace(self, inputs: Descriptors) -> list[TensorDescriptor]:
        self._need_sizes(inputs)
        with FakeTensorMode(allow_non_fake_inputs=True):
            tensors: list[Any] = [torch.empty(d.shape, dtype=torch_dtype(d.dtype)) for d in inputs]  # type: ignore[arg-type]
            return [desc_from_tensor(y) for y in as_list(self.function(*tensors))]

    def forward(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs."""
        with torch.no_grad():
            return [to_array(y) for y in as_list(self.function(*map(from_array, inputs)))]

    def backward(
        self, grads: Sequence[np.ndarray], fwd_inputs: Sequence[np.ndarray], fwd_outputs: Sequence[np.ndarray]
    ) -> list[np.ndarray | None]:
        """Gradients of the inputs, None for those that are no floating numbers."""
        inputs = [from_array(x) for x in fwd_inputs]
        leaves = [x.requires_grad_() for x in (t.detach() for t in inputs) if x.is_floating_point()]
        rest = iter(leaves)
        with torch.enable_grad():
            outputs = as_list(self.function(*(next(rest) if x.is_floating_point() else x for x in inputs)))
        pairs = [(y, from_array(g)) for y, g in zip(outputs, grads, strict=True) if y.requires_grad]
        reached = torch.autograd.grad(
            [y for y, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True, materialize_grads=True
        )
        gradients = iter(reached)
        return [to_array(next(gradients)) if x.is_floating_point() else None for x in inputs]


def custom_op_from_native(
    function: Callable[..., Any],
    input_descriptors: Descriptors | None = None,
    output_descriptors: Descriptors | None = None,
) -> CustomOp:
    """A function of tensors (an ``nn.Module`` too) as an operator for every framework, with PyTorch's gradient.

    Args:
        function: takes tensors and returns one, or a list or tuple of them.
        input_descriptors, output_descriptors: see :class:`~deep500.operators.base.CustomOp`; outputs that are not
            declared are found by a call on tensors without data.

    Example:
        >>> custom_op_from_native(torch.tanh)(np.zeros(2, "float32")).tolist()
        [0.0, 0.0]
    """
    return NativeOp(function, input_descriptors, output_descriptors)
