"""Level 0, operators: custom operators in Python and C++, found by name as nodes of domain ``deep500``."""

from deep500.operators.base import CustomOp
from deep500.operators.check import check_op_forward, check_op_gradient, test_op_forward, test_op_gradient
from deep500.operators.compiling import compile_custom_cppop, compile_custom_cppop_inline
from deep500.operators.cpp import CompiledOp, CustomCPPOp
from deep500.operators.findings import OpCheck
from deep500.operators.measure import OpMeasurement, measure_op
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

# fmt: off
__all__ = [
    "DOMAIN", "CompiledOp", "CustomCPPOp", "CustomOp", "CustomPythonOp", "GradientOp", "OpCheck", "OpMeasurement",
    "check_op_forward", "check_op_gradient", "compile_custom_cppop", "compile_custom_cppop_inline", "find_operator",
    "is_registered", "load_plugin", "load_plugins", "measure_op", "operator_names", "register_op", "test_op_forward",
    "test_op_gradient",
]
# fmt: on
