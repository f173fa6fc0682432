"""`from_native`: a user's own ``InferenceSession`` behind the executor interface; inference only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import onnx
import onnxruntime as ort

from deep500.devices import CPUDevice, GPUDevice
from deep500.errors import NetworkError, UnsupportedOperator, nearest
from deep500.frameworks.onnxruntime.dtypes import is_plain
from deep500.frameworks.onnxruntime.program import run_session
from deep500.frameworks.onnxruntime.session import BUILD_ERRORS, options
from deep500.networks.execution.emitted_gradient import ArrayNetwork
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.execution.input_check import InputCheck
from deep500.networks.execution.native import NativeNetwork, refuse_edit, refuse_plan, sketch
from deep500.networks.network import Network
from deep500.tensors import TensorDescriptor, dtype_from_onnx

DOMAIN = "deep500.onnxruntime"
"""Domain of the node that stands for a session."""


def from_native(session: ort.InferenceSession) -> NativeExecutor:
    """An executor around a session of the user's own, with its options and providers as they are.

    Raises:
        UnsupportedOperator: something other than an ``InferenceSession``.

    Example:
        >>> from deep500.networks import create
        >>> session = ort.InferenceSession(create("mlp", shape=(4,), classes=3).to_onnx(opset=22).SerializeToString())
        >>> list(from_native(session).network.inputs)
        ['input']
    """
    if not isinstance(session, ort.InferenceSession):
        raise UnsupportedOperator(
            f"got a {type(session).__name__}; expected an onnxruntime.InferenceSession: make one of your model, or use "
            "from_onnx"
        )
    return NativeExecutor(session)


def from_file(model: bytes | str) -> NativeExecutor:
    """An executor around a file as it is: no conversion, all of ONNX Runtime's own optimizations.

    Args:
        model: the file's bytes, or its name where arrays lie beside it.

    Raises:
        UnsupportedOperator: ONNX Runtime cannot run it.

    Example:
        >>> from deep500.networks import create
        >>> list(from_file(create("mlp", shape=(4,), classes=3).to_onnx(opset=17).SerializeToString()).network.inputs)
        ['input']
    """
    try:
        return from_native(ort.InferenceSession(model, options(), providers=["CPUExecutionProvider"]))
    except BUILD_ERRORS as error:
        raise UnsupportedOperator(
            f"got a file that ONNX Runtime {ort.__version__} does not run ({error}); expected one that it does: "
            "export it at another opset"
        ) from error


class NativeSession(NativeNetwork, ArrayNetwork):
    """The network of a session: names and descriptors, but no operators, no parameters and no gradient."""

    subject = "InferenceSession"
    cure = "read the session's model with from_onnx"
    gradient = refuse_edit


class NativeExecutor(GraphExecutor):
    """Runs an ``InferenceSession`` as it is; made by :func:`from_native`."""

    backend = "onnxruntime"
    network: NativeSession

    def __init__(self, session: ort.InferenceSession) -> None:
        gpu = session.get_providers()[0] == "CUDAExecutionProvider"
        super().__init__(GPUDevice() if gpu else CPUDevice())
        self.session, self._plain = session, is_plain(session)
        self.network = NativeSession(_sketch(session))
        self._check = InputCheck(self.network.inputs)

    def _forget_training(self) -> None:
        refuse_plan(self.network.subject, self.network.cure)

    def inference(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """See :meth:`GraphExecutor.inference`; all inputs are needed."""
        names = list(self.network.outputs if outputs is None else outputs)
        for name in names:
            if name not in self.network.outputs:
                raise NetworkError(
                    f"got output {name!r}; expected one of the session's: {nearest(name, self.network.outputs)}"
                )
        self._check(inputs)
        events = self.events
        if events.before_forward:
            events.emit(events.before_forward, self)
        results = run_session(self.session, names, inputs, self._plain)
        self.network.results = results
        if events.after_forward:
            events.emit(events.after_forward, self)
        return dict(results)

    def inference_and_backprop(self, inputs: Mapping[str, Any], loss: str = "loss") -> NoReturn:
        """Always an UnsupportedOperator: a session cannot be differentiated."""
        raise UnsupportedOperator(
            "got a training step of a native InferenceSession, which has no gradients; expected a Network: read the "
            "model with from_onnx, add a loss with deep500.networks.add_loss, and train that"
        )

    def reseed(self, seed: int) -> None:
        """Nothing to do: seeds are part of the session."""

    def synchronize(self) -> None:
        """Nothing to wait for: a run returns when it is done."""


def _sketch(session: ort.InferenceSession) -> Network:
    inputs = {value.name: _descriptor(value) for value in session.get_inputs()}
    outputs = {value.name: _descriptor(value) for value in session.get_outputs()}
    return sketch("session", ("Session", DOMAIN), inputs, {}, outputs)


def _descriptor(value: ort.NodeArg) -> TensorDescriptor:
    """``tensor(float)`` and a shape of numbers, names and None."""
    kind = value.type
    for outer in ("tensor(", "seq(", "optional("):
        if not kind.startswith(outer):
            continue
        inner = kind[len(outer) : -1]
        if outer != "tensor(":
            return TensorDescriptor(f"{'sequence' if outer == 'seq(' else 'optional'}(float32)", None)
        number = onnx.TensorProto.DataType.Value(inner.upper())
        return TensorDescriptor(dtype_from_onnx(number), tuple(value.shape))
    return TensorDescriptor(None, None)
