"""PyTorch backend: networks become ``torch.fx`` modules; needs ``torch``."""

from deep500.frameworks.pytorch.executor import Executor, from_model, from_onnx

__all__ = ["Executor", "from_model", "from_onnx"]
