"""Level 0, operators: custom operators in Python and C++, found by name as nodes of domain ``deep500``."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.operators.base import CustomOp as CustomOp
    from deep500.operators.check import check_op_forward as check_op_forward
    from deep500.operators.check import check_op_gradient as check_op_gradient
    from deep500.operators.check import test_op_forward as test_op_forward
    from deep500.operators.check import test_op_gradient as test_op_gradient
    from deep500.operators.compiling import compile_custom_cppop as compile_custom_cppop
    from deep500.operators.compiling import compile_custom_cppop_inline as compile_custom_cppop_inline
    from deep500.operators.cpp import CompiledOp as CompiledOp
    from deep500.operators.cpp import CustomCPPOp as CustomCPPOp
    from deep500.operators.findings import OpCheck as OpCheck
    from deep500.operators.measure import OpMeasurement as OpMeasurement
    from deep500.operators.measure import measure_op as measure_op
    from deep500.operators.python_op import CustomPythonOp as CustomPythonOp
    from deep500.operators.python_op import GradientOp as GradientOp
    from deep500.operators.registry import DOMAIN as DOMAIN
    from deep500.operators.registry import find_operator as find_operator
    from deep500.operators.registry import is_registered as is_registered
    from deep500.operators.registry import load_plugin as load_plugin
    from deep500.operators.registry import load_plugins as load_plugins
    from deep500.operators.registry import operator_names as operator_names
    from deep500.operators.registry import register_op as register_op

load_when_used(__name__)
