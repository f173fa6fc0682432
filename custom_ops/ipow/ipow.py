"""``IPow`` and ``IPowCPP``: a whole power, the same operator in Python and in C++, both with gradients by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

import deep500 as d5


@d5.register_op("IPow")
class IPow(d5.CustomPythonOp):
    """x ** exponent in Python.

    Args:
        exponent: a whole number of at least 1.

    Example:
        >>> IPow(3)([1.0, 2.0]).tolist()
        [1.0, 8.0]
    """

    def __init__(self, exponent: int = 2) -> None:
        super().__init__()
        self.exponent = _checked(exponent)

    def forward(self, inputs: Sequence[np.ndarray]) -> np.ndarray:
        """The power."""
        return inputs[0] ** self.exponent

    def backward(
        self, grads: Sequence[np.ndarray], fwd_inputs: Sequence[np.ndarray], fwd_outputs: Sequence[np.ndarray]
    ) -> np.ndarray:
        """exponent * x ** (exponent - 1), times the output's gradient."""
        return grads[0] * self.exponent * fwd_inputs[0] ** (self.exponent - 1)


@d5.register_op("IPowCPP")
def ipow(inputs: Sequence[d5.TensorDescriptor], exponent: int = 2) -> d5.CustomOp:
    """x ** exponent in C++, any shape; float32 or float64, as its input is."""
    any_shape = [d5.TensorDescriptor(inputs[0].dtype, None)]
    power = {"DPOWER": _checked(exponent)}
    return d5.compile_custom_cppop(
        "ipow", Path(__file__).with_name("ipow.cpp"), any_shape, any_shape, additional_definitions=power
    )


def _checked(exponent: int) -> int:
    if exponent < 1:
        raise d5.errors.InputError(f"operator IPow: got exponent {exponent}; expected a whole number of at least 1")
    return exponent
