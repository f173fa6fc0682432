"""Executors of backends that differentiate by themselves.

A network is compiled once per selection of outputs and loss (None: evaluation mode), by the backend's
:meth:`DifferentiatingExecutor.build`. What was compiled is dropped when the network is edited, or when a parameter is
written whose value stands in it. A backend supplies tensors, compiled functions and how they run.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from deep500.devices import Device, fall_back, to_device
from deep500.networks.execution.bound import BoundNetwork
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.execution.input_check import InputCheck
from deep500.networks.execution.options import ExecutorOptions
from deep500.networks.execution.precision import used_precision
from deep500.networks.execution.refusals import unknown_parameter, unknown_value
from deep500.networks.graph import Graph, Parameter
from deep500.networks.losses import find_loss, gradient_name
from deep500.networks.quantization import differentiable

if TYPE_CHECKING:
    from deep500.networks.execution.framework_clock import ClockedStep, FrameworkClock


class CompiledProgram(Protocol):
    """A network compiled for a selection of outputs, and for a loss if it trains."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the values that it computes."""

    @property
    def check(self) -> InputCheck:
        """The check of its inputs."""

    @property
    def constants(self) -> Collection[str]:
        """Parameters whose values stand in the code."""


class LiveNetwork(BoundNetwork):
    """The network of an executor that differentiates; its tensors are the executor's."""

    def __init__(self, network: Graph, executor: Any, copy: bool = True) -> None:
        super().__init__(network, copy)
        self._executor = executor

    def fetch_tensors(self, names: Sequence[str]) -> list[Any]:
        """Parameters, gradients and outputs of the last run, as they are now (see the base class)."""
        executor = self._executor
        executor.refresh()
        tensors = executor.tensors
        return [executor.current(name) if name in tensors else executor.result(name) for name in names]

    def forget_results(self) -> None:
        """See the base class."""
        self._executor.forget_results()


