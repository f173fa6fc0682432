"""`from_native`: a user's own ``nn.Module`` behind the executor interface, without conversion.

The module runs as it is and its parameters are shared. Its network is one node that stands for the module and one for
the loss, so that optimizers, trainers, metrics and checkpoints work; it cannot be edited, exported or transformed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch

from deep500.devices import Device
from deep500.errors import InputError, NetworkError, UnsupportedOperator
from deep500.frameworks.pytorch.bound import TorchNetwork
from deep500.frameworks.pytorch.dtypes import NAMES, from_array, to_array
from deep500.frameworks.pytorch.executor import Compiled, Executor
from deep500.networks.execution.executor import InputCheck
from deep500.networks.network import Network, Parameter
from deep500.tensors import TensorDescriptor

DOMAIN = "deep500.pytorch"
"""Domain of the two nodes that stand for a module and its loss."""


def from_native(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    loss: Callable[[Any, Any], torch.Tensor] | None = None,
    input_names: Sequence[str] = ("input",),
    label_name: str = "label",
    output_name: str = "output",
    device: Device | str | None = None,
    strict: bool = False,
) -> NativeExecutor:
    """An executor around a module of the user's own; network names are those of ``named_parameters`` and buffers.

    Args:
        module: is moved to the device and trained in place.
        example_inputs: a tensor or array, or a tuple of them, with the batch as first dimension; run once to learn the
            output's shape (in evaluation mode).
        loss: ``loss(output, label)`` gives a scalar; ``torch.nn.functional.cross_entropy`` if None.
        input_names: names of the module's arguments, in order.
        label_name, output_name: names of the label and of the module's result; the loss is called ``"loss"``.
        device, strict: see :func:`deep500.frameworks.pytorch.from_model`.

    Raises:
        InputError: another number of names than of example inputs, or a module that does not return one tensor.

    Example:
        >>> executor = from_native(torch.nn.Linear(4, 3), torch.zeros(1, 4))
        >>> out = executor.inference({"input": torch.ones(2, 4)}, outputs=["output"])
        >>> tuple(out["output"].shape), executor.network.get_params()
        ((2, 3), ['weight', 'bias'])
    """
    examples = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    if len(examples) != len(input_names):
        raise InputError(
            f"got {len(examples)} example inputs and names {tuple(input_names)}; expected one name for each: "
            "pass input_names"
        )
    tensors = [e if isinstance(e, torch.Tensor) else from_array(e) for e in examples]
    return NativeExecutor(
        module, dict(zip(input_names, tensors, strict=True)), loss, label_name, output_name, device, strict
    )


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise NetworkError(
        "got an edit of a network that stands for a native module; expected a Network of operators: edit the "
        "module itself, or build the network with deep500.networks and use from_model"
    )


class NativeNetwork(TorchNetwork):
    """The network of a native module: names, descriptors and tensors, but no operators to edit."""

    add_input = add_parameter = set_parameter = add_node = remove_node = replace = add_edge = remove_edge = _refuse
    replace_value = add_output = remove_output = remove_parameter = remove_input = _refuse
    to_onnx = with_gradient = _refuse

    def gradient(self, loss: str = "loss") -> list[tuple[str, str]]:
        """Every trainable parameter and the name of its gradient."""
        from deep500.networks.losses import find_loss, gradient_name

        find_loss(self, loss)
        return [(name, gradient_name(name)) for name in self.trainable()]


class NativeExecutor(Executor):
    """Runs an ``nn.Module`` as it is; made by :func:`from_native`."""

    network: NativeNetwork

    def __init__(
        self,
        module: torch.nn.Module,
        examples: dict[str, torch.Tensor],
        loss: Callable[[Any, Any], torch.Tensor] | None,
        label_name: str,
        output_name: str,
        device: Device | str | None,
        strict: bool,
    ) -> None:
        self._native, self._loss = module, loss or torch.nn.functional.cross_entropy
        self._names = (*examples, label_name)
        self._prepare(device, False, strict)
        module.to(self.torch_device)
        self.tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        sketch = _sketch(self, examples, label_name, output_name, loss is None)
        self.network = NativeNetwork(sketch, self)
        self._adopt()

    @property
    def module(self) -> torch.nn.Module:  # type: ignore[override]
        """The user's module."""
        return self._native

    def refresh(self) -> None:
        """Nothing can have been edited."""

    def _forget_training(self) -> None:
        raise UnsupportedOperator(
            "got a checkpointing plan for a native module; expected a Network of operators, of which some can run "
            "again: build it with deep500.networks and use from_model, or call torch.utils.checkpoint in the module"
        )

    def _compile(self, outputs: tuple[str, ...]) -> Compiled:
        if outputs in self._compiled:
            return self._compiled[outputs]
        label, (output, loss) = self._names[-1], self.network.outputs
        odd = [name for name in outputs if name not in (output, loss)]
        if odd:
            raise NetworkError(f"got output {odd[0]!r}; expected {output!r} or {loss!r}, all that a native module has")
        inputs = list(self._names if loss in outputs else self._names[:-1])
        check = InputCheck({n: self.network.inputs[n] for n in inputs}, [] if label in inputs else [label])
        self._compiled[outputs] = Compiled(self._native, self._caller(outputs, output), inputs, outputs, check)
        return self._compiled[outputs]

    def _caller(self, outputs: tuple[str, ...], output: str) -> Callable[..., Any]:
        module, loss = self._native, self._loss
        if outputs == (output,):
            return module

        def call(*args: Any) -> tuple[torch.Tensor, ...]:
            result = module(*args[:-1])
            found = {output: result, "loss": loss(result, args[-1])}
            return tuple(found[name] for name in outputs)

        return call


def _sketch(
    executor: NativeExecutor, examples: dict[str, torch.Tensor], label: str, output: str, classes: bool
) -> Network:
    """The network that stands for the module."""
    module, sketch = executor.module, Network(type(executor.module).__name__)
    training = [(part, part.training) for part in module.modules()]
    with torch.no_grad():
        result = module.eval()(*[e.to(executor.torch_device) for e in examples.values()])
    for part, was_training in training:
        part.training = was_training
    if not isinstance(result, torch.Tensor):
        raise InputError(
            f"got a module that returns {type(result).__name__}; expected one tensor: wrap it in one that picks it"
        )
    for name, example in examples.items():
        sketch.add_input(name, ("N", *example.shape[1:]), NAMES[example.dtype])
    for name, tensor in executor.tensors.items():
        sketch._parameters[name] = Parameter(to_array(tensor).copy(), tensor.requires_grad)
    if classes:
        sketch.add_input(label, ("N", *result.shape[2:]), "int64")
    else:
        sketch.inputs[label] = TensorDescriptor(None, None)  # whatever the loss makes of it
    sketch.add_node("Module", [*examples, *executor.tensors], [output], name=sketch.name, domain=DOMAIN)
    sketch.add_node("Loss", [output, label], ["loss"], name="loss", domain=DOMAIN)
    sketch._known = {output: TensorDescriptor(NAMES[result.dtype], ("N", *result.shape[1:]))}
    sketch.add_output(output)
    sketch.add_output("loss")
    return sketch
