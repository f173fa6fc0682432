"""``RMSNorm`` in C++, with a gradient by Enzyme."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import deep500 as d5


@d5.register_op("RMSNorm")
def rmsnorm(inputs: Sequence[d5.TensorDescriptor], epsilon: float = 1e-5, fast_math: int = 0) -> d5.CustomOp:
    """x / sqrt(mean(x^2) + epsilon) * weight, along the last axis.

    Inputs: x of any shape ``[..., D]``; weight ``[D]``; both float32 or both float64.

    Args:
        epsilon: keeps rows of zeros from dividing by zero.
        fast_math: 1 for vector code that does not keep to IEEE's rules for infinities and NaN.
    """
    dtype, shape = inputs[0].dtype, inputs[0].shape
    if not shape:
        raise d5.errors.InputError(
            f"operator RMSNorm: got x of {inputs[0]}; expected one with known axes, at least one"
        )
    x = d5.TensorDescriptor(dtype, (*(f"N{axis}" for axis in range(len(shape) - 1)), "D"))
    return d5.compile_custom_cppop(
        "rmsnorm",
        Path(__file__).with_name("rmsnorm.cpp"),
        [x, d5.TensorDescriptor(dtype, ("D",))],
        [x],
        additional_definitions={"EPSILON": float(epsilon)},
        gradient="enzyme",
        fast_math=bool(fast_math),
    )
