"""All operators of the backend: importing the families fills the table :data:`OPS`."""

from deep500.frameworks.pytorch.operators import (
    attention,
    control,
    elementwise,
    imaging,
    movement,
    normalization,
    quantization,
    recurrent,
    reductions,
    sequences,
    signals,
    training,
    windows,
)
from deep500.frameworks.pytorch.operators.table import OPS, op

# fmt: off
__all__ = [
    "OPS", "attention", "control", "elementwise", "imaging", "movement", "normalization", "op", "quantization",
    "recurrent", "reductions", "sequences", "signals", "training", "windows",
]
# fmt: on
