"""`from_native`: a user's own function of a parameter tree behind the executor interface, without conversion.

The function runs as it is, under ``jax.jit``. Its network is one node that stands for the function and one for the
loss, so that optimizers, trainers, metrics and checkpoints work; it cannot be edited, exported or transformed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from deep500.devices import Device
from deep500.errors import InputError, NetworkError, UnsupportedOperator
from deep500.frameworks.jax.compiler import PureFunction
from deep500.frameworks.jax.dtypes import enable_x64
from deep500.frameworks.jax.executor import Executor, JaxNetwork
from deep500.frameworks.jax.functions import Compiled
from deep500.networks.execution.program import Program
from deep500.networks.losses import find_loss, gradient_name
from deep500.networks.network import Network, Parameter
from deep500.tensors import TensorDescriptor

DOMAIN = "deep500.jax"
"""Domain of the two nodes that stand for a function and its loss."""


def cross_entropy(logits: Any, labels: Any) -> Any:
    """Mean of minus the log probability of each label; logits are [N, classes]. Wrong labels give NaN."""
    logs = jax.nn.log_softmax(logits, -1)
    labels = jnp.where(labels < 0, logits.shape[-1], labels)
    return -jnp.take_along_axis(logs, labels[..., None], -1, mode="fill").mean()


def from_native(
    function: Callable[..., Any],
    parameters: Any,
    example_inputs: Any,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    input_names: Sequence[str] = ("input",),
    label_name: str = "label",
    output_name: str = "output",
    device: Device | str | None = None,
    strict: bool = False,
    seed: int = 0,
) -> NativeExecutor:
    """An executor around a function of the user's own.

    Args:
        function: ``function(parameters, *inputs)`` gives one array. If it has keywords ``training`` or ``key`` it gets
            the mode (a bool) and a random key of this run.
        parameters: a tree of arrays (dicts, lists, tuples); the names of leaves are their paths, ``"dense/kernel"``.
            Floating ones are trained.
        example_inputs: an array or a tuple of them, the batch as first dimension; traced once.
        loss: ``loss(output, label)`` gives a scalar; the cross entropy of logits if None.
        input_names: names of the function's arguments, in order.
        label_name, output_name: names of the label and of the function's result; the loss is called ``"loss"``.
        device, strict, seed: see :func:`deep500.frameworks.jax.from_model`.

    Raises:
        InputError: another number of names than of example inputs, or a function that does not return one array.

    Example:
        >>> tree = {"w": np.ones((4, 3), "float32")}
        >>> executor = from_native(lambda p, x: x @ p["w"], tree, np.zeros((1, 4), "float32"))
        >>> executor.inference({"input": np.ones((2, 4), "float32")}, ["output"])["output"].shape
        (2, 3)
    """
    examples = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    if len(examples) != len(input_names):
        raise InputError(
            f"got {len(examples)} example inputs and names {tuple(input_names)}; expected one name for each: "
            "pass input_names"
        )
    named = dict(zip(input_names, examples, strict=True))
    return NativeExecutor(function, parameters, named, loss, label_name, output_name, device, strict, seed)


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise NetworkError(
        "got an edit of a network that stands for a native function; expected a Network of operators: edit the "
        "function itself, or build the network with deep500.networks and use from_model"
    )


class NativeNetwork(JaxNetwork):
    """The network of a native function: names, descriptors and arrays, but no operators to edit."""

    add_input = add_parameter = set_parameter = add_node = remove_node = replace = add_edge = remove_edge = _refuse
    replace_value = add_output = remove_output = remove_parameter = remove_input = _refuse
    to_onnx = with_gradient = _refuse

    def gradient(self, loss: str = "loss") -> list[tuple[str, str]]:
        """Every trainable parameter and the name of its gradient."""
        find_loss(self, loss)
        return [(name, gradient_name(name)) for name in self.trainable()]


class NativeExecutor(Executor):
    """Runs a function as it is; made by :func:`from_native`."""

    always_random = True
    network: NativeNetwork

    def __init__(
        self,
        function: Callable[..., Any],
        parameters: Any,
        examples: Mapping[str, Any],
        loss: Callable[[Any, Any], Any] | None,
        label_name: str,
        output_name: str,
        device: Device | str | None,
        strict: bool,
        seed: int,
    ) -> None:
        self._prepare(device, strict, seed)
        leaves, self._tree = jax.tree_util.tree_flatten_with_path(parameters)
        self._names = ["/".join(map(_key_name, path)) for path, _ in leaves]
        arrays = {n: np.asarray(leaf) for n, (_, leaf) in zip(self._names, leaves, strict=True)}
        self._native, self._loss = function, loss or cross_entropy
        self._options = {p for p in inspect.signature(function).parameters if p in ("training", "key")}
        self.wide = any(str(a.dtype) in _WIDE for a in (*arrays.values(), *map(np.asarray, examples.values())))
        sketch = self._sketch(arrays, examples, label_name, output_name, loss is None)
        self.network = NativeNetwork(sketch, self)
        self.refresh()

    @property
    def parameters(self) -> Any:
        """The live parameters as the user's tree."""
        return jax.tree_util.tree_unflatten(self._tree, [self.tensors[name] for name in self._names])

    def _forget_training(self) -> None:
        raise UnsupportedOperator(
            "got a checkpointing plan for a native function; expected a Network of operators, of which some can run "
            "again: build it with deep500.networks and use from_model, or call jax.checkpoint in the function"
        )

    def program(self, outputs: Sequence[str]) -> Program:
        """The two nodes, or the first alone."""
        network = self.network
        known, (output, loss) = self.network.outputs, self.network.outputs
        odd = [name for name in outputs if name not in known]
        if odd:
            raise NetworkError(
                f"got output {odd[0]!r}; expected {output!r} or {loss!r}, all that a native function has"
            )
        inputs = list(network.inputs) if loss in outputs else list(network.inputs)[:-1]
        return Program(inputs, list(outputs), [], attributes={name: name for name in self.tensors})

    def pure(self, compiled: Compiled, known: Mapping[str, Any]) -> PureFunction:
        """The user's function in the executor's form."""
        outputs, (output, loss) = compiled.outputs, self.network.outputs
        inputs, label = list(self.network.inputs)[:-1], list(self.network.inputs)[-1]

        def function(parameters: Any, state: Any, given: Any, key: Any) -> tuple[dict[str, Any], dict[str, Any]]:
            tree = jax.tree_util.tree_unflatten(self._tree, [{**parameters, **known}[n] for n in self._names])
            options = {"training": compiled.training, "key": key}
            chosen = {name: options[name] for name in self._options}
            found = {output: self._native(tree, *[given[name] for name in inputs], **chosen)}
            if loss in outputs:
                found[loss] = self._loss(found[output], given[label])
            return {name: found[name] for name in outputs}, {}

        return function

    def _sketch(
        self, arrays: Mapping[str, np.ndarray], examples: Mapping[str, Any], label: str, output: str, classes: bool
    ) -> Network:
        """The network that stands for the function."""
        name = getattr(self._native, "__name__", "function")
        sketch, tree = Network(name), jax.tree_util.tree_unflatten(self._tree, list(arrays.values()))
        options = {"training": False, "key": jax.random.key(0)}
        chosen = {n: options[n] for n in self._options}
        with enable_x64(self.wide):
            result = jax.eval_shape(lambda t, *xs: self._native(t, *xs, **chosen), tree, *examples.values())
        if not isinstance(result, jax.ShapeDtypeStruct):
            raise InputError(
                f"got a function that returns {type(result).__name__}; expected one array: wrap it in one that picks it"
            )
        for input_name, example in examples.items():
            array = np.asarray(example)
            sketch.add_input(input_name, ("N", *array.shape[1:]), str(array.dtype))
        for parameter, array in arrays.items():
            sketch._parameters[parameter] = Parameter(array.copy(), bool(jnp.issubdtype(array.dtype, np.floating)))
        if classes:
            sketch.add_input(label, ("N", *result.shape[1:-1]), "int64")
        else:
            sketch.inputs[label] = TensorDescriptor(None, None)  # whatever the loss makes of it
        sketch.add_node("Function", [*examples, *arrays], [output], name=name, domain=DOMAIN)
        sketch.add_node("Loss", [output, label], ["loss"], name="loss", domain=DOMAIN)
        sketch._known = {output: TensorDescriptor(str(result.dtype), ("N", *result.shape[1:]))}
        sketch.add_output(output)
        sketch.add_output("loss")
        return sketch


_WIDE = frozenset({"float64", "int64", "uint64", "complex128"})


def _key_name(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
