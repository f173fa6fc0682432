"""The reference executor: NumPy, written to be read. What it computes is what every other backend must compute.

It trains by running the network that :meth:`deep500.networks.Network.with_gradient` emits, on the same kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from deep500.devices import Device, fall_back
from deep500.errors import InputError, NetworkError, nearest
from deep500.frameworks.reference.compiler import Plan
from deep500.frameworks.reference.meter import HeldBytes, node_times
from deep500.frameworks.reference.operators.table import Random
from deep500.networks.execution.executor import BoundNetwork, GraphExecutor, InputCheck
from deep500.networks.losses import find_loss
from deep500.networks.network import Network
from deep500.transformations.recomputation.rewriting import executed_step


class ReferenceNetwork(BoundNetwork):
    """A network whose parameters are the live arrays."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.results: dict[str, Any] = {}  # outputs of the last run
        self.gradients: dict[str, Any] = {}  # gradients of the last training run

    def fetch_tensors(self, names: Sequence[str]) -> list[Any]:
        """See :meth:`BoundNetwork.fetch_tensors`; parameters are the arrays themselves, not copies."""
        return [self._fetch(name) for name in names]

    def _fetch(self, name: str) -> Any:
        if name in self._parameters:
            return self._parameters[name].value
        for found in (self.gradients, self.results):
            if name in found:
                return found[name]
        known = [*self._parameters, *self.gradients, *self.results]
        raise NetworkError(
            f"got {name!r}; expected a parameter, a gradient or an output of the last run: {nearest(name, known)} "
            "Declare an inner value with add_output(), and run first"
        )

    def feed_tensor(self, name: str, value: Any) -> None:
        """See :meth:`BoundNetwork.feed_tensor`."""
        old, new = self._parameter(name).value, np.asarray(value)
        if new.shape != old.shape or new.dtype != old.dtype:
            raise InputError(
                f"parameter {name!r}: got {new.dtype}{list(new.shape)}; expected {old.dtype}{list(old.shape)}: convert "
                "or reshape it"
            )
        self._parameters[name].value = np.array(new, old.dtype)

    def assign_tensor(self, name: str, value: Any) -> None:
        """See :meth:`BoundNetwork.assign_tensor`: takes the array over."""
        old = self._parameter(name).value
        if isinstance(value, np.ndarray) and value.shape == old.shape and value.dtype == old.dtype:
            self._parameters[name].value = value
        else:
            self.feed_tensor(name, value)

    def _sync(self) -> None:
        """Nothing to do: the parameters are the live arrays."""


