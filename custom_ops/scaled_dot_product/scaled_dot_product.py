"""``ScaledDotProduct`` (attention) in C++, with gradients by Enzyme."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import deep500 as d5


@d5.register_op("ScaledDotProduct")
def scaled_dot_product(inputs: Sequence[d5.TensorDescriptor], causal: int = 0, fast_math: int = 0) -> d5.CustomOp:
    """softmax(q k' / sqrt(E)) v for every head.

    Inputs: q ``[batch, heads, L, E]``, k ``[batch, heads, S, E]``, v ``[batch, heads, S, V]``, all float32 or all
    float64; output ``[batch, heads, L, V]``.

    Args:
        causal: 1: query i sees keys 0 to i only.
        fast_math: 1 for vector code that does not keep to IEEE's rules for infinities and NaN.
    """
    q, k, v, y = (
        d5.TensorDescriptor(inputs[0].dtype, ("N", "H", *last))
        for last in (("L", "E"), ("S", "E"), ("S", "V"), ("L", "V"))
    )
    return d5.compile_custom_cppop(
        "scaled_dot_product",
        Path(__file__).with_name("scaled_dot_product.cpp"),
        [q, k, v],
        [y],
        additional_definitions={"CAUSAL": int(bool(causal))},
        gradient="enzyme",
        fast_math=bool(fast_math),
    )
