"""`Executor`: a network as one ``tf.function`` over ``tf.Variable``s, with TensorFlow's automatic differentiation."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deep500.devices import Device, fall_back, to_device
from deep500.errors import Deep500Error
from deep500.frameworks.tensorflow.compiler import TARGET, NeedsValue, Randomness, Walk, failure
from deep500.frameworks.tensorflow.dtypes import DTYPES, from_array, tf_dtype, to_array
from deep500.frameworks.tensorflow.layout import kernels
from deep500.frameworks.tensorflow.memory import step_memory
from deep500.frameworks.tensorflow.numerics import adopt
from deep500.frameworks.tensorflow.operators.windows import kernel_first, kernel_last
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.executor import BoundNetwork, GraphExecutor, InputCheck, input_check
from deep500.networks.execution.grouping import planned
from deep500.networks.execution.precision import Numerics, used_precision
from deep500.networks.execution.program import Program, from_network
from deep500.networks.execution.refusals import (
    loss_not_scalar,
    unfit_parameter,
    unknown_parameter,
    unknown_value,
    unreached_loss,
)
from deep500.networks.execution.slicing import sources
from deep500.networks.losses import find_loss, gradient_name
from deep500.networks.network import Choice, Network, Parameter
from deep500.networks.quantization import differentiable
from deep500.tensors import TensorDescriptor


def from_model(
    network: Network,
    device: Device | str | None = None,
    jit_compile: bool = False,
    strict: bool = False,
    quantization: str | None = None,
    precision: str = "ieee",
    deterministic: bool = False,
) -> Executor:
    """An executor for a network.

    Args:
        network: is copied.
        device: the processor if None; without a GPU, a ``GPUDevice`` falls back to it with a warning.
        jit_compile: let XLA compile the functions (seconds per input shape).
        strict: raise MissingDevice instead of falling back.
        quantization: what gradients of quantised values are: none, or those of the straight-through estimator
            (``"straight_through"``, see :mod:`deep500.networks.quantization`).
        precision: of float32 on a GPU: ``"ieee"``, or ``"tf32"``, which rounds what products and convolutions take to
            ten bits of fraction. TensorFlow's switch is the process's: it is set before a run that wants it otherwise.
        deterministic: on a GPU, allow only kernels that give the same bits every time; others raise when they run.

    Raises:
        UnsupportedOperator: naming every node that cannot be run.

    Example:
        >>> from deep500.networks import create
        >>> executor = from_model(create("mlp", batch=2))
        >>> executor.variables["fc1.bias"].shape
        TensorShape([128])
    """
    return Executor(network, device, jit_compile, strict, quantization, precision, deterministic)


def from_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    device: Device | str | None = None,
    trainable: Choice | None = None,
    **options: Any,
) -> Executor:
    """An executor for an ONNX model: a path, bytes or a message; see :func:`from_model` for the options."""
    return Executor(Network.from_onnx(model, trainable), device, **options)


@dataclass
class Compiled:
    """A function for one selection of outputs and one mode, and what it wants."""

    call: Callable[..., Any]
    inputs: list[str]
    outputs: tuple[str, ...]
    gradients: list[str]
    check: InputCheck
    run: Callable[..., Any]  # the same before it is traced
    # traces a function of the same inputs, with a vector of numbers before them
    trace: Callable[..., Callable[..., Any]]


class TensorFlowNetwork(BoundNetwork):
    """The network of an executor; its parameters are ``executor.variables``, kernels of convolutions transposed."""

    def __init__(self, network: Network, executor: Executor) -> None:
        super().__init__(network)
        self._executor = executor

    def fetch_tensors(self, names: Sequence[str]) -> list[Any]:
        """Tensors as they are now: parameters, gradients and outputs of the last run (see the base class)."""
        executor = self._executor
        executor.refresh()
        return [executor.parameter(n) if n in executor.variables else executor.result(n) for n in names]

    def feed_tensor(self, name: str, value: Any) -> None:
        """Overwrite a parameter (see the base class)."""
        executor = self._executor
        variable = executor.variable(name)
        dtype = value.dtype.name if hasattr(value, "dtype") else np.asarray(value).dtype.name
        new, old = TensorDescriptor(dtype, np.shape(value)), TensorDescriptor(_name(variable), executor.shape(name))
        if new != old:
            raise unfit_parameter(name, new, old)
        variable.assign(executor.held(name, value if isinstance(value, tf.Tensor) else from_array(value)))
        executor.forget_constant(name)

    def leave_gradients(self, gradients: Mapping[str, Any]) -> None:
        """In the executor, in the layout of its variables."""
        held = self._executor.held
        self._executor._gradients.update({name: held(name, gradient) for name, gradient in gradients.items()})

    def weighted_sum(self, terms: Sequence[Sequence[Any]], weights: Sequence[float]) -> list[Any]:
        """One ``tf.function`` of all tensors."""
        with tf.device(self._executor.tf_device):
            summed: list[Any] = _weighted_sum([list(term) for term in terms], tf.constant(weights, tf.float64))
        return summed

    def concatenate(self, tensors: Sequence[Any]) -> Any:
        """By ``tf.concat``."""
        return tf.concat(list(tensors), 0)

    def to_tensor(self, array: np.ndarray) -> Any:
        """An array as a tensor of its own on the device."""
        with tf.device(self._executor.tf_device):
            return from_array(np.array(array))

    @staticmethod
    def to_numpy(tensor: Any) -> np.ndarray:
        """A tensor as an array; waits for the device."""
        return to_array(tensor)


@tf.function(autograph=False)
def _weighted_sum(terms: list[list[Any]], weights: Any) -> list[Any]:
    return [
        tf.add_n([tf.cast(weights[i], tensor.dtype) * tensor for i, tensor in enumerate(column)])
        for column in zip(*terms, strict=True)
    ]


def _name(variable: Any) -> str:
    return variable.dtype.name if isinstance(variable, tf.Variable) else str(variable.dtype)


class Executor(GraphExecutor):
    """A network as TensorFlow functions on a device; see :func:`from_model` for the arguments.

    Attributes:
        variables: a ``tf.Variable`` per parameter.
        kernels: those of them that convolutions read, held as ``[*size, inputs, outputs]``; everything that speaks of
            parameters by name (``network``, checkpoints, gradients) has them in ONNX's layout.
    """

    backend = "tensorflow"
    choices = ("jit_compile", "precision", "deterministic")
    network: TensorFlowNetwork

    def __init__(
        self,
        network: Network,
        device: Device | str | None = None,
        jit_compile: bool = False,
        strict: bool = False,
        quantization: str | None = None,
        precision: str = "ieee",
        deterministic: bool = False,
    ) -> None:
        self._prepare(device, jit_compile, strict)
        self.precision = used_precision(precision, self.device)
        self.deterministic = deterministic and self.device.kind == "gpu"
        self.network = TensorFlowNetwork(differentiable(network, quantization), self)
        self.refresh()
        self.compiled(tuple(self.network.outputs), None)

    def _prepare(self, device: Device | str | None, jit_compile: bool, strict: bool) -> None:
        """Everything that needs no network."""
        super().__init__(fall_back(to_device(device), len(tf.config.list_physical_devices("GPU")), strict))
        self.tf_device = f"/{self.device.kind.upper()}:{self.device.index if self.device.kind == 'gpu' else 0}"
        self.jit_compile = jit_compile
        self.variables: dict[str, Any] = {}
        self.kernels: set[str] = set()
        self._sources: dict[str, Parameter] = {}
        self._compiled: dict[Any, Compiled] = {}
        self._results: dict[str, Any] = {}
        self._gradients: dict[str, Any] = {}  # by parameter, in the variables' layout
        self._version: int | None = None
        self._read_as_constants: set[str] = set()
        with tf.device(self.tf_device):
            self.random = Randomness()

    # -- compiling --------------------------------------------------------------------------------------------------
    def refresh(self) -> None:
        """Take notice of edits: variables of parameters that stay are kept, what was compiled is dropped."""
        network = self.network
        if self._version == network.version:
            return
        parameters, wanted = network.parameters, kernels(network.nodes)
        with tf.device(self.tf_device):
            self.variables = {name: self._live(name, parameter, wanted) for name, parameter in parameters.items()}
        self.kernels &= set(parameters)
        self._sources = dict(parameters)
        self._compiled, self._version = {}, network.version

    def _live(self, name: str, parameter: Parameter, kernels: Container[str]) -> Any:
        old, value = self.variables.get(name), parameter.value
        fits = isinstance(old, tf.Variable) and old.trainable == parameter.trainable
        if fits and self._sources[name] is parameter:
            return old
        if value.dtype.kind not in "OU" and value.dtype.name not in DTYPES:
            self.kernels.discard(name)
            return value  # refused when a node wants it as a tensor
        if fits and old is not None and self.shape(name) == value.shape:
            old.assign(self.held(name, from_array(value)))
            return old
        (self.kernels.add if name in kernels and value.ndim > 2 else self.kernels.discard)(name)
        return tf.Variable(self.held(name, from_array(value)), trainable=parameter.trainable)

    def compiled(self, outputs: tuple[str, ...], loss: str | None) -> Compiled:
        """The function for these outputs: in training mode with gradients of a loss, in evaluation mode without one."""
        key = outputs, loss
        if key in self._compiled:
            return self._compiled[key]
        network = self.network
        program = from_network(network, outputs, TARGET, {n: n for n in self.variables})
        check = input_check(network, outputs)
        function: Callable[..., Any]
        gradients: list[str] = []
        if loss is None:
            function = self.forward(program)
        else:
            gradients = [name for name, _ in network.gradient(loss)]
            function = self.training(program, loss, gradients)
        call = self.function(function, program)
        self._compiled[key] = Compiled(
            call, program.inputs, outputs, gradients, check, function, lambda run: self.function(run, program, True)
        )
        return self._compiled[key]

    def forward(self, program: Program) -> Callable[..., list[Any]]:
        """A program in evaluation mode as a function of its inputs."""
        return lambda *inputs: self._walk(program, False).run(inputs)

    def _walk(
        self,
        program: Program,
        training: bool,
        watched: Mapping[str, Any] | None = None,
        reached: frozenset[str] = frozenset(),
    ) -> Walk:
        report = self._read_as_constants.add
        return Walk(program, self.variables, training, self.random, watched, report, self.kernels, reached)

    def training(self, program: Program, loss: str, names: Sequence[str]) -> Callable[..., tuple[list[Any], list[Any]]]:
        """A program in training mode: its outputs and the gradients of the loss."""
        if not names:
            raise unreached_loss(loss)
        items, reached = planned(program, self.network, self.checkpointing), frozenset(sources(program.nodes, [loss]))

        def run(*inputs: Any) -> tuple[list[Any], list[Any]]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                watched = {name: self.variables[name].value() for name in names}
                tape.watch(list(watched.values()))
                results = self._walk(program, True, watched, reached).run(inputs, items)
                goal = results[program.outputs.index(loss)]
                if goal.shape.num_elements() != 1:
                    raise loss_not_scalar(loss, f"shape {tuple(goal.shape)}")
            gradients = tape.gradient(goal, list(watched.values()), unconnected_gradients="zero")
            return results, [tf.convert_to_tensor(g) for g in gradients]  # gathers have sparse ones

        return run

    def _forget_training(self) -> None:
        self._compiled = {key: compiled for key, compiled in self._compiled.items() if key[1] is None}

    def function(self, run: Callable[..., Any], program: Program, numbers: bool = False) -> Callable[..., Any]:
        """The function traced by ``tf.function`` once for all batch sizes; eager if it cannot be traced."""
        descriptors = [self.network.inputs[name] for name in program.inputs]
        if any("(" in (d.dtype or "") for d in descriptors):  # sequences and optional values
            return run
        if any("float8" in (d.dtype or "") for d in program.descriptors.values()):  # TensorFlow's optimizer lacks them
            return run
        specs = [
            tf.TensorSpec(
                None if d.shape is None else [n if isinstance(n, int) else None for n in d.shape], tf_dtype(d.dtype)
            )
            for d in descriptors
        ]
        specs = [tf.TensorSpec([None], tf.float64), *specs] if numbers else specs
        traced = tf.function(run, input_signature=specs, autograph=False, jit_compile=self.jit_compile or None)
        of_nothing = tf.function(run, autograph=False)  # sees that a size is 0, which needs other kernels
        chosen: list[Any] = []

        def call(*inputs: Any) -> Any:
            if not chosen:
                try:
                    chosen.append(traced.get_concrete_function())
                except NeedsValue:
                    chosen.append(run)
            if chosen[0] is not run and any(x.shape.num_elements() == 0 for x in inputs[numbers:]):
                return of_nothing(*inputs)
            return chosen[0](*inputs)

        return call

    # -- running ----------------------------------------------------------------------------------------------------
    def inference(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run forward in evaluation mode (see the base class)."""
        self.refresh()
        compiled = self.compiled(tuple(self.network.outputs if outputs is None else outputs), None)
        compiled.check(inputs)
        events = self.events
        if events.before_forward:
            events.emit(events.before_forward, self)
        results = self.run(compiled, inputs)
        if events.after_forward:
            events.emit(events.after_forward, self)
        self._results, self._gradients = dict(zip(compiled.outputs, results, strict=True)), {}
        return dict(self._results)

    def inference_and_backprop(self, inputs: Mapping[str, Any], loss: str = "loss") -> dict[str, Any]:
        """Run forward in training mode and backward, in one function (see the base class)."""
        self._check_planned(inputs, loss)
        compiled = self.training_step(loss)
        compiled.check(inputs)
        events = self.events
        if events.before_forward_backward:
            events.emit(events.before_forward_backward, self)
        results, gradients = self.run(compiled, inputs)
        if events.after_forward_backward:
            events.emit(events.after_forward_backward, self)
        return self.keep(compiled, results, gradients)

    def training_step(self, loss: str) -> Compiled:
        """The function that trains by this loss."""
        self.refresh()
        outputs = tuple(self.network.outputs)
        if loss not in outputs:
            outputs = (*outputs, find_loss(self.network, loss))
        return self.compiled(outputs, loss)

    def keep(self, compiled: Compiled, results: Sequence[Any], gradients: Sequence[Any]) -> dict[str, Any]:
        """Remember what a training run left behind; returns its outputs."""
        self._results = dict(zip(compiled.outputs, results, strict=True))
        self._gradients = dict(zip(compiled.gradients, gradients, strict=True))
        return dict(self._results)

    def forget_results(self) -> None:
        """Release what the last run left behind."""
        self._results, self._gradients = {}, {}

    def run(
        self, compiled: Compiled, inputs: Mapping[str, Any], call: Callable[..., Any] | None = None, *before: Any
    ) -> Any:
        """Call a compiled function, or another of the same inputs with further arguments before them."""
        if self.device.kind == "gpu":
            adopt(Numerics(self.precision, self.deterministic))
        try:
            with tf.device(self.tf_device):
                return (call or compiled.call)(*before, *[self.tensor(inputs.get(name)) for name in compiled.inputs])
        except Deep500Error:
            raise
        except (tf.errors.OpError, ValueError, TypeError) as error:
            raise failure(error, f"network {self.network.name!r}") from error

    def tensor(self, value: Any) -> Any:
        """An input as a tensor; sequences stay lists, absent optional values None."""
        if value is None or isinstance(value, tf.Tensor):
            return value
        if isinstance(value, (list, tuple)):
            return [self.tensor(item) for item in value]
        return from_array(value)

    # -- what the network asks --------------------------------------------------------------------------------------
    def variable(self, name: str) -> Any:
        """The variable of a parameter; raises NetworkError with the nearest name."""
        self.refresh()
        if name not in self.variables:
            raise unknown_parameter(name, self.variables)
        return self.variables[name]

    def parameter(self, name: str) -> Any:
        """A parameter as it is now, in ONNX's layout."""
        return self.shown(name, self.variables[name].read_value())

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a parameter in ONNX's layout."""
        shape = tuple(self.variables[name].shape)
        return (shape[-1], shape[-2], *shape[:-2]) if name in self.kernels else shape

    def update_engine(self) -> Any:
        """See ``CompilesUpdates``: one function of network and update."""
        from deep500.frameworks.tensorflow.updates import Engine

        self.refresh()
        return Engine(self)

    def shown(self, name: str, tensor: Any) -> Any:
        """What has the layout of a parameter's variable, in ONNX's layout."""
        return kernel_first(tensor) if name in self.kernels else tensor

    def held(self, name: str, tensor: Any) -> Any:
        """What has a parameter's shape in ONNX's layout, in the layout of its variable: reverses :meth:`shown`."""
        return kernel_last(tensor) if name in self.kernels else tensor

    def result(self, name: str) -> Any:
        """An output or a gradient of the last run; the gradient of what the loss does not reach is 0."""
        if name in self._results:
            return self._results[name]
        owner = next((n for n in self.network.trainable() if gradient_name(n) == name), None)
        if owner is not None:
            gradient = self._gradients.get(owner)
            return self.shown(owner, tf.zeros_like(self.variables[owner]) if gradient is None else gradient)
        known = [*self.variables, *map(gradient_name, self.network.trainable()), *self._results]
        raise unknown_value(name, known)

    def forget_constant(self, name: str) -> None:
        """A parameter was written: if its value stands in a graph, trace again."""
        if name in self._read_as_constants:
            self._compiled, self._read_as_constants = {}, set()

    def reseed(self, seed: int) -> None:
        """Restart what Dropout and its like draw."""
        super().reseed(seed)
        self.random.reseed(seed)

    def synchronize(self) -> None:
        """Wait until the device has finished."""
        if self.device.kind == "gpu":
            tf.test.experimental.sync_devices()

    def peak_memory(self, reset: bool = False) -> int | None:
        """Largest sum of tensors on the GPU since the last reset, in bytes; None on the processor."""
        if self.device.kind != "gpu":
            return None
        name = f"GPU:{self.device.index}"
        peak = tf.config.experimental.get_memory_info(name)["peak"]
        if reset:
            tf.config.experimental.reset_memory_stats(name)
        return int(peak)

    def step_memory(self, inputs: Mapping[str, Any], loss: str = "loss") -> int | None:
        """See ``CountsStepMemory``; None on processors, of whose tensors TensorFlow counts the large ones only.

        Those are what :func:`deep500.frameworks.tensorflow.memory.step_memory` tells. Two steps run.
        """
        return None if self.device.kind == "cpu" else step_memory(self, inputs, loss)
