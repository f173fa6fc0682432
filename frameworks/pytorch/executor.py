"""`Executor`: a network compiled to an ``nn.Module`` and run with PyTorch's own automatic differentiation.

``executor.module`` computes the network's outputs. It shares its parameters with the modules that compute other
selections of outputs, and with all that hold them: optimizers, ``DistributedDataParallel``, the user's own loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from deep500.devices import Device
from deep500.errors import UnsupportedOperator
from deep500.frameworks.pytorch.capabilities import Capabilities
from deep500.frameworks.pytorch.chance import Stream
from deep500.frameworks.pytorch.compiler import TARGET, NetworkModule, attribute_names, compile_program
from deep500.frameworks.pytorch.dtypes import DTYPES, from_array
from deep500.frameworks.pytorch.failures import CAUGHT, raise_ours
from deep500.frameworks.pytorch.network import TorchNetwork, hollow_tensor
from deep500.frameworks.pytorch.numerics import adopt
from deep500.frameworks.pytorch.options import TorchOptions
from deep500.frameworks.pytorch.sending import Sender
from deep500.keywords import hands_on
from deep500.networks.drawing import check_drawn, names_of_undrawn
from deep500.networks.execution.framework_clock import FrameworkClock
from deep500.networks.execution.input_check import InputCheck, input_check
from deep500.networks.execution.labels import check_range, class_labels, label_checks
from deep500.networks.execution.precision import Numerics
from deep500.networks.execution.program import from_network
from deep500.networks.execution.refusals import loss_not_scalar, unreached_loss
from deep500.networks.flow import gives_gradient
from deep500.networks.losses import gradient_name
from deep500.networks.network import Choice, Network, Parameter


@hands_on(TorchOptions)
def from_model(network: Network, device: Device | str | None = None, **options: Any) -> Executor:
    """An executor for a network, which is copied; ``options`` are those of :class:`TorchOptions`.

    Raises:
        UnsupportedOperator: naming every node that cannot be run.
        InputError: another way to recompute.

    Example:
        >>> from deep500.networks import create
        >>> executor = from_model(create("mlp", batch=2))
        >>> sorted(executor.module.state_dict())[:2]
        ['fc1_bias', 'fc1_weight']
    """
    return Executor(network, device, **options)


@hands_on(TorchOptions)
def from_onnx(
    model: str | os.PathLike[str] | bytes | Any,
    device: Device | str | None = None,
    trainable: Choice | None = None,
    **options: Any,
) -> Executor:
    """An executor for an ONNX model: a path, bytes or a message; see :func:`from_model` for the options."""
    return Executor(Network.from_onnx(model, trainable), device, copy=False, **options)


_NO_GRADIENT = ""
"""In the place of a loss: code of which no gradient will be asked."""


@dataclass
class Compiled:
    """A module for one selection of outputs, how to call it, its inputs, and how to go backward from the loss."""

    module: Any
    call: Callable[..., Any]
    inputs: list[str]
    outputs: tuple[str, ...]
    check: InputCheck
    backward: Callable[[torch.Tensor], Any] = torch.Tensor.backward
    labels: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # ranges that are checked before a run
    constants: Collection[str] = ()


class Executor(Capabilities):
    """A network as a PyTorch module on a device; see :func:`from_model` for the arguments.

    While it trains, the module is in training mode; ``inference`` switches it to evaluation mode for its duration.
    Gradients are left in ``parameter.grad``, as everywhere in PyTorch.
    """

    backend = "pytorch"
    network: TorchNetwork
    network_type = TorchNetwork
    options_type = TorchOptions
    engine: Any  # of torch.distributed's, which a scheme trains by; None: none
    choices = ("compile", "recompute", "recognise", "precision", "deterministic")

    def prepare(self, device: Device | str | None, options: TorchOptions) -> None:
        super().prepare(device, options)
        gpu = self.device.kind == "gpu"
        self.torch_device = torch.device("cuda", self.device.index) if gpu else torch.device("cpu")
        self.compile, self.recompute, self.recognise = options.compile, options.recompute, options.recognise
        self._trainable, self._watcher, self._hooks, self.engine = [], None, [], None
        self._numerics = Numerics(self.precision, self.deterministic)
        self._tensor, self._stream = Sender(self.torch_device).tensor, Stream(self.torch_device)

    def count_gpus(self, wished: Device) -> int:
        return torch.cuda.device_count()

    # -- the module -------------------------------------------------------------------------------------------------
    @property
    def module(self) -> NetworkModule:
        """The network as an ``nn.Module`` with these parameters; a new one after the network was edited.

        Call it with the inputs in the network's order; ``module.names`` maps its attributes to the network's names.
        """
        self.refresh()
        return self.compiled(tuple(self.network.outputs), None).module

    def refresh(self) -> None:
        """Take notice of edits (see the base class); parameters that stay keep their hooks."""
        if self._version != self.network.version:
            super().refresh()
            self._adopt()

    def _adopt(self) -> None:
        """Take note of the present tensors."""
        self._trainable = [t for t in self.tensors.values() if isinstance(t, torch.nn.Parameter)]
        self._undrawn = bool(names_of_undrawn(self.network))
        self.gradients = {gradient_name(name): self.tensors[name] for name in self.network.trainable()}
        if self._watcher is not None:
            self.watch_gradients(self._watcher)

    def live(self, name: str, parameter: Parameter) -> Any:
        if parameter.value.dtype.name not in DTYPES:
            return parameter.value  # refused when a node wants it as a tensor
        if parameter.undrawn is not None:
            dtype = DTYPES[parameter.value.dtype.name]
            return torch.nn.Parameter(hollow_tensor(parameter.value.shape, dtype, self.torch_device))
        # A copy in memory of torch's own, which is aligned as its kernels like it.
        new, old = from_array(parameter.value).to(self.torch_device, copy=True), self.tensors.get(name)
        if old is not None and isinstance(old, torch.nn.Parameter) == parameter.trainable and new.shape == old.shape:
            with torch.no_grad():
                return old.copy_(new)
        return torch.nn.Parameter(new) if parameter.trainable else new

    def evaluation(self, outputs: tuple[str, ...]) -> Compiled:
        """See the base class; code that runs as it is written leaves out what only gradients need."""
        if self._undrawn:
            check_drawn(self.network, "a run")
        shorter = any(gives_gradient(node) for node in self.network.nodes)
        compiled: Compiled = self.compiled(outputs, _NO_GRADIENT if shorter else None)
        return compiled

    def build(self, outputs: tuple[str, ...], loss: str | None) -> Compiled:
        """See the base class; training runs call the same module, or what a checkpointing plan makes of it."""
        network, plan = self.network, self.checkpointing
        if loss is not None and loss != _NO_GRADIENT:
            network.gradient(loss)  # refuses what autograd would take for a constant
            compiled: Compiled = self.compiled(outputs, None)
            if plan is None:
                return self.driven(compiled, loss)
            from deep500.frameworks.pytorch.recompute import planned

            plan.check(network, plan.batch)  # it may have been edited since
            regions = [region.values for region in plan.regions]
            recomputing: Compiled = planned(compiled, network, regions, loss, self.recompute)
            return self.driven(recomputing, loss)
        main = outputs == tuple(network.outputs)
        program = from_network(network, outputs, TARGET, attribute_names(self.tensors), main, loss != _NO_GRADIENT)
        module = compile_program(program, self.tensors, self.torch_device, self.recognise)
        call: Any = torch.compile(module, dynamic=False) if self.compile else module
        # A wrong index on a GPU is an assertion of a kernel, after which the process can use no GPU any more.
        gpu = self.torch_device.type == "cuda"
        labels = label_checks(program) if gpu else class_labels(program.nodes, program.inputs, program.descriptors)
        check, constants = input_check(network, outputs), module.meta["consulted"].keys()
        return Compiled(module, call, program.inputs, outputs, check, labels=labels, constants=constants)

    def driven(self, compiled: Compiled, loss: str) -> Compiled:
        """Return what trains by a loss, through the engine if there is one."""
        check_drawn(self.network, "training")
        return compiled if self.engine is None else self.engine.training(compiled, loss)

    def _forget_training(self) -> None:
        if self.compile:
            raise UnsupportedOperator(
                "got a checkpointing plan for an executor with compile=True; expected compile=False, as torch.compile "
                "decides by itself what is computed again: use one of them"
            )
        super()._forget_training()

    # -- running ----------------------------------------------------------------------------------------------------
    def forward(self, compiled: Compiled, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Run in evaluation mode without recording gradients."""
        if self.engine is not None:
            compiled = self.engine.evaluating(compiled)
        module = compiled.module
        training = module.training
        simple = isinstance(module, NetworkModule) and not module._modules  # no parts: its flag is all there is
        # Parts that a user keeps in evaluation mode stay there.
        frozen = [] if simple else [part for part in module.modules() if not part.training]
        if training and simple:
            module.__dict__["training"] = False
        elif training:
            module.eval()
        try:
            with torch.no_grad():
                return self._run(compiled, inputs)
        finally:
            if training and simple:
                module.__dict__["training"] = True
            elif training:
                module.train()
                for part in frozen:
                    part.training = False

    def inference_and_backprop(self, inputs: Mapping[str, Any], loss: str = "loss") -> dict[str, torch.Tensor]:
        """Run forward in training mode, then backward (see the base class)."""
        compiled, events = self.checked_step(inputs, loss), self.events
        if not compiled.module.training:
            compiled.module.train()
        for parameter in self._trainable:
            parameter.grad = None
        if events.before_forward:
            events.emit(events.before_forward, self)
        values = self._run(compiled, inputs)
        if events.after_forward:
            events.emit(events.after_forward, self)
        goal = values[loss]
        if goal.requires_grad is False or goal.numel() != 1:
            raise unreached_loss(loss) if goal.numel() == 1 else loss_not_scalar(loss, f"shape {tuple(goal.shape)}")
        if events.before_backward:
            events.emit(events.before_backward, self)
        try:
            compiled.backward(goal)
        except CAUGHT as error:
            raise_ours(error, compiled.module, "backward")
            raise
        if events.after_backward:
            events.emit(events.after_backward, self)
        self._results = {name: value.detach() for name, value in values.items()}
        return dict(self._results)

    def clocked(self, compiled: Compiled, clock: FrameworkClock) -> Compiled:
        return replace(compiled, call=clock.timed(compiled.call), backward=clock.timed(compiled.backward))

    def _run(self, compiled: Compiled, inputs: Mapping[str, Any]) -> dict[str, Any]:
        if self.torch_device.type == "cuda":
            adopt(self._numerics)
        if self._stream.seeded:
            self._stream.take()
        for name, limits in compiled.labels.items():
            check_range(name, inputs.get(name), *limits)
        tensor = self._tensor
        try:
            results = compiled.call(*[tensor(inputs.get(name)) for name in compiled.inputs])
        except CAUGHT as error:
            raise_ours(error, compiled.module)
            raise
        return dict(zip(compiled.outputs, results if isinstance(results, tuple) else (results,), strict=True))

    # -- what the network asks ----------------------------------------------------------------------------------------
    def current(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self.tensors[name].detach()
        return tensor

    def result(self, name: str) -> Any:
        """A gradient, 0 for a parameter that the loss does not reach, or an output of the last run."""
        if name not in self.gradients:
            return super().result(name)
        parameter = self.gradients[name]
        return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad

    def reseed(self, seed: int) -> None:
        """Seed torch's generators, which Dropout draws from; see :class:`Stream`."""
        super().reseed(seed)
        self._stream.seed(seed)

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self.torch_device.type == "cuda":
            torch.cuda.synchronize(self.torch_device)

    def update_engine(self) -> type:
        """The class that compiles updates: eager functions on parameters that are copied end to end."""
        from deep500.frameworks.pytorch.updates import Updater

        return Updater
