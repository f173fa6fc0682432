"""`from_native`: a user's own Keras model behind the executor interface, without conversion.

The model runs as it is and its variables are shared. Its network is one node that stands for the model and one for the
loss, so that optimizers, trainers, metrics and checkpoints work; it cannot be edited, exported or transformed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from deep500.devices import Device
from deep500.errors import InputError, NetworkError, UnsupportedOperator
from deep500.frameworks.tensorflow.bound import TensorFlowNetwork
from deep500.frameworks.tensorflow.dtypes import from_array, to_array
from deep500.frameworks.tensorflow.executor import Compiled, Executor
from deep500.frameworks.tensorflow.runtime import tf
from deep500.networks.execution.executor import InputCheck
from deep500.networks.losses import find_loss, gradient_name
from deep500.networks.network import Network, Parameter
from deep500.tensors import TensorDescriptor

DOMAIN = "deep500.tensorflow"
"""Domain of the two nodes that stand for a model and its loss."""


def from_native(
    model: Any,
    example_inputs: Any,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    input_names: Sequence[str] = ("input",),
    label_name: str = "label",
    output_name: str = "output",
    device: Device | str | None = None,
    jit_compile: bool = False,
    strict: bool = False,
) -> NativeExecutor:
    """An executor around a Keras model of the user's own; network names are the paths of its variables.

    Args:
        model: a Keras model or layer; trained in place. It is called with ``training=True`` while it trains.
        example_inputs: a tensor or array, or a tuple of them, with the batch as first dimension; run once, in
            evaluation mode, to build the model and to learn the output's shape.
        loss: ``loss(output, label)`` gives a scalar; the mean cross entropy of scores and class numbers if None.
        input_names: names of the model's arguments, in order.
        label_name, output_name: names of the label and of the model's result; the loss is called ``"loss"``.
        device, jit_compile, strict: see :func:`deep500.frameworks.tensorflow.from_model`.

    Raises:
        InputError: another number of names than of example inputs, or a model that does not return one tensor.

    Example:
        >>> import keras, numpy as np
        >>> executor = from_native(keras.layers.Dense(3, name="dense"), np.zeros((1, 4), "float32"))
        >>> out = executor.inference({"input": np.ones((2, 4), "float32")}, outputs=["output"])
        >>> tuple(out["output"].shape), executor.network.get_params()
        ((2, 3), ['dense/kernel', 'dense/bias'])
    """
    examples = tuple(example_inputs) if isinstance(example_inputs, (tuple, list)) else (example_inputs,)
    if len(examples) != len(input_names):
        raise InputError(
            f"got {len(examples)} example inputs and names {tuple(input_names)}; expected one name for each: "
            "pass input_names"
        )
    tensors = [e if isinstance(e, tf.Tensor) else from_array(e) for e in examples]
    return NativeExecutor(
        model, dict(zip(input_names, tensors, strict=True)), loss, label_name, output_name, device, jit_compile, strict
    )


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise NetworkError(
        "got an edit of a network that stands for a native model; expected a Network of operators: "
        "edit the model itself, "
        "or build the network with deep500.networks and use from_model"
    )


class NativeNetwork(TensorFlowNetwork):
    """The network of a native model: names, descriptors and tensors, but no operators to edit."""

    add_input = add_parameter = set_parameter = add_node = remove_node = replace = add_edge = remove_edge = _refuse
    replace_value = add_output = remove_output = remove_parameter = remove_input = _refuse
    to_onnx = with_gradient = _refuse

    def gradient(self, loss: str = "loss") -> list[tuple[str, str]]:
        """Every trainable parameter and the name of its gradient."""
        find_loss(self, loss)
        return [(name, gradient_name(name)) for name in self.trainable()]


def cross_entropy(output: Any, label: Any) -> Any:
    """Mean cross entropy of scores [N, classes] and class numbers [N]."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(label, output))


