"""How exactly a GPU computes: TensorFlow's process-wide switches, thrown when an executor wants them otherwise."""

from __future__ import annotations

from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.precision import Numerics

_set: list[Numerics] = []


def adopt(numerics: Numerics) -> None:
    """Set TensorFlow's switches, if another executor's are set.

    Deterministic kernels cannot be switched off again: executors after the first that wanted them have them too.

    Example:
        >>> adopt(Numerics("ieee", False))
        >>> tf.config.experimental.tensor_float_32_execution_enabled()
        False
    """
    if _set == [numerics]:
        return
    tf.config.experimental.enable_tensor_float_32_execution(numerics.precision == "tf32")
    if numerics.deterministic:
        tf.config.experimental.enable_op_determinism()
    _set[:] = [numerics]
