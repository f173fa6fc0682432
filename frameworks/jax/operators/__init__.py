"""All operators of the backend: importing the families fills the table :data:`OPS`."""

from deep500.frameworks.jax.operators import (
    attention,
    control,
    elementwise,
    imaging,
    movement,
    normalization,
    quantization,
    random,
    recurrent,
    reductions,
    sequences,
    signals,
    windows,
)
from deep500.frameworks.jax.operators.table import OPS, op

# fmt: off
__all__ = [
    "OPS", "attention", "control", "elementwise", "imaging", "movement", "normalization", "op", "quantization",
    "random", "recurrent", "reductions", "sequences", "signals", "windows",
]
# fmt: on
