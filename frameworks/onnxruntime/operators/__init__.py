"""Operators in terms of others, for what ONNX Runtime has no kernel for; never in a coarser precision.

``EXPANSIONS`` maps (domain, operator) to ``f(network, node, descriptors) -> {output: value that takes over} | None``;
it adds nodes under fresh names. They are used only where ONNX Runtime refuses the operator itself.
"""

from deep500.frameworks.onnxruntime.operators import convolution, elementwise, normalization, pooling, training
from deep500.frameworks.onnxruntime.operators.normalization import overwrites
from deep500.frameworks.onnxruntime.operators.table import EXPANSIONS, expansion
from deep500.frameworks.onnxruntime.operators.widening import widen

__all__ = [
    "EXPANSIONS", "convolution", "elementwise", "expansion", "overwrites", "normalization", "pooling", "training", "widen",
]  # fmt: skip
