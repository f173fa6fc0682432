"""Custom operators on this backend's tensors: NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deep500.operators.base import CustomOp


def custom_op(op: CustomOp) -> Callable[..., Any]:
    """The operator as a function of arrays: one array, or a list if it has several outputs.

    Raises:
        InputError: by the function, for inputs that the operator refuses.

    Example:
        >>> import deep500 as d5
        >>> class Twice(d5.CustomPythonOp):
        ...     def forward(self, inputs):
        ...         return 2 * inputs[0]
        >>> custom_op(Twice())([1.0, 2.0]).tolist()
        [2.0, 4.0]
    """

    def call(*inputs: Any) -> Any:
        return op(*inputs)

    call.__name__ = op.name
    return call