class Executor(GraphExecutor):
    """Runs a network with NumPy.

    Args:
        network: stays as it is; ``executor.network`` is a copy of it, bound to this executor.
        device: the processor; another one falls back to it with a warning.
        strict: raise MissingDevice instead of falling back.
        seed: of Dropout and its like, see :meth:`reseed`.

    Raises:
        UnsupportedOperator: naming every node that neither we nor ONNX's reference evaluator can run.

    Example:
        >>> import deep500.networks as d5nt
        >>> executor = Executor(d5nt.create("mlp", shape=(4,), classes=3))
        >>> executor.inference({"input": np.ones((2, 4), "float32")})["output"].shape
        (2, 3)
    """

    backend = "reference"

    def __init__(
        self, network: Network, device: Device | str | None = None, strict: bool = False, seed: int = 0
    ) -> None:
        super().__init__(device)
        self.device = fall_back(self.device, 0, strict)
        self.random = Random(seed)
        self.network: ReferenceNetwork = ReferenceNetwork(network)
        self._version = -1
        self._inferences: dict[tuple[str, ...], tuple[Plan, InputCheck]] = {}
        self._trainings: dict[str, Training] = {}
        self._inference(tuple(network.outputs))

    # -- running ----------------------------------------------------------------------------------------------------
    def inference(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, Any]:
        """See :meth:`GraphExecutor.inference`."""
        plan, check = self._inference(tuple(self.network.outputs if outputs is None else outputs))
        check(inputs)
        events = self.events
        if events.before_forward:
            events.emit(events.before_forward, self)
        results = plan.run(_arrays(inputs))
        self.network.results = results
        if events.after_forward:
            events.emit(events.after_forward, self)
        return dict(results)

    def inference_and_backprop(self, inputs: Mapping[str, Any], loss: str = "loss") -> dict[str, Any]:
        """See :meth:`GraphExecutor.inference_and_backprop`."""
        return self._train(inputs, loss)

    def _train(self, inputs: Mapping[str, Any], loss: str, held: HeldBytes | None = None) -> dict[str, Any]:
        self._check_planned(inputs, loss)
        training, bound, events = self._training(loss), self.network, self.events
        training.check(inputs)
        if events.before_forward_backward:
            events.emit(events.before_forward_backward, self)
        bound.gradients, bound.results = {}, {}  # so that two steps' are never held at once
        results = training.plan.run(_arrays(inputs), held)
        bound.gradients = {name: results[name] for name in training.gradients}
        bound.results = {name: results[name] for name in training.returned}
        for parameter, value in training.updates.items():
            bound.assign_tensor(parameter, results[value])
        if events.after_forward_backward:
            events.emit(events.after_forward_backward, self)
        return dict(bound.results)

    def step_memory(self, inputs: Mapping[str, Any], loss: str = "loss") -> int:
        """See :class:`CountsStepMemory`: by the arrays themselves, after each kernel; views do not count again.

        What a kernel needs inside, such as the columns of a convolution, is not counted; ``tracemalloc`` sees that too.
        """
        held = HeldBytes([*inputs.values(), *(p.value for p in self.network._parameters.values())])
        self._train(inputs, loss, held)
        return held.peak

    def node_times(self, network: Network, inputs: Mapping[str, Any], samples: int = 5) -> dict[str, float]:
        """See :class:`TimesNodes`: of each kernel in a run of all of them."""
        return node_times(Plan(network, network.outputs, Random(0)), _arrays(inputs), samples)

    def reseed(self, seed: int) -> None:
        """See :meth:`GraphExecutor.reseed`."""
        self.random.reseed(seed)

    def synchronize(self) -> None:
        """Nothing to wait for."""

    # -- compiling --------------------------------------------------------------------------------------------------
    def _forget_if_edited(self) -> None:
        if self._version != self.network.version:
            self._inferences.clear()
            self._trainings.clear()
            self._version = self.network.version

    def _inference(self, outputs: tuple[str, ...]) -> tuple[Plan, InputCheck]:
        self._forget_if_edited()
        if outputs not in self._inferences:
            for name in outputs:
                if not self.network.has_value(name):
                    raise NetworkError(
                        f"got output {name!r}; expected a value of the network: {nearest(name, self.network.values())}"
                    )
            plan = Plan(self.network, outputs, self.random, self.network._parameters)
            self._inferences[outputs] = plan, self._check(plan.inputs)
        return self._inferences[outputs]

    def _training(self, loss: str) -> Training:
        self._forget_if_edited()
        if loss not in self._trainings:
            find_loss(self.network, loss)
            network, updates = executed_step(self.network, self.checkpointing, loss)
            gradients = [gradient for _, gradient in self.network.gradient(loss)]
            if not gradients:
                raise NetworkError(
                    f"got loss {loss!r}, which no trainable parameter influences; expected one that does: name another"
                )
            returned = list(dict.fromkeys([*self.network.outputs, loss]))
            wanted = list(dict.fromkeys([*returned, *gradients, *updates.values()]))
            plan = Plan(network, wanted, self.random, self.network._parameters)
            check = self._check(list(self.network.inputs))
            self._trainings[loss] = Training(plan, check, returned, gradients, updates)
        return self._trainings[loss]

    def _forget_training(self) -> None:
        self._trainings.clear()

    def _check(self, names: Sequence[str]) -> InputCheck:
        inputs = self.network.inputs
        return InputCheck({name: inputs[name] for name in names}, also_known=list(inputs))


class Training(NamedTuple):
    """A compiled training run."""

    plan: Plan
    check: InputCheck
    returned: list[str]
    gradients: list[str]
    updates: dict[str, str]  # running statistic -> the value that replaces it


def _arrays(inputs: Mapping[str, Any]) -> dict[str, Any]:
    kept = (list, type(None))  # sequences and empty optionals
    return {name: value if isinstance(value, kept) else np.asarray(value) for name, value in inputs.items()}
