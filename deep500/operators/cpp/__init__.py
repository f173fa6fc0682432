"""Operators in C++: compiled once into a per-user cache, loaded through a C interface, called from any framework."""

from deep500.operators.cpp.compiled_op import CompiledOp

CustomCPPOp = CompiledOp
"""The name that the original Deep500 gave it."""

__all__ = ["CompiledOp", "CustomCPPOp"]
