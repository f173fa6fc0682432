"""`Executor`: a network compiled to an ``nn.Module`` and run with PyTorch's own automatic differentiation.

``executor.module`` computes the network's outputs. It shares its parameters with the modules that compute other
selections of outputs, and with all that hold them: optimizers, ``DistributedDataParallel``, the user's own loop.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from deep500.devices import Device, fall_back, to_device
from deep500.errors import InputError, UnsupportedOperator, nearest
from deep500.frameworks.pytorch.compiler import TARGET, NetworkModule, attribute_names, compile_program
from deep500.frameworks.pytorch.dtypes import DTYPES, from_array, to_array
from deep500.frameworks.pytorch.failures import RAISED, failure
from deep500.frameworks.pytorch.memory import footprint, requested, settle
from deep500.frameworks.pytorch.numerics import adopt, one_thread
from deep500.networks.execution.executor import BoundNetwork, GraphExecutor, InputCheck, input_check
from deep500.networks.execution.labels import check_range, label_checks
from deep500.networks.execution.precision import Numerics, used_precision
from deep500.networks.execution.program import from_network
from deep500.networks.execution.refusals import (
    loss_not_scalar,
    unfit_parameter,
    unknown_parameter,
    unknown_value,
    unreached_loss,
)
from deep500.networks.losses import find_loss, gradient_name
from deep500.networks.network import Choice, Network, Parameter
from deep500.networks.quantization import differentiable
from deep500.transformations.recomputation.chain import ChainStage

_PINNED = 1 << 16
"""Bytes from which on an array goes to the GPU by way of memory that the GPU reads by itself."""

RECOMPUTE = ("checkpoint", "explicit")
"""Ways to follow a checkpointing plan; see :func:`from_model`."""


def from_model(
    network: Network,
    device: Device | str | None = None,
    compile: bool = False,
    strict: bool = False,
    recompute: str = "checkpoint",
    quantization: str | None = None,
    recognise: bool = True,
    precision: str = "ieee",
    deterministic: bool = False,
) -> Executor:
    """An executor for a network.

    Args:
        network: is copied.
        device: the processor if None; without a GPU, a ``GPUDevice`` falls back to it with a warning.
        compile: pass the module through ``torch.compile`` (seconds per input shape; needs a C++ compiler on the CPU).
        strict: raise MissingDevice instead of falling back.
        recompute: how a checkpointing plan is followed, if one is set: ``"checkpoint"`` by non-reentrant
            ``torch.utils.checkpoint``, ``"explicit"`` by a tape of our own, whose memory is what the plan predicts and
            which takes less time. Gradients are the same bits either way.
        quantization: what gradients of quantised values are: none, or those of the straight-through estimator
            (``"straight_through"``, see :mod:`deep500.networks.quantization`).
        recognise: run what exporters took apart (normalisations, activations, attention, dense and recurrent layers) by
            one function each, and compute once what depends on no input; ``executor.module.recognised`` lists what was
            found. False: node by node.
        precision: of float32 on a GPU: ``"ieee"``, or ``"tf32"``, which rounds what products and convolutions take to
            ten bits of fraction and differs by 1e-3. Processors compute as IEEE says, whatever is asked for.
        deterministic: on a GPU, allow only kernels that give the same bits every time; an operator without one is an
            error that names it.

    Raises:
        UnsupportedOperator: naming every node that cannot be run.
        InputError: another way to recompute.

    Example:
        >>> from deep500.networks import create
        >>> executor = from_model(create("mlp", batch=2))
        >>> sorted(executor.module.state_dict())[:2]
        ['fc1_bias', 'fc1_weight']
    """
    return Executor(
        network,
        device,
        compile,
        strict,
        recompute,
        quantization,
        recognise,
        precision=precision,
        deterministic=deterministic,
    )


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
    """A module for one selection of outputs, how to call it, what it wants, and how to go backward from the loss."""

    module: Any
    call: Callable[..., Any]
    inputs: list[str]
    outputs: tuple[str, ...]
    check: InputCheck
    backward: Callable[[torch.Tensor], Any] = torch.Tensor.backward
    labels: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # ranges that are checked before a run


class TorchNetwork(BoundNetwork):
    """The network of an executor; its tensors are those of ``executor.module``."""

    own_arrays = False

    def __init__(self, network: Network, executor: Executor, copy: bool = True) -> None:
        super().__init__(network, copy)
        self._executor = executor

    def __str__(self) -> str:
        """The table of the network, and what is run by one function each though the network writes it out."""
        kinds = Counter(self._executor.module.recognised.values()) if self._executor.recognise else {}
        line = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        return f"{super().__str__()}\nrecognised by {self._executor.backend}: {line}" if line else super().__str__()

    def fetch_tensors(self, names: Sequence[str]) -> list[torch.Tensor]:
        """Live tensors, detached: parameters, gradients and outputs of the last run (see the base class)."""
        executor = self._executor
        executor.refresh()
        tensors, gradients = executor.tensors, executor.gradients
        return [
            tensors[n].detach() if n in tensors else gradients[n].gradient() if n in gradients else executor.result(n)
            for n in names
        ]

    def feed_tensor(self, name: str, value: Any) -> None:
        """Overwrite a parameter in place (see the base class)."""
        old = self._executor.tensor(name)
        new = value.detach() if isinstance(value, torch.Tensor) else from_array(value)
        if new.dtype != old.dtype or new.shape != old.shape:
            raise unfit_parameter(name, new, old)
        with torch.no_grad():
            if self._executor.is_constant(name) and torch.equal(old, new.to(old.device)):
                return
            old.detach().copy_(new)
        self._executor.forget_constant(name)

    def assign_tensor(self, name: str, value: Any) -> None:
        """Let a parameter take over a tensor's memory; all who hold the parameter see the new values."""
        old = self._executor.tensor(name)
        wanted = (old.dtype, old.shape, old.device)
        if not isinstance(value, torch.Tensor) or (value.dtype, value.shape, value.device) != wanted:
            return self.feed_tensor(name, value)
        old.data = value.detach()
        torch.autograd.graph.increment_version(old)  # which the line above does not; an address may come again
        return self._executor.forget_constant(name)

    def release_tensor(self, name: str) -> None:
        """The tensor keeps its shape, of one element (see the base class); the array that it was made from goes too."""
        old = self._executor.tensor(name)
        self.assign_tensor(name, torch.full((), torch.nan, dtype=old.dtype, device=old.device).expand(old.shape))
        old.grad = None
        self.parameter(name).value = self._hollow(name)

    def forget_results(self) -> None:
        """See the base class."""
        self._executor._results = {}

    def leave_gradients(self, gradients: Mapping[str, Any]) -> None:
        """In ``parameter.grad``."""
        for name, gradient in gradients.items():
            self._executor.tensors[name].grad = gradient

    def weighted_sum(self, terms: Sequence[Sequence[Any]], weights: Sequence[float]) -> list[torch.Tensor]:
        """By torch's own functions for lists of tensors."""
        with torch.no_grad():
            sums = list(torch._foreach_mul(list(terms[0]), weights[0]))
            for term, weight in zip(terms[1:], weights[1:], strict=True):
                torch._foreach_add_(sums, list(term), alpha=weight)
        return sums

    def concatenate(self, tensors: Sequence[Any]) -> torch.Tensor:
        """By ``torch.cat``."""
        return torch.cat(list(tensors))

    def to_tensor(self, array: np.ndarray) -> torch.Tensor:
        """An array as a tensor of its own on the device."""
        return from_array(np.array(array)).to(self._executor.torch_device)

    @staticmethod
    def to_numpy(tensor: Any) -> np.ndarray:
        """A tensor as an array; waits for the device."""
        return to_array(tensor)


