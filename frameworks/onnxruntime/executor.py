"""The ONNX Runtime executor: sessions for inference, and for training on the emitted gradient.

Tensors are NumPy arrays: on the processor ONNX Runtime's values share their memory, and every optimizer and metric of
the core reads them without a copy. An inference session holds the parameters as constants, which ONNX Runtime folds and
packs, so that it is as fast as any session; once a network trains, the parameters become inputs of its sessions, and an
update needs no new session. Randomness (Dropout) belongs to the session's nodes, whose seeds are ours: ONNX Runtime's
own seed is one for the whole process, and is read only when a session is made. So ``reseed`` makes such sessions anew.
Custom operators run between sessions: see :mod:`deep500.frameworks.onnxruntime.segments`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from deep500.devices import Device, fall_back, to_device
from deep500.errors import InputError, NetworkError, nearest
from deep500.frameworks.onnxruntime.compiler import check_outputs
from deep500.frameworks.onnxruntime.program import Program
from deep500.frameworks.onnxruntime.segments import Segments, make_program
from deep500.frameworks.onnxruntime.session import options
from deep500.networks.execution.executor import BoundNetwork, GraphExecutor, InputCheck
from deep500.networks.losses import find_loss
from deep500.networks.network import Network
from deep500.transformations.recomputation.rewriting import executed_step


def from_model(network: Network, device: Device | str | None = None, **choices: Any) -> Executor:
    """An executor for a network; ``choices`` are the further arguments of :class:`Executor`."""
    return Executor(network, device, **choices)


def from_onnx(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto, device: Device | str | None = None, **choices: Any
) -> Executor:
    """An executor for an ONNX model: a path, the bytes of a file or a message; see :meth:`Network.from_onnx`."""
    return Executor(Network.from_onnx(model), device, **choices)


class OrtNetwork(BoundNetwork):
    """A network whose parameters are arrays that sessions read in place."""

    def __init__(self, network: Network) -> None:
        super().__init__(network)
        self.results: dict[str, Any] = {}  # outputs of the last run
        self.gradients: dict[str, Any] = {}  # gradients of the last training run
        self.written: set[str] = set()  # parameters overwritten since the executor last looked

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
        self.assign_tensor(name, np.array(value))

    def assign_tensor(self, name: str, value: Any) -> None:
        """See :meth:`BoundNetwork.assign_tensor`: takes an array over."""
        old, new = self._parameter(name).value, np.asarray(value)
        if new.shape != old.shape or new.dtype != old.dtype:
            raise InputError(
                f"parameter {name!r}: got {new.dtype}{list(new.shape)}; expected {old.dtype}{list(old.shape)}: convert "
                "or reshape it"
            )
        self._parameters[name].value = new
        self.written.add(name)

    def _sync(self) -> None:
        """Nothing to do: the parameters are the live arrays."""


class Training:
    """A compiled training run."""

    def __init__(
        self,
        program: Program | Segments,
        check: InputCheck,
        returned: list[str],
        gradients: list[str],
        updates: dict[str, str],
    ) -> None:
        self.program, self.check, self.returned, self.gradients = program, check, returned, gradients
        self.updates = updates  # running statistic -> the value that replaces it


class Executor(GraphExecutor):
    """Runs a network with ONNX Runtime.

    Args:
        network: stays as it is; ``executor.network`` is a copy of it, bound to this executor.
        device: the processor if None; a GPU needs onnxruntime-gpu, else it falls back with a warning.
        strict: raise MissingDevice instead of falling back.
        threads: of one run; ``OMP_NUM_THREADS`` if None, else one per core.
        seed: of Dropout and its like, see :meth:`reseed`.
        optimization: how far ONNX Runtime rewrites the graph itself: ``"disabled"``, ``"basic"``, ``"extended"`` or
            ``"all"``.

    Raises:
        InputError: an unknown level of optimization.
        UnsupportedOperator: naming every node that ONNX Runtime can run neither itself nor in other words.

    Example:
        >>> import deep500.networks as d5nt
        >>> executor = Executor(d5nt.create("mlp", shape=(4,), classes=3))
        >>> executor.inference({"input": np.ones((2, 4), "float32")})["output"].shape
        (2, 3)
    """

    backend = "onnxruntime"
    network: OrtNetwork

    def __init__(
        self,
        network: Network,
        device: Device | str | None = None,
        strict: bool = False,
        threads: int | None = None,
        seed: int = 0,
        optimization: str = "all",
    ) -> None:
        gpu = "CUDAExecutionProvider" in ort.get_available_providers()
        super().__init__(fall_back(to_device(device), 1 if gpu else 0, strict))
        cuda = ("CUDAExecutionProvider", {"device_id": self.device.index})
        self.providers: list[Any] = [cuda] * (self.device.kind == "gpu") + ["CPUExecutionProvider"]
        self.threads, self.settings = threads, options(threads, optimization=optimization)
        self.seed = seed
        self.network = OrtNetwork(network)
        self._live = False  # whether parameters are inputs of the inference sessions
        self._rebuilt = False
        self._version = -1
        self._inferences: dict[tuple[str, ...], tuple[Program | Segments, InputCheck]] = {}
        self._trainings: dict[str, Training] = {}
        self._inference(tuple(self.network.outputs))

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
        """See :meth:`GraphExecutor.inference_and_backprop`: one session computes outputs, gradients and statistics."""
        self._check_planned(inputs, loss)
        training, bound, events = self._training(loss), self.network, self.events
        training.check(inputs)
        if events.before_forward_backward:
            events.emit(events.before_forward_backward, self)
        results = training.program.run(inputs)
        bound.gradients = {name: results[name] for name in training.gradients}
        bound.results = {name: results[name] for name in training.returned}
        for parameter, value in training.updates.items():
            bound.assign_tensor(parameter, results[value])
        if events.after_forward_backward:
            events.emit(events.after_forward_backward, self)
        return dict(bound.results)

    def reseed(self, seed: int) -> None:
        """See :meth:`GraphExecutor.reseed`: sessions with random nodes are made anew, the others stay."""
        self.seed = seed
        self._inferences = {k: v for k, v in self._inferences.items() if not v[0].is_random}
        self._trainings = {k: v for k, v in self._trainings.items() if not v.program.is_random}

    def synchronize(self) -> None:
        """Nothing to wait for: a run returns when it is done."""

    # -- compiling --------------------------------------------------------------------------------------------------
    def _refresh(self) -> None:
        """Drop sessions that no longer are what the network says."""
        network = self.network
        if self._version != network.version:
            self._inferences, self._trainings, self._version = {}, {}, network.version
            network.written.clear()
        elif network.written:
            written = network.written
            if any(written & p.constants for p, _ in self._inferences.values()):
                self._live = self._live or self._rebuilt  # once may be a checkpoint, twice is a habit
                self._rebuilt = True
                self._inferences = {k: v for k, v in self._inferences.items() if not written & v[0].constants}
            self._trainings = {k: v for k, v in self._trainings.items() if not written & v.program.constants}
            written.clear()

    def _inference(self, outputs: tuple[str, ...]) -> tuple[Program | Segments, InputCheck]:
        self._refresh()
        if outputs not in self._inferences:
            check_outputs(self.network, outputs)
            variables = self.network.trainable() + _statistics(self.network) if self._live else []
            program = self._compile(self.network, outputs, variables)
            self._inferences[outputs] = program, self._check(program.inputs)
        return self._inferences[outputs]

    def _training(self, loss: str) -> Training:
        self._refresh()
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
            settings = None if self.checkpointing is None else options(self.threads, in_order=True)
            program = self._compile(network, wanted, [*self.network.trainable(), *updates], settings)
            check = self._check(list(self.network.inputs))
            self._trainings[loss] = Training(program, check, returned, gradients, updates)
            if not self._live:
                self._live, self._inferences = True, {}
        return self._trainings[loss]

    def _forget_training(self) -> None:
        self._trainings.clear()

    def _compile(
        self,
        network: Network,
        outputs: Sequence[str],
        variables: Sequence[str],
        settings: ort.SessionOptions | None = None,
    ) -> Program | Segments:
        live = self.network._parameters
        return make_program(network, outputs, variables, live, settings or self.settings, self.providers, self.seed)

    def _check(self, names: Sequence[str]) -> InputCheck:
        inputs = self.network.inputs
        return InputCheck({name: inputs[name] for name in names}, also_known=list(inputs))


def _statistics(network: Network) -> list[str]:
    """Parameters that training replaces although they are not trained: running means and variances."""
    return [
        name
        for node in network.nodes
        if node.op_type == "BatchNormalization" and not node.domain
        for name in node.inputs[3:5]
        if name in network.parameters
    ]
