"""Executors of backends without automatic differentiation: they train by running the gradient that networks emit.

A training step is a network like any other (:func:`deep500.networks.execution.modes.training_network`, then
``with_gradient``; or what a checkpointing plan makes of it), whose outputs are those of the network, the gradients and
the new running statistics. A backend supplies programs: what it compiles a network to.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from deep500.devices import Device
from deep500.networks.execution.bound import BoundNetwork
from deep500.networks.execution.executor import GraphExecutor
from deep500.networks.execution.input_check import InputCheck, input_check
from deep500.networks.execution.labels import check_range, class_labels
from deep500.networks.execution.refusals import unfit_parameter, unknown_value, unreached_loss
from deep500.networks.execution.slicing import check_outputs, sources
from deep500.networks.graph import Graph
from deep500.networks.losses import find_loss, gradient_name

if TYPE_CHECKING:
    from deep500.networks.execution.framework_clock import ClockedStep, FrameworkClock


class ArrayNetwork(BoundNetwork):
    """A network whose parameters are the live arrays, which compiled programs read in place."""

    def __init__(self, network: Graph) -> None:
        super().__init__(network)
        self.results: dict[str, Any] = {}  # outputs of the last run
        self.gradients: dict[str, Any] = {}  # gradients of the last training run
        self.written: set[str] = set()  # parameters overwritten since the executor last looked

    def fetch_tensors(self, names: Sequence[str]) -> list[Any]:
        """See :meth:`BoundNetwork.fetch_tensors`; parameters are the arrays themselves, not copies."""
        return [self._fetch(name) for name in names]

    def _fetch(self, name: str) -> Any:
        if self.has_parameter(name):
            return self.parameter(name).value
        for values in (self.gradients, self.results):
            if name in values:
                return values[name]
        owner = name.removesuffix(gradient_name(""))
        if self.gradients and owner in self.parameters and self.parameters[owner].trainable:
            return np.zeros_like(self.parameters[owner].value)  # the loss does not reach it
        raise unknown_value(name, [*self.parameters, *self.gradients, *self.results])

    def feed_tensor(self, name: str, value: Any) -> None:
        """See :meth:`BoundNetwork.feed_tensor`."""
        self.assign_tensor(name, np.array(value))

    def assign_tensor(self, name: str, value: Any) -> None:
        """See :meth:`BoundNetwork.assign_tensor`: takes an array over."""
        old, new = self.parameter(name).value, value if isinstance(value, np.ndarray) else np.array(value)
        if new.shape != old.shape or new.dtype != old.dtype:
            raise unfit_parameter(name, new, old)
        self.parameter(name).value = new
        self.written.add(name)

    def release_tensor(self, name: str) -> None:
        """See :meth:`BoundNetwork.release_tensor`."""
        self.assign_tensor(name, self._hollow(name))

    def forget_results(self) -> None:
        """See :meth:`BoundNetwork.forget_results`."""
        self.results = {}

    def leave_gradients(self, gradients: Mapping[str, Any]) -> None:
        """See :meth:`BoundNetwork.leave_gradients`."""
        self.gradients.update({gradient_name(name): value for name, value in gradients.items()})

    def sync(self) -> None:
        """Nothing to do: the parameters are the live arrays."""


class ArrayProgram(Protocol):
    """Some values of a network, compiled.

    Attributes:
        inputs: names of the network's inputs that they depend on.
    """

    inputs: list[str]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The values by name."""


class CompiledStep(NamedTuple):
    """A compiled training step.

    Attributes:
        program: computes outputs, gradients and running statistics.
        run: of the program.
        check: of the inputs.
        labels: inputs that are class labels, and their ranges.
        returned, gradients: names of what the step leaves behind.
        updates: for each running statistic the value that replaces it.
    """

    program: Any
    run: Callable[[Mapping[str, Any]], dict[str, Any]]
    check: InputCheck
    labels: Mapping[str, tuple[Any, ...]]
    returned: list[str]
    gradients: list[str]
    updates: dict[str, str]


