"""``Gelu`` in C++, in its tanh form, with a gradient by Enzyme."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import deep500 as d5


@d5.register_op("Gelu")
def gelu(inputs: Sequence[d5.TensorDescriptor], fast_math: int = 0) -> d5.CustomOp:
    """x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2; any shape; float32 or float64, as its input is.

    Args:
        fast_math: 1 for vector code that does not keep to IEEE's rules for infinities and NaN.
    """
    any_shape = [d5.TensorDescriptor(inputs[0].dtype, None)]
    return d5.compile_custom_cppop(
        "gelu", Path(__file__).with_name("gelu.cpp"), any_shape, any_shape, gradient="enzyme", fast_math=bool(fast_math)
    )
