"""``Mish`` in C++, with a gradient by Enzyme."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import deep500 as d5


@d5.register_op("Mish")
def mish(inputs: Sequence[d5.TensorDescriptor], fast_math: int = 0) -> d5.CustomOp:
    """x tanh(log(1 + exp(x))); any shape; float32 or float64, as its input is.

    Args:
        fast_math: 1 for vector code that does not keep to IEEE's rules for infinities and NaN.
    """
    any_shape = [d5.TensorDescriptor(inputs[0].dtype, None)]
    return d5.compile_custom_cppop(
        "mish", Path(__file__).with_name("mish.cpp"), any_shape, any_shape, gradient="enzyme", fast_math=bool(fast_math)
    )
