"""`from_native`: a user's own function of a parameter tree behind the executor interface, without conversion.

The function runs as it is, under ``jax.jit``. Its network is one node that stands for the function and one for the
loss, so that optimizers, trainers, metrics and checkpoints work; it cannot be edited, exported or transformed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from deep500.devices import Device
from deep500.errors import InputError
from deep500.frameworks.jax.compiler import PureFunction
from deep500.frameworks.jax.dtypes import enable_x64
from deep500.frameworks.jax.executor import Executor, JaxOptions
from deep500.frameworks.jax.functions import Compiled
from deep500.frameworks.jax.network import JaxNetwork
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
from deep500.networks.execution.program import Program
from deep500.networks.network import Parameter
from deep500.tensors import TensorDescriptor

DOMAIN = "deep500.jax"
"""Domain of the two nodes that stand for a function and its loss."""


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Mean of minus the log probability of each label; logits are [N, classes]. Wrong labels give NaN."""
    logs = jax.nn.log_softmax(logits, -1)
    labels = jnp.where(labels < 0, logits.shape[-1], labels)
    return -jnp.take_along_axis(logs, labels[..., None], -1, mode="fill").mean()


@hands_on(NativeNames)
def from_native(
    function: Callable[..., Any],
    parameters: Any,
    example_inputs: Any,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    device: Device | str | None = None,
    strict: bool = False,
    seed: int = 0,
    **names: Any,
) -> NativeExecutor:
    """An executor around a function of the user's own.

    Args:
        function: ``function(parameters, *inputs)`` gives one array. If it has keywords ``training`` or ``key`` it gets
            the mode (a bool) and a random key of this run.
        parameters: a tree of arrays (dicts, lists, tuples); the names of leaves are their paths, ``"dense/kernel"``.
            Floating ones are trained.
        example_inputs: an array or a tuple of them, the batch as first dimension; traced once.
        loss: ``loss(output, label)`` gives a scalar; the cross entropy of logits if None.
        device, strict, seed: see :func:`deep500.frameworks.jax.from_model`.
        names: ``input_names`` of the function's arguments, ``label_name`` and ``output_name``
            (:class:`deep500.networks.execution.native.NativeNames`).

    Raises:
        InputError: another number of names than of example inputs, or a function that does not return one array.

    Example:
        >>> tree = {"w": np.ones((4, 3), "float32")}
        >>> executor = from_native(lambda p, x: x @ p["w"], tree, np.zeros((1, 4), "float32"))
        >>> executor.inference({"input": np.ones((2, 4), "float32")}, ["output"])["output"].shape
        (2, 3)
    """
    options = JaxOptions(strict=strict, seed=seed)
    return NativeExecutor((function, parameters), example_inputs, loss, device, options, NativeNames(**names))


class NativeFunctionNetwork(NativeNetwork, JaxNetwork):
    """The network of a native function."""

    subject = "function"


class NativeExecutor(NativeExecution, Executor):
    """Runs a function as it is; made by :func:`from_native`."""

    always_random = True
    network: NativeFunctionNetwork
    network_type = NativeFunctionNetwork
    recompute_by_hand = "jax.checkpoint"

    def __init__(
        self,
        model: tuple[Callable[..., Any], Any],
        example_inputs: Any,
        loss: Callable[[Any, Any], Any] | None,
        device: Device | str | None,
        options: JaxOptions,
        names: NativeNames,
    ) -> None:
        examples = named_examples(example_inputs, names.input_names)
        self.prepare(device, options)
        self._native, parameters = model
        self._loss = loss or cross_entropy
        leaves, self._tree = jax.tree_util.tree_flatten_with_path(parameters)
        self._names = ["/".join(map(_key_name, path)) for path, _ in leaves]
        arrays = {n: np.asarray(leaf) for n, (_, leaf) in zip(self._names, leaves, strict=True)}
        inputs = {name: np.asarray(example) for name, example in examples.items()}
        self._options = {p for p in inspect.signature(self._native).parameters if p in ("training", "key")}
        self.wide = any(str(a.dtype) in _WIDE for a in (*arrays.values(), *inputs.values()))
        result = self._example_output(arrays, examples)
        network = sketch(
            getattr(self._native, "__name__", "function"),
            ("Function", DOMAIN),
            {name: batched(str(array.dtype), array.shape) for name, array in inputs.items()},
            {n: Parameter(a.copy(), bool(jnp.issubdtype(a.dtype, np.floating))) for n, a in arrays.items()},
            {names.output_name: batched(str(result.dtype), result.shape)},
        )
        labels = TensorDescriptor("int64", ("N", *result.shape[1:-1])) if loss is None else None
        self.network = NativeFunctionNetwork(add_native_loss(network, names.label_name, labels), self)
        self.refresh()

    @property
    def parameters(self) -> Any:
        """The live parameters as the user's tree."""
        return jax.tree_util.tree_unflatten(self._tree, [self.tensors[name] for name in self._names])

    def program(self, outputs: Sequence[str]) -> Program:
        """The two nodes, or the first alone."""
        inputs, _ = self.inputs_for(outputs)
        return Program(inputs, list(outputs), [], attributes={name: name for name in self.tensors})

    def pure(self, compiled: Compiled, known: Mapping[str, Any]) -> PureFunction:
        """The user's function in the executor's form."""
        outputs, (output, loss) = compiled.outputs, self.network.outputs
        inputs, label = list(self.network.inputs)[:-1], list(self.network.inputs)[-1]

        def function(parameters: Any, state: Any, batch: Any, key: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            tree = jax.tree_util.tree_unflatten(self._tree, [{**parameters, **known}[n] for n in self._names])
            options = {"training": compiled.training, "key": key}
            chosen = {name: options[name] for name in self._options}
            values = {output: self._native(tree, *[batch[name] for name in inputs], **chosen)}
            if loss in outputs:
                values[loss] = _scalar(self._loss(values[output], batch[label]))
            return {name: values[name] for name in outputs}, {}

        return function

    def _example_output(self, arrays: Mapping[str, np.ndarray], examples: Mapping[str, Any]) -> Any:
        tree = jax.tree_util.tree_unflatten(self._tree, list(arrays.values()))
        options = {"training": False, "key": jax.random.key(0)}
        chosen = {n: options[n] for n in self._options}
        with enable_x64(self.wide):
            result = jax.eval_shape(lambda t, *xs: self._native(t, *xs, **chosen), tree, *examples.values())
        if not isinstance(result, jax.ShapeDtypeStruct):
            raise not_one_tensor("function", result)
        return result


_WIDE = frozenset({"float64", "int64", "uint64", "complex128"})


def _scalar(loss: Any) -> Any:
    if jnp.ndim(loss):
        raise InputError(
            f"got a loss of shape {jnp.shape(loss)}; expected one number: take its mean, such as "
            "loss=lambda output, label: my_loss(output, label).mean()"
        )
    return loss


def _key_name(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