class EmittedGradientExecutor(GraphExecutor):
    """Runs programs: for inference one per selection of outputs, for training one per loss."""

    network: ArrayNetwork

    def __init__(self, device: Device | str | None, network: Graph) -> None:
        super().__init__(device)
        self.network = ArrayNetwork(network)
        self._version = -1
        self._inferences: dict[tuple[str, ...], tuple[Any, InputCheck]] = {}
        self._trainings: dict[str, CompiledStep] = {}

    # -- what a backend supplies ------------------------------------------------------------------------------------
    @abc.abstractmethod
    def step_network(self, loss: str) -> tuple[Graph, dict[str, str]]:
        """A training step as a network, the plan's if there is one, and the value that replaces each running statistic.

        Without a plan it is :func:`~deep500.networks.execution.modes.training_network`, then ``with_gradient``.
        """

    @abc.abstractmethod
    def inference_program(self, outputs: tuple[str, ...]) -> ArrayProgram:
        """Compile the part of the network that these outputs need."""

    @abc.abstractmethod
    def training_program(self, step: Graph, outputs: Sequence[str], statistics: Sequence[str]) -> ArrayProgram:
        """Compile a training step; ``statistics`` are the parameters that it replaces beside the trainable ones."""

    # -- running ----------------------------------------------------------------------------------------------------
    def inference(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """See :meth:`GraphExecutor.inference`."""
        program, check = self._inference(tuple(self.network.outputs if outputs is None else outputs))
        check(inputs)
        events = self.events
        if events.before_forward:
            events.emit(events.before_forward, self)
        results = program.run(inputs)
        self.network.results = results
        if events.after_forward:
            events.emit(events.after_forward, self)
        return dict(results)

    def inference_and_backprop(self, inputs: Mapping[str, Any], loss: str = "loss") -> dict[str, Any]:
        """See :meth:`GraphExecutor.inference_and_backprop`: one program computes all that a step leaves behind."""
        self._check_planned(inputs, loss)
        training, bound, events = self._training(loss), self.network, self.events
        training.check(inputs)
        for name, limits in training.labels.items():
            check_range(name, inputs.get(name), *limits)
        if events.before_forward_backward:
            events.emit(events.before_forward_backward, self)
        bound.gradients, bound.results = {}, {}  # so that two steps' are never held at once
        results = training.run(inputs)
        bound.gradients = {name: results[name] for name in training.gradients}
        bound.results = {name: results[name] for name in training.returned}
        for parameter, value in training.updates.items():
            bound.assign_tensor(parameter, results[value])
        if events.after_forward_backward:
            events.emit(events.after_forward_backward, self)
        return dict(bound.results)

    def synchronize(self) -> None:
        """Nothing to wait for: a run returns when it is done."""

    def clocked_step(self, inputs: Mapping[str, Any], loss: str = "loss") -> ClockedStep:
        """See :class:`~deep500.networks.execution.capabilities.ClocksFramework`."""
        from deep500.networks.execution.framework_clock import FrameworkClock

        plain, clock = self._training(loss), FrameworkClock()
        with self.clocked(plain, clock) as watched:
            self._trainings[loss] = watched
            try:
                return clock.step(self, inputs, loss)
            finally:
                self._trainings[loss] = plain

    @contextmanager
    def clocked(self, training: CompiledStep, clock: FrameworkClock) -> Iterator[CompiledStep]:
        """A step whose kernels run through a clock."""
        yield training._replace(run=clock.timed(training.run))

    # -- compiling --------------------------------------------------------------------------------------------------
    def _refresh(self) -> None:
        """Drop programs of a network that was edited since."""
        if self._version != self.network.version:
            self._inferences, self._trainings, self._version = {}, {}, self.network.version
            self.network.written.clear()

    def _inference(self, outputs: tuple[str, ...]) -> tuple[ArrayProgram, InputCheck]:
        self._refresh()
        if outputs not in self._inferences:
            check_outputs(self.network, outputs)
            program = self.inference_program(outputs)
            self._inferences[outputs] = program, input_check(self.network, outputs)
        return self._inferences[outputs]

    def _training(self, loss: str) -> CompiledStep:
        self._refresh()
        if loss not in self._trainings:
            find_loss(self.network, loss)
            step, updates = self.step_network(loss)
            gradients = [gradient for _, gradient in self.network.gradient(loss)]
            if not gradients:
                raise unreached_loss(loss)
            returned = list(dict.fromkeys([*self.network.outputs, loss]))
            behind = sources(self.network.nodes, returned)
            updates = {parameter: value for parameter, value in updates.items() if parameter in behind}
            results = list(dict.fromkeys([*returned, *gradients, *updates.values()]))
            program = self.training_program(step, results, list(updates))
            check = input_check(self.network, returned)
            needed = [node for node in self.network.nodes if behind.intersection(node.writes)]
            labels = class_labels(needed, self.network.inputs, self.network.descriptors())
            self._trainings[loss] = CompiledStep(program, program.run, check, labels, returned, gradients, updates)
        return self._trainings[loss]

    def _forget_training(self) -> None:
        self._trainings.clear()
