"""Kernels by family; importing this package fills :data:`OPS`."""

from deep500.frameworks.reference.operators import (
    elementwise,
    movement,
    normalization,
    recurrent,
    reductions,
    windows,
)
from deep500.frameworks.reference.operators.table import OPS, Entry, Random, bind, op

__all__ = [
    "OPS", "Entry", "Random", "bind", "elementwise", "movement", "normalization", "op", "recurrent", "reductions",
    "windows",
]  # fmt: skip
