"""All operators of the backend: importing the families fills the table :data:`OPS`."""

from deep500.frameworks.tensorflow.operators import (
    elementwise,
    movement,
    normalization,
    recurrent,
    reductions,
    windows,
)
from deep500.frameworks.tensorflow.operators.table import OPS, Entry, NeedsValue, op

__all__ = [
    "OPS",
    "Entry",
    "NeedsValue",
    "elementwise",
    "movement",
    "normalization",
    "op",
    "recurrent",
    "reductions",
    "windows",
]