@dataclass
class Gradient:
    """Where a gradient is found; a parameter that the loss does not reach has the gradient 0."""

    parameter: torch.Tensor

    def gradient(self) -> torch.Tensor:
        grad = self.parameter.grad
        return torch.zeros_like(self.parameter) if grad is None else grad


class Executor(GraphExecutor):
    """A network as a PyTorch module on a device; see :func:`from_model` for the arguments.

    While it trains, the module is in training mode; ``inference`` switches it to evaluation mode for its duration.
    Gradients are left in ``parameter.grad``, as everywhere in PyTorch.
    """

    backend = "pytorch"
    network: TorchNetwork
    recognise = False
    choices = ("compile", "recompute", "recognise", "precision", "deterministic")

    def __init__(
        self,
        network: Network,
        device: Device | str | None = None,
        compile: bool = False,
        strict: bool = False,
        recompute: str = "checkpoint",
        quantization: str | None = None,
        recognise: bool = True,
        copy: bool = True,
        precision: str = "ieee",
        deterministic: bool = False,
    ) -> None:
        if recompute not in RECOMPUTE:
            raise InputError(
                f"got recompute={recompute!r}; expected one of {RECOMPUTE}: {nearest(recompute, RECOMPUTE)}"
            )
        self.recompute, self.recognise = recompute, recognise
        self._prepare(device, compile, strict)
        self.precision = used_precision(precision, self.device)
        self.deterministic = deterministic and self.device.kind == "gpu"
        self._numerics = Numerics(self.precision, self.deterministic)
        self.network = TorchNetwork(differentiable(network, quantization), self, copy)
        self._main()

    def _prepare(self, device: Device | str | None, compile: bool, strict: bool) -> None:
        """Everything that needs no network."""
        super().__init__(fall_back(to_device(device), torch.cuda.device_count(), strict))
        gpu = self.device.kind == "gpu"
        self.torch_device = torch.device("cuda", self.device.index) if gpu else torch.device("cpu")
        self.compile = compile
        self.tensors: dict[str, torch.Tensor] = {}
        self.gradients: dict[str, Gradient] = {}
        self._sources: dict[str, Parameter] = {}
        self._compiled: dict[tuple[str, ...], Compiled] = {}
        self._planned: dict[tuple[str, ...], Compiled] = {}  # training under a checkpointing plan
        self._trainable: list[torch.Tensor] = []
        self._watcher: Callable[[str, Any], None] | None = None
        self._hooks: list[Any] = []
        self._results: dict[str, torch.Tensor] = {}
        self._version: int | None = None
        self._read_as_constants: set[str] = set()
        self._differentiable: set[str] = set()  # losses whose parameters all have gradients
        self._numerics = Numerics()
        self._copies: torch.cuda.Stream | None = None  # of large inputs, once there was one

    # -- the module -------------------------------------------------------------------------------------------------
    @property
    def module(self) -> NetworkModule:
        """The network as an ``nn.Module`` with these parameters; a new one after the network was edited.

        Call it with the inputs in the network's order; ``module.names`` maps its attributes to the network's names.
        """
        return self._main().module

    def _main(self) -> Compiled:
        self.refresh()
        return self._compile(tuple(self.network.outputs))

    def refresh(self) -> None:
        """Take notice of edits: tensors of parameters that stay are kept, what was compiled is dropped."""
        network = self.network
        if self._version == network.version:
            return
        parameters = network.parameters
        self.tensors = {name: self._live(name, parameter) for name, parameter in parameters.items()}
        self._sources = dict(parameters)
        self._adopt()

    def _adopt(self) -> None:
        """Take note of the present tensors and forget what was compiled."""
        self._trainable = [t for t in self.tensors.values() if isinstance(t, torch.nn.Parameter)]
        self.gradients = {gradient_name(n): Gradient(self.tensors[n]) for n in self.network.trainable()}
        self._compiled, self._planned, self._version = {}, {}, self.network.version
        self._differentiable = set()
        if self._watcher is not None:
            self.watch_gradients(self._watcher)

    def _live(self, name: str, parameter: Parameter) -> torch.Tensor:
        old = self.tensors.get(name)
        fits = old is not None and isinstance(old, torch.nn.Parameter) == parameter.trainable
        if fits and self._sources[name] is parameter:
            return old  # type: ignore[return-value]
        if parameter.value.dtype.name not in DTYPES:
            return parameter.value  # type: ignore[return-value] # refused when a node wants it as a tensor
        # A copy in memory of torch's own, which is aligned as its kernels like it.
        new = from_array(parameter.value).to(self.torch_device, copy=True)
        if fits and new.shape == old.shape:  # type: ignore[union-attr]
            with torch.no_grad():
                return old.copy_(new)  # type: ignore[union-attr]
        return torch.nn.Parameter(new) if parameter.trainable else new

    def _compile(self, outputs: tuple[str, ...]) -> Compiled:
        if outputs not in self._compiled:
            self._compiled[outputs] = self._build(outputs, self.recognise)
        return self._compiled[outputs]

    def _build(self, outputs: tuple[str, ...], recognise: bool) -> Compiled:
        network = self.network
        main = outputs == tuple(network.outputs)
        program = from_network(network, outputs, TARGET, attribute_names(self.tensors), all_inputs=main)
        module = compile_program(program, self.tensors, self.torch_device, recognise)
        self._read_as_constants |= module.meta["consulted"].keys()
        call: Any = torch.compile(module, dynamic=False) if self.compile else module
        # A wrong label on a GPU is an assertion of a kernel, after which the process can use no GPU any more.
        labels = label_checks(program) if self.torch_device.type == "cuda" else {}
        check = input_check(network, outputs)
        return Compiled(module, call, program.inputs, outputs, check, labels=labels)

    def _training(self, outputs: tuple[str, ...], loss: str) -> Compiled:
        """What a training run calls: the compiled network, or what a checkpointing plan makes of it."""
        plan = self.checkpointing
        if plan is None:
            return self._compile(outputs)
        if outputs not in self._planned:
            from deep500.frameworks.pytorch.recompute import planned

            plan.check(self.network, plan.batch)  # it may have been edited since
            regions = [region.values for region in plan.regions]
            self._planned[outputs] = planned(self._compile(outputs), self.network, regions, loss, self.recompute)
        return self._planned[outputs]

    def _forget_training(self) -> None:
        if self.compile:
            raise UnsupportedOperator(
                "got a checkpointing plan for an executor with compile=True; expected compile=False, as torch.compile "
                "decides by itself what is computed again: use one of them"
            )
        self._planned = {}

    # -- running ----------------------------------------------------------------------------------------------------
    def inference(self, inputs: Mapping[str, Any], outputs: Sequence[str] | None = None) -> dict[str, torch.Tensor]:
        """Run forward in evaluation mode without recording gradients (see the base class)."""
        self.refresh()
        compiled = self._compile(tuple(self.network.outputs if outputs is None else outputs))
        compiled.check(inputs)
        module, events = compiled.module, self.events
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
                if events.before_forward:
                    events.emit(events.before_forward, self)
                results = self._run(compiled, inputs)
                if events.after_forward:
                    events.emit(events.after_forward, self)
        finally:
            if training and simple:
                module.__dict__["training"] = True
            elif training:
                module.train()
                for part in frozen:
                    part.training = False
        self._results = dict(zip(compiled.outputs, results if isinstance(results, tuple) else (results,), strict=True))
        return dict(self._results)

    def inference_and_backprop(self, inputs: Mapping[str, Any], loss: str = "loss") -> dict[str, torch.Tensor]:
        """Run forward in training mode, then backward (see the base class)."""
        self.refresh()
        self._check_planned(inputs, loss)
        outputs = tuple(self.network.outputs)
        if loss not in outputs:
            outputs = (*outputs, find_loss(self.network, loss))
        if loss not in self._differentiable:
            self.network.gradient(loss)  # refuses what autograd would take for a constant
            self._differentiable.add(loss)
        compiled = self._training(outputs, loss)
        compiled.check(inputs)
        module, events = compiled.module, self.events
        if not module.training:
            module.train()
        for parameter in self._trainable:
            parameter.grad = None
        if events.before_forward:
            events.emit(events.before_forward, self)
        results = self._run(compiled, inputs)
        if events.after_forward:
            events.emit(events.after_forward, self)
        values = dict(zip(outputs, results if isinstance(results, tuple) else (results,), strict=True))
        goal = values[loss]
        if goal.requires_grad is False or goal.numel() != 1:
            raise unreached_loss(loss) if goal.numel() == 1 else loss_not_scalar(loss, f"shape {tuple(goal.shape)}")
        if events.before_backward:
            events.emit(events.before_backward, self)
        try:
            compiled.backward(goal)
        except (RuntimeError, *RAISED) as error:
            if ours := failure(error, module, "backward"):
                raise ours from error
            raise
        if events.after_backward:
            events.emit(events.after_backward, self)
        self._results = {name: value.detach() for name, value in values.items()}
        return dict(self._results)

    def pull_back(
        self, inputs: Mapping[str, Any], seeds: Mapping[str, Any], wrt: Sequence[str], outputs: Sequence[str]
    ) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """By automatic differentiation (see ``PullsBack``)."""
        self.refresh()
        names = tuple(dict.fromkeys([*seeds, *outputs]))
        compiled = self._compile(names)
        compiled.check(inputs)
        leaves = {name: self._tensor(inputs[name]).detach().requires_grad_() for name in wrt}
        training = compiled.module.training
        compiled.module.eval()
        try:
            results = self._run(compiled, {**inputs, **leaves})
            values = dict(zip(names, results if isinstance(results, tuple) else (results,), strict=True))
            goals = {name: values[name] for name in seeds if values[name].requires_grad}
            directions = [self._tensor(seeds[name]) for name in goals]
            found = torch.autograd.grad(list(goals.values()), list(leaves.values()), directions, allow_unused=True)
        except (RuntimeError, *RAISED) as error:
            if ours := failure(error, compiled.module, "backward"):
                raise ours from error
            raise
        finally:
            compiled.module.train(training)
        gradients = {
            name: torch.zeros_like(leaf) if gradient is None else gradient
            for (name, leaf), gradient in zip(leaves.items(), found, strict=True)
        }
        return gradients, {name: values[name].detach() for name in outputs}

    def _run(self, compiled: Compiled, inputs: Mapping[str, Any]) -> Any:
        if self.torch_device.type == "cuda":
            adopt(self._numerics)
        for name, limits in compiled.labels.items():
            check_range(name, inputs.get(name), *limits)
        try:
            return compiled.call(*[self._tensor(inputs.get(name)) for name in compiled.inputs])
        except (RuntimeError, *RAISED) as error:
            if ours := failure(error, compiled.module):
                raise ours from error
            raise

    def _tensor(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            if value is None or isinstance(value, list):  # optional values and sequences
                return value if value is None else [self._tensor(item) for item in value]
            value = from_array(value)
            if self.torch_device.type == "cuda" and value.nbytes >= _PINNED:
                return self._sent(value)
        return value if value.device == self.torch_device else value.to(self.torch_device, non_blocking=True)

    def _sent(self, value: torch.Tensor) -> torch.Tensor:
        """On its way to the GPU on a stream of copies, beside the step before, which the next one alone waits for."""
        if self._copies is None:
            self._copies = torch.cuda.Stream(self.torch_device)
        with torch.cuda.stream(self._copies):  # torch keeps pinned memory until the copy from it is done
            sent = value.pin_memory().to(self.torch_device, non_blocking=True)
        steps = torch.cuda.current_stream(self.torch_device)
        steps.wait_stream(self._copies)
        sent.record_stream(steps)  # its memory is not given away while the step reads it
        return sent

    # -- what the network asks ----------------------------------------------------------------------------------------
    def tensor(self, name: str) -> torch.Tensor:
        """The live tensor of a parameter; raises NetworkError with the nearest name."""
        self.refresh()
        if name not in self.tensors:
            raise unknown_parameter(name, self.tensors)
        return self.tensors[name]

    def result(self, name: str) -> torch.Tensor:
        """An output of the last run."""
        if name not in self._results:
            raise unknown_value(name, [*self.tensors, *self.gradients, *self._results])
        return self._results[name]

    def is_constant(self, name: str) -> bool:
        """Whether a parameter's value may stand in the code."""
        return name in self._read_as_constants

    def forget_constant(self, name: str) -> None:
        """A parameter was written: if its value may stand in the code, compile again."""
        if name in self._read_as_constants:
            self._compiled, self._planned = {}, {}

    def reseed(self, seed: int) -> None:
        """Seed torch's generators, which Dropout draws from; they belong to the whole process."""
        torch.manual_seed(seed)

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self.torch_device.type == "cuda":
            torch.cuda.synchronize(self.torch_device)

    def watch_gradients(self, callback: Callable[[str, Any], None] | None) -> None:
        """Report gradients of the parameters that can have one, by hooks on them (see ``WatchesGradients``)."""
        for handle in self._hooks:
            handle.remove()
        self._watcher, self._hooks = callback, []
        if callback is not None:
            self._hooks = [
                tensor.register_post_accumulate_grad_hook(_reporter(callback, name))
                for name, tensor in self.tensors.items()
                if isinstance(tensor, torch.nn.Parameter) and tensor.requires_grad
            ]

    def peak_memory(self, reset: bool = False) -> int | None:
        """Largest sum of tensors on the GPU since the last reset, in bytes; None on the processor."""
        if self.torch_device.type != "cuda":
            return None
        peak = requested(self.torch_device, "peak")
        if reset:
            torch.cuda.reset_peak_memory_stats(self.torch_device)
        return int(peak)

    @contextmanager
    def rehearsal(self) -> Iterator[GraphExecutor]:
        """See the base class; what it draws does not move torch's generators, which belong to the whole process."""
        with torch.random.fork_rng(), super().rehearsal() as twin:
            yield twin

    def by_one_thread(self) -> AbstractContextManager[None]:
        """See ``ComputesByOneThread``: convolutions and products add up what their threads found."""
        return one_thread()

    def step_memory(self, inputs: Mapping[str, Any], loss: str = "loss") -> int:
        """By the allocator's own events, also on the processor (see ``CountsStepMemory``)."""
        self._results = {}
        for parameter in self._trainable:
            parameter.grad = None
        if self.torch_device.type == "cuda":  # libraries get their workspaces at the first step, and keep them
            self.inference_and_backprop(inputs, loss)
            self._results = {}
            for parameter in self._trainable:
                parameter.grad = None
        settle()
        return footprint(lambda: self.inference_and_backprop(inputs, loss), self.torch_device).peak

    def measure_stages(
        self, stages: Sequence[Collection[str]], inputs: Mapping[str, Any], loss: str = "loss", passes: int = 5
    ) -> list[ChainStage]:
        """Bytes of every stage by the allocator, and the least time of ``passes`` (see ``MeasuresStages``)."""
        from deep500.frameworks.pytorch.stages import measure

        self.refresh()
        outputs = tuple(self.network.outputs)
        compiled = self._compile(outputs if loss in outputs else (*outputs, find_loss(self.network, loss)))
        compiled.check(inputs)
        tensors = [self._tensor(inputs.get(name)) for name in compiled.inputs]
        compiled.module.train()
        return measure(compiled, self.network, stages, tensors, loss, passes)


def _reporter(callback: Callable[[str, Any], None], name: str) -> Callable[[torch.Tensor], None]:
    return lambda parameter: callback(name, parameter.grad)
