"""Operators in C++: compiled once into a per-user cache, loaded through a C interface, called from any framework."""

from typing import TYPE_CHECKING

from deep500.faces import load_when_used

if TYPE_CHECKING:
    from deep500.operators.cpp.compiled_op import CompiledOp as CompiledOp
    from deep500.operators.cpp.compiled_op import CustomCPPOp as CustomCPPOp

load_when_used(__name__)
