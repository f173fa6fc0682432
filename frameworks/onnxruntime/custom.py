"""Custom operators on this backend's tensors: NumPy arrays, which ONNX Runtime's values share memory with."""

from deep500.networks.execution.custom import custom_op

__all__ = ["custom_op"]