class DifferentiatingExecutor(GraphExecutor):
    """A network compiled by a framework that differentiates it.

    Args:
        network: is copied, unless ``copy`` is False and it is given up.
        device: the CPU if None; without a GPU, a ``GPUDevice`` falls back to it with a warning.
        options: fields of ``options_type``.

    Attributes:
        options_type: options of this backend.
        network_type: the class of its networks.
        tensors: of the parameters, by name.
        gradients: of the last training run, by parameter; a parameter that the loss does not reach may be absent.
    """

    options_type: ClassVar[type[ExecutorOptions]] = ExecutorOptions
    network_type: ClassVar[type[LiveNetwork]]
    network: Any

    def __init__(self, network: Graph, device: Device | str | None = None, copy: bool = True, **options: Any) -> None:
        self.prepare(device, self.options_type(**options))
        self.network = self.network_type(differentiable(network, self.options.quantization), self, copy)
        self.refresh()
        self.compiled(tuple(self.network.outputs), None)

    def prepare(self, device: Device | str | None, options: Any) -> None:
        """Set up everything that needs no network."""
        wished = to_device(device)
        super().__init__(fall_back(wished, self.count_gpus(wished), options.strict))
        self.options = options
        self.precision = used_precision(options.precision, self.device)
        self.deterministic = options.deterministic and self.device.kind == "gpu"
        self.tensors: dict[str, Any] = {}
        self.gradients: dict[str, Any] = {}
        self._results: dict[str, Any] = {}  # of the last run
        self._sources: dict[str, Parameter] = {}  # parameters that the tensors were made from
        self._compiled: dict[tuple[tuple[str, ...], str | None], Any] = {}
        self._version: int | None = None

    # -- what a backend supplies ------------------------------------------------------------------------------------
    @abc.abstractmethod
    def count_gpus(self, wished: Device) -> int:
        """Number of GPUs that the framework sees."""

    @abc.abstractmethod
    def live(self, name: str, parameter: Parameter) -> Any:
        """The tensor of a parameter that is new or was replaced; its array where the framework lacks the dtype."""

    @abc.abstractmethod
    def build(self, outputs: tuple[str, ...], loss: str | None) -> CompiledProgram:
        """Compile the part of the network that these outputs need: with gradients of a loss, or in evaluation mode."""

    @abc.abstractmethod
    def forward(self, compiled: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run what was compiled for evaluation mode; a dict of its own."""

    def step(self, compiled: Any, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run what was compiled for a loss, leave the gradients behind, and return the outputs in a dict of its own."""
        raise NotImplementedError

    def clocked(self, compiled: Any, clock: FrameworkClock) -> Any:
        """The compiled program with its calls of the framework through a clock."""
        raise NotImplementedError

    def current(self, name: str) -> Any:
        """The tensor of a parameter as it is now, in ONNX's layout."""
        return self.tensors[name]

    def shown(self, name: str, tensor: Any) -> Any:
        """A tensor that the backend holds in its own layout of a parameter, in ONNX's layout."""
        return tensor

    def zeros(self, name: str) -> Any:
        """Zeros like the tensor of a parameter."""
        raise NotImplementedError

    # -- compiling --------------------------------------------------------------------------------------------------
    def refresh(self) -> None:
        """Take notice of edits: tensors of parameters that stay are kept, what was compiled is dropped."""
        network = self.network
        if self._version == network.version:
            return
        parameters, sources, tensors = network.parameters, self._sources, self.tensors
        self.tensors = {
            name: tensors[name] if sources.get(name) is parameter else self.live(name, parameter)
            for name, parameter in parameters.items()
        }
        self._sources = dict(parameters)
        self._compiled, self._version = {}, network.version

    def compiled(self, outputs: tuple[str, ...], loss: str | None) -> Any:
        """The program for these outputs: in training mode with gradients of a loss, in evaluation mode without one."""
        key = outputs, loss
        if key not in self._compiled:
            self._compiled[key] = self.build(outputs, loss)
        return self._compiled[key]

    def evaluation(self, outputs: tuple[str, ...]) -> Any:
        """The program in evaluation mode that :meth:`inference` runs."""
        return self.compiled(outputs, None)

    def training_step(self, loss: str) -> Any:
        """The program that trains by this loss."""
        self.refresh()
        outputs = tuple(self.network.outputs)
        if loss not in outputs:
            outputs = (*outputs, find_loss(self.network, loss))
        return self.compiled(outputs, loss)

    def checked_step(self, inputs: Mapping[str, Any], loss: str) -> Any:
        """The program that trains by this loss, once these inputs are checked."""
        self._check_planned(inputs, loss)
        compiled = self.training_step(loss)
        compiled.check(inputs)
        return compiled

    def _forget_training(self) -> None:
        self._compiled = {key: compiled for key, compiled in self._compiled.items() if key[1] is None}

    def is_constant(self, name: str) -> bool:
        """Whether the value of a parameter stands in what was compiled."""
        return any(name in compiled.constants for compiled in self._compiled.values())

    def forget_constant(self, name: str) -> None:
        """Drop what was compiled with the value of a parameter that was written."""
        for key in [key for key, compiled in self._compiled.items() if name in compiled.constants]:
            del self._compiled[key]

    def forget_constants(self, names: frozenset[str]) -> None:
        """Do so for all parameters of these that stand in what was compiled."""
        for name in {n for compiled in self._compiled.values() for n in names.intersection(compiled.constants)}:
            self.forget_constant(name)

    # -- running ----------------------------------------------------------------------------------------------------
    def inference(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """Run forward in evaluation mode (see the base class)."""
        self.refresh()
        compiled = self.evaluation(tuple(self.network.outputs if outputs is None else outputs))
        compiled.check(inputs)
        events = self.events
        if events.before_forward:
            events.emit(events.before_forward, self)
        results = self.forward(compiled, inputs)
        if events.after_forward:
            events.emit(events.after_forward, self)
        self._results = results
        return dict(results)

    def inference_and_backprop(self, inputs: Mapping[str, Any], loss: str = "loss") -> dict[str, Any]:
        """Run forward in training mode and backward, which the framework does in one (see the base class)."""
        compiled, events = self.checked_step(inputs, loss), self.events
        if events.before_forward_backward:
            events.emit(events.before_forward_backward, self)
        results = self.step(compiled, inputs)
        if events.after_forward_backward:
            events.emit(events.after_forward_backward, self)
        self._results = results
        return dict(results)

    def clocked_step(self, inputs: Mapping[str, Any], loss: str = "loss") -> ClockedStep:
        """See :class:`~deep500.networks.execution.capabilities.ClocksFramework`."""
        from deep500.networks.execution.framework_clock import FrameworkClock

        plain, clock = self.training_step(loss), FrameworkClock(self.wait)
        key = next(key for key, compiled in self._compiled.items() if compiled is plain and key[1] == loss)
        self._compiled[key] = self.clocked(plain, clock)
        try:
            return clock.step(self, inputs, loss)
        finally:
            self._compiled[key] = plain

    def wait(self) -> None:
        """Wait for what a call of the framework asked the device for, while it is under the clock."""
        self.synchronize()

    # -- what the network asks --------------------------------------------------------------------------------------
    def tensor(self, name: str) -> Any:
        """The live tensor of a parameter; raises NetworkError with the nearest name."""
        self.refresh()
        if name not in self.tensors:
            raise unknown_parameter(name, self.tensors)
        return self.tensors[name]

    def result(self, name: str) -> Any:
        """A gradient or an output of the last run."""
        owner = name.removesuffix(_GRADIENT) if name.endswith(_GRADIENT) else ""
        if owner in self.gradients:
            return self.shown(owner, self.gradients[owner])
        if name in self._results:
            return self._results[name]
        trainable = self.network.trainable()
        if owner in trainable:
            return self.shown(owner, self.zeros(owner))  # the loss does not reach it
        raise unknown_value(name, [*self.tensors, *map(gradient_name, trainable), *self._results])

    def forget_results(self) -> None:
        """Let go of the outputs of the last run."""
        self._results = {}


_GRADIENT = gradient_name("")
