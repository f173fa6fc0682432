"""`from_native`: a user's own ``nn.Module`` behind the executor interface, without conversion.

The module runs as it is and its parameters are shared. Its network is one node that stands for the module and one for
the loss, so that optimizers, trainers, metrics and checkpoints work; it cannot be edited, exported or transformed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from deep500.devices import Device
from deep500.frameworks.pytorch.dtypes import NAMES, from_array, to_array
from deep500.frameworks.pytorch.executor import Compiled, Executor, TorchNetwork
from deep500.networks.execution.native import (
    ANYTHING,
    NativeExecution,
    NativeNetwork,
    add_native_loss,
    named_examples,
    not_one_tensor,
    sketch,
)
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
        loss: ``loss(output, label)`` gives a scalar: a function, or a module such as ``nn.CrossEntropyLoss()``, which
            is moved to the device; ``torch.nn.functional.cross_entropy`` if None.
        input_names: names of the module's arguments, in order.
        label_name, output_name: names of the label and of the module's result; the loss is called ``"loss"``.
        device, strict: see :func:`deep500.frameworks.pytorch.from_model`.

    Raises:
        InputError: another number of names than of example inputs, or a module that does not return one tensor.

    Example:
        >>> executor = from_native(torch.nn.Linear(4, 3), torch.zeros(1, 4), loss=torch.nn.CrossEntropyLoss())
        >>> out = executor.inference({"input": torch.ones(2, 4)}, outputs=["output"])
        >>> tuple(out["output"].shape), executor.network.get_params()
        ((2, 3), ['weight', 'bias'])
    """
    examples = named_examples(example_inputs, input_names)
    tensors = {n: e if isinstance(e, torch.Tensor) else from_array(e) for n, e in examples.items()}
    return NativeExecutor(module, tensors, loss, label_name, output_name, device, strict)


class NativeModule(NativeNetwork, TorchNetwork):
    """The network of a native module."""

    subject = "module"


class NativeExecutor(NativeExecution, Executor):
    """Runs an ``nn.Module`` as it is; made by :func:`from_native`."""

    network: NativeModule
    recompute_by_hand = "torch.utils.checkpoint"

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
        self._prepare(device, False, strict)
        module.to(self.torch_device)
        if isinstance(loss, torch.nn.Module):
            loss.to(self.torch_device)
        self.tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self.network = NativeModule(_sketch(self, examples, label_name, output_name, loss is None), self)
        self._adopt()

    @property
    def module(self) -> torch.nn.Module:  # type: ignore[override]
        """The user's module."""
        return self._native

    def refresh(self) -> None:
        """Nothing can have been edited."""

    def _compile(self, outputs: tuple[str, ...]) -> Compiled:
        if outputs in self._compiled:
            return self._compiled[outputs]
        inputs, check = self.inputs_for(outputs)
        self._compiled[outputs] = Compiled(self._native, self._caller(outputs), inputs, outputs, check)
        return self._compiled[outputs]

    def _caller(self, outputs: tuple[str, ...]) -> Callable[..., Any]:
        module, loss, output = self._native, self._loss, self.network.outputs[0]
        if outputs == (output,):
            return module

        def call(*args: Any) -> tuple[torch.Tensor, ...]:
            result = module(*args[:-1])
            values = {output: result, "loss": loss(result, args[-1])}
            return tuple(values[name] for name in outputs)

        return call


def _sketch(
    executor: NativeExecutor, examples: dict[str, torch.Tensor], label: str, output: str, classes: bool
) -> Network:
    """The network that stands for the module."""
    module = executor.module
    training = [(part, part.training) for part in module.modules()]
    with torch.no_grad():
        result = module.eval()(*[e.to(executor.torch_device) for e in examples.values()])
    for part, was_training in training:
        part.training = was_training
    if not isinstance(result, torch.Tensor):
        raise not_one_tensor("module", result)
    network = sketch(
        type(module).__name__,
        ("Module", DOMAIN),
        {name: TensorDescriptor(NAMES[e.dtype], ("N", *e.shape[1:])) for name, e in examples.items()},
        {name: Parameter(to_array(t).copy(), t.requires_grad) for name, t in executor.tensors.items()},
        {output: TensorDescriptor(NAMES[result.dtype], ("N", *result.shape[1:]))},
    )
    labels = TensorDescriptor("int64", ("N", *result.shape[2:])) if classes else ANYTHING
    return add_native_loss(network, label, labels, DOMAIN)
