"""Operators in terms of others, for what ONNX Runtime has no kernel for or gets wrong; never in a coarser precision.

``EXPANSIONS`` maps (domain, operator) to ``f(network, node, descriptors) -> {output: value that takes over} | None``;
it adds nodes under fresh names. They are used only where ONNX Runtime refuses the operator, or where ``is_wrong``.
"""

from deep500.frameworks.onnxruntime.operators.corrections import is_wrong as is_wrong
from deep500.frameworks.onnxruntime.operators.table import EXPANSIONS as EXPANSIONS
from deep500.frameworks.onnxruntime.operators.table import expansion as expansion
from deep500.frameworks.onnxruntime.operators.widening import widen as widen
from deep500.registry import import_modules

import_modules(__name__)
