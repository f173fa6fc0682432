"""`from_native`: a user's own ``nn.Module`` behind the executor interface, without conversion.

The module runs as it is and its parameters are shared. Its network is one node that stands for the module and one for
the loss, so that optimizers, trainers, metrics and checkpoints work; it cannot be edited, exported or transformed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from deep500.devices import Device
from deep500.frameworks.pytorch.dtypes import NAMES, from_array, to_array
from deep500.frameworks.pytorch.executor import Compiled, Executor
from deep500.frameworks.pytorch.network import TorchNetwork
from deep500.frameworks.pytorch.options import TorchOptions
from deep500.keywords import hands_on
from deep500.networks.execution.native import (
    NativeExecution,
    NativeNames,
    NativeNetwork,
    add_native_loss,
    batched,
    named_examples,
    not_one_tensor,
    sketch,
)
from deep500.networks.network import Parameter
from deep500.tensors import TensorDescriptor

DOMAIN = "deep500.pytorch"
"""Domain of the two nodes that stand for a module and its loss."""


@hands_on(NativeNames)
def from_native(
    module: torch.nn.Module,
    example_inputs: Any,
    *,
    loss: Callable[[Any, Any], torch.Tensor] | None = None,
    device: Device | str | None = None,
    strict: bool = False,
    **names: Any,
) -> NativeExecutor:
    """An executor around a module of the user's own; network names are those of ``named_parameters`` and buffers.

    Args:
        module: is moved to the device and trained in place.
        example_inputs: a tensor or array, or a tuple of them, with the batch as first dimension; run once to learn the
            output's shape (in evaluation mode).
        loss: ``loss(output, label)`` gives a scalar: a function, or a module such as ``nn.CrossEntropyLoss()``, which
            is moved to the device; ``torch.nn.functional.cross_entropy`` if None.
        device, strict: see :func:`deep500.frameworks.pytorch.from_model`.
        names: ``input_names`` of the module's arguments, ``label_name`` and ``output_name``
            (:class:`deep500.networks.execution.native.NativeNames`).

    Raises:
        InputError: another number of names than of example inputs, or a module that does not return one tensor.

    Example:
        >>> executor = from_native(torch.nn.Linear(4, 3), torch.zeros(1, 4), loss=torch.nn.CrossEntropyLoss())
        >>> out = executor.inference({"input": torch.ones(2, 4)}, outputs=["output"])
        >>> tuple(out["output"].shape), executor.network.get_params()
        ((2, 3), ['weight', 'bias'])
    """
    return NativeExecutor(module, example_inputs, loss, device, TorchOptions(strict=strict), NativeNames(**names))


class NativeModule(NativeNetwork, TorchNetwork):
    """The network of a native module."""

    subject = "module"


class NativeExecutor(NativeExecution, Executor):
    """Runs an ``nn.Module`` as it is; made by :func:`from_native`."""

    network: NativeModule
    network_type = NativeModule
    recompute_by_hand = "torch.utils.checkpoint"

    def __init__(
        self,
        module: torch.nn.Module,
        example_inputs: Any,
        loss: Callable[[Any, Any], torch.Tensor] | None,
        device: Device | str | None,
        options: TorchOptions,
        names: NativeNames,
    ) -> None:
        examples = named_examples(example_inputs, names.input_names)
        self._native, self._loss = module, loss or torch.nn.functional.cross_entropy
        self.prepare(device, options)
        self.recognise = False
        module.to(self.torch_device)
        if isinstance(loss, torch.nn.Module):
            loss.to(self.torch_device)
        self.tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        tensors = {n: e if isinstance(e, torch.Tensor) else from_array(e) for n, e in examples.items()}
        result = self._example_output(tensors)
        network = sketch(
            type(module).__name__,
            ("Module", DOMAIN),
            {name: batched(NAMES[e.dtype], e.shape) for name, e in tensors.items()},
            {name: Parameter(to_array(t).copy(), t.requires_grad) for name, t in self.tensors.items()},
            {names.output_name: batched(NAMES[result.dtype], result.shape)},
        )
        labels = TensorDescriptor("int64", ("N", *result.shape[2:])) if loss is None else None
        self.begin(add_native_loss(network, names.label_name, labels))
        self._adopt()

    @property
    def module(self) -> torch.nn.Module:  # type: ignore[override]
        """The user's module."""
        return self._native

    def _example_output(self, examples: dict[str, torch.Tensor]) -> torch.Tensor:
        module = self._native
        training = [(part, part.training) for part in module.modules()]
        with torch.no_grad():
            result = module.eval()(*[e.to(self.torch_device) for e in examples.values()])
        for part, was_training in training:
            part.training = was_training
        if not isinstance(result, torch.Tensor):
            raise not_one_tensor("module", result)
        return result

    def build(self, outputs: tuple[str, ...], loss: str | None) -> Compiled:
        """The module itself is what runs, in both modes."""
        if loss is not None:
            compiled: Compiled = self.compiled(outputs, None)
            return self.driven(compiled, loss)
        inputs, check = self.inputs_for(outputs)
        return Compiled(self._native, self._caller(outputs), inputs, outputs, check)

    def _caller(self, outputs: tuple[str, ...]) -> Callable[..., Any]:
        module, loss, output = self._native, self._loss, self.network.outputs[0]
        if outputs == (output,):
            return module

        def call(*args: Any) -> tuple[torch.Tensor, ...]:
            result = module(*args[:-1])
            values = {output: result, "loss": loss(result, args[-1])}
            return tuple(values[name] for name in outputs)

        return call
