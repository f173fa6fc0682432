"""Level 0, operators: custom operators in Python and C++, found by name as nodes of domain ``deep500``."""

from deep500.operators.base import CustomOp
from deep500.operators.python_op import CustomPythonOp, GradientOp
from deep500.operators.registry import (
    DOMAIN,
    find_operator,
    is_registered,
    load_plugin,
    load_plugins,
    operator_names,
    register_op,
)

__all__ = [
    "DOMAIN", "CustomOp", "CustomPythonOp", "GradientOp", "find_operator", "is_registered", "load_plugin",
    "load_plugins", "operator_names", "register_op",
]  # fmt: skip
