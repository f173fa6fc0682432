"""``SoftplusConv``: convolution, bias and softplus fused in C++, with gradients by Enzyme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import deep500 as d5

Descriptors = Sequence[d5.TensorDescriptor]


@d5.register_op("SoftplusConv")
def softplus_conv(inputs: Descriptors, pad: int = 0, stride: int = 1, fast_math: int = 0) -> d5.CustomOp:
    """log(1 + exp(conv(x, w) + b)), two-dimensional, NCHW.

    Inputs: x ``[N, C, H, W]``, w ``[M, C, KH, KW]``, b ``[M]``, all float32 or all float64.

    Args:
        pad: zeros around x, on every side.
        stride: step of the filters, in both directions.
        fast_math: 1 for vector code that does not keep to IEEE's rules for infinities and NaN.
    """
    if pad < 0 or stride < 1:
        raise d5.errors.InputError(f"operator SoftplusConv: got pad {pad}, stride {stride}; expected at least 0 and 1")
    dtype = inputs[0].dtype
    shapes = [("N", "C", "H", "W"), ("M", "C", "KH", "KW"), ("M",)]
    return d5.compile_custom_cppop(
        "softplus_conv",
        Path(__file__).with_name("softplus_conv.cpp"),
        [d5.TensorDescriptor(dtype, shape) for shape in shapes],
        [d5.TensorDescriptor(dtype, ("N", "M", None, None))],
        additional_definitions={"PAD": pad, "STRIDE": stride},
        gradient="enzyme",
        infer=_shapes(pad, stride),
        fast_math=bool(fast_math),
    )


def _shapes(pad: int, stride: int) -> Callable[[Descriptors], list[d5.TensorDescriptor]]:
    """A function from the inputs' descriptors to the output's: what symbols cannot express."""

    def infer(inputs: Descriptors) -> list[d5.TensorDescriptor]:
        x, w = (tuple(descriptor.shape or (None,) * 4) for descriptor in inputs[:2])
        sizes = [_size(a, k, pad, stride) for a, k in zip(x[2:], w[2:], strict=True)]
        return [d5.TensorDescriptor(inputs[0].dtype, (x[0], w[0], *sizes))]

    return infer


def _size(size: int | str | None, kernel: int | str | None, pad: int, stride: int) -> int | None:
    if not isinstance(size, int) or not isinstance(kernel, int):
        return None
    if size + 2 * pad < kernel:
        raise d5.errors.InputError(
            f"operator SoftplusConv: got size {size} with pad {pad} and a filter of {kernel}; expected one that fits"
        )
    return (size + 2 * pad - kernel) // stride + 1
