"""`from_native`: a user's own Keras model behind the executor interface, without conversion.

The model runs as it is and its variables are shared. Its network is one node that stands for the model and one for the
loss, so that optimizers, trainers, metrics and checkpoints work; it cannot be edited, exported or transformed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from deep500.devices import Device
from deep500.frameworks.tensorflow.dtypes import from_array, to_array
from deep500.frameworks.tensorflow.executor import Compiled, Executor, TensorFlowOptions
from deep500.frameworks.tensorflow.importing import check_constraints
from deep500.frameworks.tensorflow.network import TensorFlowNetwork
from deep500.frameworks.tensorflow.runtime import tf
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

DOMAIN = "deep500.tensorflow"
"""Domain of the two nodes that stand for a model and its loss."""


@hands_on(NativeNames)
def from_native(
    model: Any,
    example_inputs: Any,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    device: Device | str | None = None,
    jit_compile: bool = False,
    strict: bool = False,
    **names: Any,
) -> NativeExecutor:
    """An executor around a Keras model of the user's own; network names are the paths of its variables.

    Args:
        model: a Keras model or layer; trained in place. It is called with ``training=True`` while it trains.
        example_inputs: a tensor or array, or a tuple of them, with the batch as first dimension; run once, in
            evaluation mode, to build the model and to learn the output's shape.
        loss: ``loss(output, label)`` gives a scalar, or an object of ``keras.losses``; the mean cross entropy of scores
            and class numbers if None. Losses of the model's own (``model.losses``: regularizers) are added.
        device, jit_compile, strict: see :func:`deep500.frameworks.tensorflow.from_model`.
        names: ``input_names`` of the model's arguments, ``label_name`` and ``output_name``
            (:class:`deep500.networks.execution.native.NativeNames`).

    Raises:
        InputError: another number of names than of example inputs, or a model that does not return one tensor.
        NetworkError: variables with constraints.

    Example:
        >>> import keras, numpy as np
        >>> executor = from_native(keras.layers.Dense(3, name="dense"), np.zeros((1, 4), "float32"))
        >>> out = executor.inference({"input": np.ones((2, 4), "float32")}, outputs=["output"])
        >>> tuple(out["output"].shape), executor.network.get_params()
        ((2, 3), ['dense/kernel', 'dense/bias'])
    """
    options = TensorFlowOptions(strict=strict, jit_compile=jit_compile)
    return NativeExecutor(model, example_inputs, loss, device, options, NativeNames(**names))


class NativeModel(NativeNetwork, TensorFlowNetwork):
    """The network of a native model."""

    subject = "model"


def _in_our_order(loss: Any) -> Any:
    """Keras' own losses take the label first."""
    keras = sys.modules.get("keras")
    if keras is not None and isinstance(loss, keras.losses.Loss):
        return lambda output, label: loss(label, output)
    return loss


def cross_entropy(output: Any, label: Any) -> Any:
    """Mean cross entropy of scores [N, classes] and class numbers [N]."""
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(label, output))


class NativeExecutor(NativeExecution, Executor):
    """Runs a Keras model as it is; made by :func:`from_native`."""

    network: NativeModel
    network_type = NativeModel
    recompute_by_hand = "tf.recompute_grad"

    def __init__(
        self,
        model: Any,
        example_inputs: Any,
        loss: Callable[[Any, Any], Any] | None,
        device: Device | str | None,
        options: TensorFlowOptions,
        names: NativeNames,
    ) -> None:
        examples = named_examples(example_inputs, names.input_names)
        self.model, self._loss = model, _in_our_order(loss) or cross_entropy
        self.prepare(device, options)
        tensors = {n: e if isinstance(e, tf.Tensor) else from_array(e) for n, e in examples.items()}
        with tf.device(self.tf_device):
            result = model(*tensors.values(), training=False)
        check_constraints(model)
        if not isinstance(result, tf.Tensor):
            raise not_one_tensor("model", result)
        trainable = {id(v) for v in model.trainable_variables}
        self._keras = {v.path: v for v in model.variables}
        self.tensors = {path: v.value for path, v in self._keras.items()}
        network = sketch(
            model.name,
            ("Model", DOMAIN),
            {n: batched(e.dtype.name, e.shape.as_list()) for n, e in tensors.items()},
            {n: Parameter(to_array(v.value), id(v) in trainable) for n, v in self._keras.items()},
            {names.output_name: batched(result.dtype.name, result.shape.as_list())},
        )
        labels = TensorDescriptor("int64", ("N",)) if loss is None else None
        self.begin(add_native_loss(network, names.label_name, labels))

    def build(self, outputs: tuple[str, ...], loss: str | None) -> Compiled:
        """See the base class; the model's own call is what runs."""
        inputs, check = self.inputs_for(outputs)
        gradients = [] if loss is None else self.network.trainable()
        run: Callable[..., Any] = self._step(outputs) if loss is not None else self._call(outputs, False)

        def trace(function: Callable[..., Any]) -> Callable[..., Any]:
            return tf.function(function, autograph=False, jit_compile=self.jit_compile or None, reduce_retracing=True)

        return Compiled(trace(run), inputs, outputs, gradients, check, run, trace)

    def _call(self, outputs: tuple[str, ...], training: bool) -> Callable[..., list[Any]]:
        count, output = len(self.network.inputs) - 1, self.network.outputs[0]

        def call(*args: Any) -> list[Any]:
            result = self.model(*args[:count], training=training)
            values = {output: result}
            if "loss" in outputs:
                values["loss"] = sum(self.model.losses, self._loss(result, args[-1]))  # with regularizers, as Keras
            return [values[name] for name in outputs]

        return call

    def _step(self, outputs: tuple[str, ...]) -> Callable[..., tuple[list[Any], list[Any]]]:
        forward, watched = self._call(outputs, True), [self.tensors[n] for n in self.network.trainable()]

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
