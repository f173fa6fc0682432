"""The ONNX Runtime executor: sessions for inference, and for training on the emitted gradient.

Tensors are NumPy arrays: on the CPU ONNX Runtime's values share their memory, and every optimizer and metric of
the core reads them without a copy. An inference session holds the parameters as constants, which ONNX Runtime folds and
packs, so that it is as fast as any session; once a network trains, the parameters become inputs of its sessions, and an
update needs no new session. Randomness (Dropout) belongs to the session's nodes, whose seeds are ours: ONNX Runtime's
own seed is one for the whole process, and is read only when a session is made. So ``reseed`` makes such sessions anew.
Custom operators run between sessions: see :mod:`deep500.frameworks.onnxruntime.segments`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from deep500.devices import Device, fall_back, to_device
from deep500.frameworks.onnxruntime.program import ClockedSession, SessionProgram
from deep500.frameworks.onnxruntime.segments import Segments, make_program
from deep500.frameworks.onnxruntime.session import BUILD_ERRORS, open_session
from deep500.frameworks.onnxruntime.session import options as session_options
from deep500.keywords import hands_on
from deep500.networks import protos
from deep500.networks.execution.emitted_gradient import CompiledStep, EmittedGradientExecutor
from deep500.networks.execution.framework_clock import FrameworkClock
from deep500.networks.execution.options import ExecutorOptions
from deep500.networks.execution.precision import used_precision
from deep500.networks.graph import Graph
from deep500.networks.network import Choice, Network
from deep500.networks.quantization import differentiable
from deep500.transformations.recomputation.rewriting import executed_step

CUDA = "CUDAExecutionProvider"
_OPERANDS = 1024  # fixed arrays of up to this many elements may decide about shapes


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions(ExecutorOptions):
    """Options of this backend beside those of all; ONNX Runtime prefers ``deterministic`` kernels, but refuses none.

    Attributes:
        threads: of one run; ``OMP_NUM_THREADS`` if None, else one per core.
        seed: of Dropout and its like, see :meth:`Executor.reseed`.
        optimization: how far ONNX Runtime rewrites the graph itself: ``"disabled"``, ``"basic"``, ``"extended"`` or
            ``"all"``.
    """

    threads: int | None = None
    seed: int = 0
    optimization: str = "all"


@hands_on(RuntimeOptions)
def from_model(network: Network, device: Device | str | None = None, **options: Any) -> Executor:
    """An executor for a network; ``options`` are those of :class:`RuntimeOptions`."""
    return Executor(network, device, **options)


@hands_on(RuntimeOptions)
def from_onnx(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto,
    device: Device | str | None = None,
    trainable: Choice | None = None,
    **options: Any,
) -> Executor:
    """An executor for an ONNX model: a path, the bytes of a file or a message; see :meth:`Network.from_onnx`."""
    return Executor(Network.from_onnx(model, trainable), device, **options)


class Executor(EmittedGradientExecutor):
    """Runs a network with ONNX Runtime.

    Args:
        network: stays as it is; ``executor.network`` is a copy of it, bound to this executor.
        device: the CPU if None; a GPU needs onnxruntime-gpu, else it falls back with a warning.
        options: fields of :class:`RuntimeOptions`.

    Raises:
        InputError: an unknown level of optimization.
        UnsupportedOperator: naming every node that ONNX Runtime can run neither itself nor in other words.

    Example:
        >>> import deep500.networks as d5nt
        >>> import numpy as np
        >>> executor = Executor(d5nt.create("mlp", shape=(4,), classes=3))
        >>> executor.inference({"input": np.ones((2, 4), "float32")})["output"].shape
        (2, 3)
    """

    backend = "onnxruntime"
    choices = ("threads", "optimization", "precision", "deterministic")

    def __init__(self, network: Graph, device: Device | str | None = None, **options: Any) -> None:
        asked = RuntimeOptions(**options)
        network = differentiable(network, asked.quantization)
        wished = to_device(device)
        super().__init__(fall_back(wished, wished.index + 1 if _has_gpu(wished) else 0, asked.strict), network)
        self.precision = used_precision(asked.precision, self.device)
        self.deterministic = asked.deterministic and self.device.kind == "gpu"
        cuda = (CUDA, {"device_id": self.device.index, "use_tf32": int(self.precision == "tf32")})
        self.providers: list[Any] = [cuda] * (self.device.kind == "gpu") + ["CPUExecutionProvider"]
        self.threads, self.optimization, self.seed = asked.threads, asked.optimization, asked.seed
        self.settings = session_options(self.threads, optimization=self.optimization)
        self.settings.use_deterministic_compute = self.deterministic
        self._live = False  # whether parameters are inputs of the inference sessions
        self._rebuilt = False
        self._inference(tuple(self.network.outputs))

    # -- running ----------------------------------------------------------------------------------------------------
    def reseed(self, seed: int) -> None:
        """See :meth:`GraphExecutor.reseed`: sessions with random nodes are made anew, the others stay."""
        super().reseed(seed)
        self._inferences = {k: v for k, v in self._inferences.items() if not v[0].is_random}
        self._trainings = {k: v for k, v in self._trainings.items() if not v.program.is_random}

    # -- compiling --------------------------------------------------------------------------------------------------
    def _refresh(self) -> None:
        """Drop sessions that no longer match the network."""
        network = self.network
        if self._version != network.version:
            super()._refresh()
        elif network.written:
            written = network.written
            if any(written & p.constants for p, _ in self._inferences.values()):
                self._live = self._live or self._rebuilt  # once may be a checkpoint, twice is a habit
                self._rebuilt = True
                self._inferences = {k: v for k, v in self._inferences.items() if not written & v[0].constants}
            self._trainings = {k: v for k, v in self._trainings.items() if not written & v.program.constants}
            written.clear()

    def step_network(self, loss: str) -> tuple[Graph, dict[str, str]]:
        return executed_step(self.network, self.checkpointing, loss)

    def inference_program(self, outputs: tuple[str, ...]) -> SessionProgram | Segments:
        variables = self.network.trainable() + _statistics(self.network) if self._live else []
        return self._compile(self.network, outputs, variables)

    def training_program(
        self, step: Graph, outputs: Sequence[str], statistics: Sequence[str]
    ) -> SessionProgram | Segments:
        settings = None if self.checkpointing is None else session_options(self.threads, in_order=True)
        program = self._compile(step, outputs, [*self.network.trainable(), *statistics], settings)
        if not self._live:
            self._live, self._inferences = True, {}
        return program

    def _compile(
        self,
        network: Graph,
        outputs: Sequence[str],
        variables: Sequence[str],
        settings: ort.SessionOptions | None = None,
    ) -> SessionProgram | Segments:
        live = self.network.parameters
        variables = [*variables, *_beyond(network, variables)]
        return make_program(network, outputs, variables, live, settings or self.settings, self.providers, self.seed)

    @contextmanager
    def clocked(self, training: CompiledStep, clock: FrameworkClock) -> Iterator[CompiledStep]:
        """See the base class; of a single session its own runs alone, without what goes in and comes out."""
        program = training.program
        if not isinstance(program, SessionProgram) or program.session is None:
            yield training._replace(run=clock.timed(training.run))
            return
        session = program.session
        program.session = ClockedSession(session, clock)
        try:
            yield training
        finally:
            program.session = session

    def step_profiler(self, loss: str | None) -> Any:
        """See :class:`ProfilesSteps`."""
        from deep500.frameworks.onnxruntime.profiling import StepProfiler

        return StepProfiler(self, loss)


def _has_gpu(wished: Device) -> bool:
    """Whether a session really runs on that GPU: one may be compiled in, and libraries or the device be missing."""
    if wished.kind != "gpu" or CUDA not in ort.get_available_providers():
        return False
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    try:
        session = open_session(model, session_options(), [(CUDA, {"device_id": wished.index}), "CPUExecutionProvider"])
    except (RuntimeError, *BUILD_ERRORS):
        return False
    return bool(session.get_providers()[0] == CUDA)


def _beyond(network: Graph, variables: Sequence[str]) -> list[str]:
    """Parameters that are inputs because a session's message could not hold them all; all large ones, or none."""
    fixed = {n: p.value for n, p in network.parameters.items() if n not in set(variables) and p.value.dtype != object}
    if sum(array.nbytes for array in fixed.values()) <= protos.MOST_BYTES:
        return []
    return [name for name, array in fixed.items() if array.size > _OPERANDS]


def _statistics(network: Graph) -> list[str]:
    """Parameters that training replaces although they are not trained: running means and variances."""
    return [
        name
        for node in network.nodes
        if node.op_type == "BatchNormalization" and not node.domain
        for name in node.inputs[3:5]
        if name in network.parameters
    ]
