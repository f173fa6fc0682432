"""Custom operators for tests, each equal to something that ONNX has, or awkward in one way."""

from __future__ import annotations

import numpy as np

import deep500 as d5
from deep500.tensors import TensorDescriptor


@d5.register_op("TestLeakyRelu")
class LeakyRelu(d5.CustomPythonOp):
    """ONNX's LeakyRelu."""

    def __init__(self, alpha: float = float(np.float32(0.01))) -> None:  # as ONNX stores it
        super().__init__()
        self.alpha = alpha

    def forward(self, inputs):
        return np.where(inputs[0] < 0, inputs[0].dtype.type(self.alpha) * inputs[0], inputs[0])

    def backward(self, grads, fwd_inputs, fwd_outputs):
        return np.where(fwd_inputs[0] < 0, grads[0].dtype.type(self.alpha) * grads[0], grads[0])


@d5.register_op("TestMatMul")
class MatMul(d5.CustomPythonOp):
    """ONNX's MatMul of two matrices, with declared shapes."""

    def __init__(self, dtype: str = "float64") -> None:
        shapes = (("N", "K"), ("K", "M"))
        super().__init__([TensorDescriptor(dtype, s) for s in shapes], [TensorDescriptor(dtype, ("N", "M"))])

    def forward(self, inputs):
        return inputs[0] @ inputs[1]

    def backward(self, grads, fwd_inputs, fwd_outputs):
        return [grads[0] @ fwd_inputs[1].T, fwd_inputs[0].T @ grads[0]]


@d5.register_op("TestSinCos")
class SinCos(d5.CustomPythonOp):
    """Two outputs: Sin and Cos."""

    def forward(self, inputs):
        return [np.sin(inputs[0]), np.cos(inputs[0])]

    def backward(self, grads, fwd_inputs, fwd_outputs):
        assert all(g.dtype == x.dtype for g, x in zip(grads, fwd_outputs, strict=True))
        return grads[0] * fwd_outputs[1] - grads[1] * fwd_outputs[0]


@d5.register_op("TestPick")
class Pick(d5.CustomPythonOp):
    """ONNX's Gather along the first axis: an input of whole numbers, and an output of them (how often each occurs)."""

    def forward(self, inputs):
        return [inputs[0][inputs[1]], np.bincount(inputs[1], minlength=len(inputs[0]))]

    def backward(self, grads, fwd_inputs, fwd_outputs):
        assert grads[1].dtype == np.int64 and not grads[1].any()
        gradient = np.zeros_like(fwd_inputs[0])
        np.add.at(gradient, fwd_inputs[1], grads[0])
        return [gradient, None]


@d5.register_op("TestOpaque")
class Opaque(d5.CustomPythonOp):
    """No backward."""

    def forward(self, inputs):
        return inputs[0] + 1


@d5.register_op("TestFourths")
class Fourths(d5.CustomPythonOp):
    """The last size must be a multiple of four."""

    def forward(self, inputs):
        return inputs[0].reshape(-1, 4)

    def backward(self, grads, fwd_inputs, fwd_outputs):
        return grads[0].reshape(fwd_inputs[0].shape)


@d5.register_op("TestFussy")
class Fussy(SinCos):
    """Like SinCos, for a multiple of seven rows only."""

    def forward(self, inputs):
        assert len(inputs[0]) % 7 == 0
        return super().forward(inputs)


@d5.register_op("TestSingleRelu")
class SingleRelu(LeakyRelu):
    """ReLU in single precision only."""

    def __init__(self) -> None:
        super().__init__(0)
        self.input_descriptors = self.output_descriptors = (TensorDescriptor("float32", None),)


@d5.register_op("TestPole")
class Pole(d5.CustomPythonOp):
    """Infinite at one."""

    def forward(self, inputs):
        return 1 / (1 - inputs[0])


@d5.register_op("TestBroken")
class Broken(d5.CustomPythonOp):
    """Raises an error that is not of this package."""

    def __init__(self) -> None:
        super().__init__(None, [TensorDescriptor(None, None)])

    def forward(self, inputs):
        raise ZeroDivisionError("oh")


@d5.register_op("TestNamed")
def named(inputs, prefix="of"):
    """A function as factory: the operator depends on the dtype of its input."""
    op = LeakyRelu(0.5 if inputs[0].dtype == "float64" else 0.25)
    op.label = f"{prefix} {inputs[0].dtype}"
    return op