class NativeExecutor(Executor):
    """Runs a Keras model as it is; made by :func:`from_native`."""

    network: NativeNetwork

    def __init__(
        self,
        model: Any,
        examples: dict[str, Any],
        loss: Callable[[Any, Any], Any] | None,
        label_name: str,
        output_name: str,
        device: Device | str | None,
        jit_compile: bool,
        strict: bool,
    ) -> None:
        self.model, self._loss = model, loss or cross_entropy
        self._names = (*examples, label_name)
        self._prepare(device, jit_compile, strict)
        with tf.device(self.tf_device):
            result = model(*examples.values(), training=False)
        if not isinstance(result, tf.Tensor):
            raise InputError(
                f"got a model that returns {type(result).__name__}; expected one tensor: "
                "wrap it in a model that picks one"
            )
        trainable = {id(v) for v in model.trainable_variables}
        self._trainable = {v.path: id(v) in trainable for v in model.variables}
        self._keras = {v.path: v for v in model.variables}
        self.variables = {path: v.value for path, v in self._keras.items()}
        self.network = NativeNetwork(self._sketch(examples, result, label_name, output_name, loss is None), self)

    def _forget_training(self) -> None:
        raise UnsupportedOperator(
            "got a checkpointing plan for a native model; expected a Network of operators, of which some can run "
            "again: build it with deep500.networks and use from_model, or call tf.recompute_grad in the model"
        )

    def _sketch(self, examples: dict[str, Any], result: Any, label: str, output: str, classes: bool) -> Network:
        """The network that stands for the model."""
        sketch = Network(self.model.name)
        for name, example in examples.items():
            sketch.add_input(name, ("N", *example.shape.as_list()[1:]), example.dtype.name)
        for name, variable in self.variables.items():
            sketch._parameters[name] = Parameter(to_array(variable), self._trainable[name])
        if classes:
            sketch.add_input(label, ("N",), "int64")
        else:
            sketch.inputs[label] = TensorDescriptor(None, None)  # whatever the loss makes of it
        sketch.add_node("Model", [*examples, *self.variables], [output], name=sketch.name, domain=DOMAIN)
        sketch.add_node("Loss", [output, label], ["loss"], name="loss", domain=DOMAIN)
        sketch._known = {output: TensorDescriptor(result.dtype.name, ("N", *result.shape.as_list()[1:]))}
        sketch.add_output(output)
        sketch.add_output("loss")
        return sketch

    def refresh(self) -> None:
        """Nothing can have been edited."""

    def compiled(self, outputs: tuple[str, ...], loss: str | None) -> Compiled:
        """See the base class; the model's own call is what runs."""
        key = outputs, loss
        if key in self._compiled:
            return self._compiled[key]
        label, (output, goal) = self._names[-1], self.network.outputs
        odd = [name for name in outputs if name not in (output, goal)]
        if odd:
            raise NetworkError(f"got output {odd[0]!r}; expected {output!r} or {goal!r}, all that a native model has")
        inputs = list(self._names if goal in outputs else self._names[:-1])
        check = InputCheck({n: self.network.inputs[n] for n in inputs}, [] if label in inputs else [label])
        gradients = [] if loss is None else self.network.trainable()
        run = self._step(outputs, output) if loss is not None else self._call(outputs, output, False)

        def trace(function: Callable[..., Any]) -> Callable[..., Any]:
            return tf.function(function, autograph=False, jit_compile=self.jit_compile or None, reduce_retracing=True)

        self._compiled[key] = Compiled(trace(run), inputs, outputs, gradients, check, run, trace)
        return self._compiled[key]

    def _call(self, outputs: tuple[str, ...], output: str, training: bool) -> Callable[..., list[Any]]:
        def call(*args: Any) -> list[Any]:
            result = self.model(*args[: len(self._names) - 1], training=training)
            found = {output: result}
            if "loss" in outputs:
                found["loss"] = self._loss(result, args[-1])
            return [found[name] for name in outputs]

        return call

    def _step(self, outputs: tuple[str, ...], output: str) -> Callable[..., tuple[list[Any], list[Any]]]:
        forward, watched = self._call(outputs, output, True), [self.variables[n] for n in self.network.trainable()]

        def step(*args: Any) -> tuple[list[Any], list[Any]]:
            with tf.GradientTape() as tape:
                results = forward(*args)
            gradients = tape.gradient(results[outputs.index("loss")], watched, unconnected_gradients="zero")
            return results, [tf.convert_to_tensor(g) for g in gradients]

        return step

    def reseed(self, seed: int) -> None:
        """Restart what the model's seeded layers draw: each gets a state that is a function of ``seed``."""
        super().reseed(seed)
        for number, (path, variable) in enumerate(self._keras.items()):
            if path.rpartition("/")[2] == "seed_generator_state":
                variable.assign([seed & 0x7FFFFFFF, number])
