"""`Executor`: a network as one ``tf.function`` over ``tf.Variable``s, with TensorFlow's automatic differentiation."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deep500.devices import Device
from deep500.errors import Deep500Error
from deep500.frameworks.tensorflow.compiler import TARGET, Randomness, Walk, failure
from deep500.frameworks.tensorflow.dtypes import DTYPES, as_tensor, from_array
from deep500.frameworks.tensorflow.layout import kernels
from deep500.frameworks.tensorflow.memory import step_memory
from deep500.frameworks.tensorflow.network import TensorFlowNetwork
from deep500.frameworks.tensorflow.numerics import adopt
from deep500.frameworks.tensorflow.operators.windows import kernel_first, kernel_last
from deep500.frameworks.tensorflow.runtime import tf
from deep500.frameworks.tensorflow.tracing import traced
from deep500.keywords import hands_on
from deep500.networks.execution.differentiating import DifferentiatingExecutor
from deep500.networks.execution.framework_clock import FrameworkClock
from deep500.networks.execution.grouping import planned
from deep500.networks.execution.guards import guarded
from deep500.networks.execution.input_check import InputCheck, input_check
from deep500.networks.execution.options import ExecutorOptions
from deep500.networks.execution.precision import Numerics
from deep500.networks.execution.program import Program, from_network
from deep500.networks.execution.refusals import loss_not_scalar, unreached_loss
from deep500.networks.execution.slicing import sources
from deep500.networks.network import Choice, Network, Parameter


@dataclass(frozen=True, kw_only=True)
class TensorFlowOptions(ExecutorOptions):
    """Options of this backend beside those of all.

    TensorFlow's switch of ``precision`` is the process's: it is set before a run that wants it otherwise. Kernels that
    ``deterministic`` does not allow raise when they run.

    Attributes:
        jit_compile: let XLA compile the functions (seconds per input shape).
    """

    jit_compile: bool = False


@hands_on(TensorFlowOptions)
def from_model(network: Network, device: Device | str | None = None, **options: Any) -> Executor:
    """An executor for a network, which is copied; ``options`` are those of :class:`TensorFlowOptions`.

    Raises:
        UnsupportedOperator: naming every node that cannot be run.

    Example:
        >>> from deep500.networks import create
        >>> executor = from_model(create("mlp", batch=2))
        >>> executor.variables["fc1.bias"].shape
        TensorShape([128])
    """
    return Executor(network, device, **options)


@hands_on(TensorFlowOptions)
def from_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    device: Device | str | None = None,
    trainable: Choice | None = None,
    **options: Any,
) -> Executor:
    """An executor for an ONNX model: a path, bytes or a message; see :func:`from_model` for the options."""
    return Executor(Network.from_onnx(model, trainable), device, copy=False, **options)


@dataclass
class Compiled:
    """A function for one selection of outputs and one mode, and what goes in and out of it."""

    call: Callable[..., Any]
    inputs: list[str]
    outputs: tuple[str, ...]
    gradients: list[str]
    check: InputCheck
    run: Callable[..., Any]  # the same before it is traced
    # traces a function of the same inputs, with a vector of numbers before them
    trace: Callable[..., Callable[..., Any]]
    constants: set[str] = field(default_factory=set)  # grows while functions are traced


class Executor(DifferentiatingExecutor):
    """A network as TensorFlow functions on a device; see :func:`from_model` for the arguments.

    Attributes:
        variables: a ``tf.Variable`` per parameter.
        kernels: those of them that convolutions read, held as ``[*size, inputs, outputs]``; everything that speaks of
            parameters by name (``network``, checkpoints, gradients) has them in ONNX's layout.
    """

    backend = "tensorflow"
    choices = ("jit_compile", "precision", "deterministic")
    network: TensorFlowNetwork
    network_type = TensorFlowNetwork
    options_type = TensorFlowOptions

    def prepare(self, device: Device | str | None, options: TensorFlowOptions) -> None:
        super().prepare(device, options)
        self.tf_device = f"/{self.device.kind.upper()}:{self.device.index if self.device.kind == 'gpu' else 0}"
        self.jit_compile = options.jit_compile
        self.kernels: set[str] = set()
        with tf.device(self.tf_device):
            self.random = Randomness()

    def count_gpus(self, wished: Device) -> int:
        return len(tf.config.list_physical_devices("GPU"))

    @property
    def variables(self) -> dict[str, Any]:
        """A ``tf.Variable`` per parameter."""
        return self.tensors

    # -- compiling --------------------------------------------------------------------------------------------------
    def refresh(self) -> None:
        """Take notice of edits (see the base class)."""
        if self._version != self.network.version:
            self._convolved = kernels(self.network.nodes)
            with tf.device(self.tf_device):
                super().refresh()
            self.kernels &= self.tensors.keys()

    def live(self, name: str, parameter: Parameter) -> Any:
        old, value = self.tensors.get(name), parameter.value
        if value.dtype.kind not in "OU" and value.dtype.name not in DTYPES:
            self.kernels.discard(name)
            return value  # refused when a node wants it as a tensor
        fits = isinstance(old, tf.Variable) and old.trainable == parameter.trainable
        if fits and old is not None and self.shape(name) == value.shape:
            old.assign(self.turned(name, from_array(value)))
            return old
        (self.kernels.add if name in self._convolved and value.ndim > 2 else self.kernels.discard)(name)
        return tf.Variable(self.turned(name, from_array(value)), trainable=parameter.trainable)

    def build(self, outputs: tuple[str, ...], loss: str | None) -> Compiled:
        network, constants = self.network, set[str]()
        program = from_network(network, outputs, TARGET, {name: name for name in self.tensors})
        program = program if loss is None else guarded(program)
        check = input_check(network, outputs)
        gradients = [] if loss is None else [name for name, _ in network.gradient(loss)]
        specs = [network.inputs[name] for name in program.inputs]
        # TensorFlow's graph optimizer lacks 8-bit numbers
        rare = any("float8" in (d.dtype or "") for d in program.descriptors.values())

        def forward(*inputs: Any) -> list[Any]:
            return Walk(program, self.tensors, False, self.random, None, constants.add, self.kernels).run(inputs)

        run = forward if loss is None else self._training(program, loss, gradients, constants)

        def trace(function: Callable[..., Any], numbers: bool = True) -> Callable[..., Any]:
            return function if rare else traced(function, specs, self.jit_compile, numbers)

        return Compiled(trace(run, False), program.inputs, outputs, gradients, check, run, trace, constants)

    def _training(
        self, program: Program, loss: str, names: Sequence[str], constants: set[str]
    ) -> Callable[..., tuple[list[Any], list[Any]]]:
        """A program in training mode: its outputs and the gradients of the loss."""
        if not names:
            raise unreached_loss(loss)
        items, reached = planned(program, self.network, self.checkpointing), frozenset(sources(program.nodes, [loss]))

        def run(*inputs: Any) -> tuple[list[Any], list[Any]]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                watched = {name: self.tensors[name].value() for name in names}
                tape.watch(list(watched.values()))
                walk = Walk(program, self.tensors, True, self.random, watched, constants.add, self.kernels, reached)
                results = walk.run(inputs, items)
                goal = results[program.outputs.index(loss)]
                if goal.shape.num_elements() != 1:
                    raise loss_not_scalar(loss, f"shape {tuple(goal.shape)}")
            gradients = tape.gradient(goal, list(watched.values()), unconnected_gradients="zero")
            return results, [tf.convert_to_tensor(g) for g in gradients]  # gathers have sparse ones

        return run

    # -- running ----------------------------------------------------------------------------------------------------
    def forward(self, compiled: Compiled, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return dict(zip(compiled.outputs, self.run(compiled, inputs), strict=True))

    def step(self, compiled: Compiled, inputs: Mapping[str, Any]) -> dict[str, Any]:
        results, gradients = self.run(compiled, inputs)
        return self.keep(compiled, results, gradients)

    def clocked(self, compiled: Compiled, clock: FrameworkClock) -> Compiled:
        return replace(compiled, call=clock.timed(compiled.call))

    def keep(self, compiled: Compiled, results: Sequence[Any], gradients: Sequence[Any]) -> dict[str, Any]:
        """Remember what a training run left behind; returns its outputs."""
        self._results = dict(zip(compiled.outputs, results, strict=True))
        self.gradients = dict(zip(compiled.gradients, gradients, strict=True))
        return dict(self._results)

    def run(self, compiled: Compiled, inputs: Mapping[str, Any], call: Any = None, *before: Any) -> Any:
        """Call a compiled function, or another of the same inputs with further arguments before them."""
        if self.device.kind == "gpu":
            adopt(Numerics(self.precision, self.deterministic))
        try:
            with tf.device(self.tf_device):
                return (call or compiled.call)(*before, *[as_tensor(inputs.get(name)) for name in compiled.inputs])
        except Deep500Error:
            raise
        except (tf.errors.OpError, ValueError, TypeError) as error:
            raise failure(error, f"network {self.network.name!r}") from error

    # -- what the network asks --------------------------------------------------------------------------------------
    def current(self, name: str) -> Any:
        return self.shown(name, self.tensors[name].read_value())

    def zeros(self, name: str) -> Any:
        return tf.zeros_like(self.tensors[name])

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a parameter in ONNX's layout."""
        shape = tuple(self.tensors[name].shape)
        return (shape[-1], shape[-2], *shape[:-2]) if name in self.kernels else shape

    def update_engine(self) -> type:
        """The class that compiles updates: one function of network and update."""
        from deep500.frameworks.tensorflow.updates import Updater

        return Updater

    def shown(self, name: str, tensor: Any) -> Any:
        return kernel_first(tensor) if name in self.kernels else tensor

    def turned(self, name: str, tensor: Any) -> Any:
        """A tensor in ONNX's layout of a parameter, in the layout of its variable: reverses :meth:`shown`."""
        return kernel_last(tensor) if name in self.kernels else tensor

    def reseed(self, seed: int) -> None:
        """Restart what Dropout and its like draw."""
        super().reseed(seed)
        self.random.reseed(seed)

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        if self.device.kind == "gpu":
            tf.test.experimental.sync_devices()

    def peak_memory(self, reset: bool = False) -> int | None:
        """Largest sum of tensors on the GPU since the last reset, in bytes; None on the CPU."""
        if self.device.kind != "gpu":
            return None
        name = f"GPU:{self.device.index}"
        peak = tf.config.experimental.get_memory_info(name)["peak"]
        if reset:
            tf.config.experimental.reset_memory_stats(name)
        return int(peak)

    def step_memory(self, inputs: Mapping[str, Any], loss: str = "loss") -> int | None:
        """See ``CountsStepMemory``; None on CPUs, of whose tensors TensorFlow counts the large ones only.

        Those are what :func:`deep500.frameworks.tensorflow.memory.step_memory` tells. Two steps run.
        """
        return None if self.device.kind == "cpu" else step_memory(self, inputs, loss)

    def step_profiler(self, loss: str | None) -> Any:
        """See ``ProfilesSteps``."""
        from deep500.frameworks.tensorflow.profiling import StepProfiler

        return StepProfiler(self, loss)
