"""Custom operators on this backend's tensors: NumPy arrays."""

from deep500.networks.execution.custom import custom_op

__all__ = ["custom_op"]
