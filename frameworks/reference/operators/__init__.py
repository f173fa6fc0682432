"""Kernels by family; importing this package fills :data:`OPS`."""

from deep500.frameworks.reference.operators import (
    control,
    elementwise,
    movement,
    normalization,
    recurrent,
    reductions,
    sequences,
    windows,
)
from deep500.frameworks.reference.operators.table import OPS, Random, bind, find, op

# fmt: off
__all__ = [
    "OPS", "Random", "bind", "control", "elementwise", "find", "movement", "normalization", "op", "recurrent",
    "reductions", "sequences", "windows",
]
# fmt: on
