"""Operators in terms of others, for what ONNX Runtime has no kernel for or gets wrong; never in a coarser precision.

``EXPANSIONS`` maps (domain, operator) to ``f(network, node, descriptors) -> {output: value that takes over} | None``;
it adds nodes under fresh names. They are used only where ONNX Runtime refuses the operator, or where ``is_wrong``.
"""

from deep500.frameworks.onnxruntime.operators import (
    bits,
    convolution,
    corrections,
    elementwise,
    normalization,
    pooling,
    training,
)
from deep500.frameworks.onnxruntime.operators.corrections import is_wrong
from deep500.frameworks.onnxruntime.operators.table import EXPANSIONS, expansion
from deep500.frameworks.onnxruntime.operators.widening import widen

__all__ = [
    "EXPANSIONS",
    "bits",
    "convolution",
    "corrections",
    "elementwise",
    "expansion",
    "is_wrong",
    "normalization",
    "pooling",
    "training",
    "widen",
]
