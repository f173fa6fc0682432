"""The model that a file was exported from, as its own framework runs it: answers, gradients and steps to compare with.

The loss is the same for the original and for the network that was read from its file: every floating output, times
fixed random weights, squared; the means of these, added up. (Without weights, normalised outputs would make it a
constant.)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deep500.networks import Network
from tests.models.architectures.architecture import Architecture, Inputs
from tests.models.exporting import SEED, build

RATE = 1e-6
"""Learning rate of the steps that are timed: weights stay what they are."""


class NotComparable(Exception):
    """What an original does not have, in a few words: they stand in the table."""


def loss_weights(outputs: Sequence[np.ndarray], ragged: bool) -> dict[int, np.ndarray]:
    """Fixed random weights by the number of the output; ``ragged``: the first axis has another size at every run."""
    rng = np.random.default_rng(SEED + 1)
    floating = {i: y for i, y in enumerate(outputs) if y.dtype.kind == "f"}
    return {i: rng.uniform(0.5, 1.5, y.shape[1:] if ragged else y.shape) for i, y in floating.items()}


def add_weighted_loss(network: Network, weights: Mapping[int, np.ndarray], loss: str = "loss") -> Network:
    """Append the loss to a float32 network as ONNX nodes, in place."""
    terms = []
    for i, array in weights.items():
        weight, product, square, term = (
            network.fresh_name(f"loss_{i}_{part}") for part in ("w", "wy", "square", "mean")
        )
        network.add_parameter(weight, array.astype(np.float32), trainable=False)
        network.add_node("Mul", [network.outputs[i], weight], [product])
        network.add_node("Mul", [product, product], [square])
        network.add_node("ReduceMean", [square], [term], keepdims=0)
        terms.append(term)
    network.add_node("Sum", terms, [loss], name=loss)
    network.add_output(loss)
    return network


class TorchOriginal:
    """A module of PyTorch.

    In training, BatchNormalization uses the batch's statistics, as Deep500's executors do; all else stays in evaluation
    mode, because that is how the file was written (dropout is 0 where a model has any).
    """

    def __init__(self, architecture: Architecture, inputs: Inputs) -> None:
        import torch

        self.module, self.inputs = build(architecture), inputs
        self.tensors = tuple(torch.from_numpy(v.copy()) for v in inputs.values())

    def forward(self) -> list[np.ndarray]:
        """All outputs in float32, in evaluation mode."""
        import torch

        with torch.no_grad():
            return [y.numpy().copy() for y in _flat(self.module(*self.tensors))]

    def parameters(self) -> dict[str, np.ndarray]:
        """Arrays that train, by name."""
        return {n: p.detach().numpy().copy() for n, p in self.module.named_parameters() if p.requires_grad}

    def gradients(self, weights: Mapping[int, np.ndarray]) -> dict[str, np.ndarray]:
        """Of the loss by every parameter that it depends on, in float64 throughout."""
        import torch

        module = with_epsilons_of_float32(_training(copy.deepcopy(self.module).double()))
        tensors = [t.double() if t.is_floating_point() else t for t in self.tensors]
        torch.set_default_dtype(torch.float64)
        try:
            with in_double()():
                loss = _loss(_flat(module(*tensors)), _tensors(weights, torch.float64))
        finally:
            torch.set_default_dtype(torch.float32)
        loss.backward()
        return {n: p.grad.numpy() for n, p in module.named_parameters() if p.grad is not None}

    def inference(self, compile: bool = False) -> Callable[[], object]:
        """One run in evaluation mode, to be timed; ``compile``: through ``torch.compile``."""
        import torch

        module, tensors = torch.compile(self.module, dynamic=False) if compile else self.module, self.tensors

        def run() -> object:
            with torch.no_grad():
                return module(*tensors)

        return run

    def step(self, weights: Mapping[int, np.ndarray], compile: bool = False) -> Callable[[], object]:
        """One training step with gradient descent, to be timed; ``compile``: module and loss in ``torch.compile``."""
        import torch

        module, tensors = _training(copy.deepcopy(self.module)), self.tensors
        factors = _tensors(weights, torch.float32)
        optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], RATE, fused=True)

        def forward(*given: Any) -> Any:
            return _loss(_flat(module(*given)), factors)

        if compile:
            forward = torch.compile(forward, dynamic=False)

        def run() -> object:
            optimizer.zero_grad()
            loss = forward(*tensors)
            loss.backward()
            optimizer.step()
            return loss

        return run


def _training(module: Any) -> Any:
    import torch

    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm):
            part.train()
    return module


def _flat(outputs: Any) -> list[Any]:
    return list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]


def _tensors(weights: Mapping[int, np.ndarray], dtype: Any) -> dict[int, Any]:
    import torch

    return {i: torch.from_numpy(w.astype(np.float32)).to(dtype) for i, w in weights.items()}


def _loss(outputs: Sequence[Any], weights: Mapping[int, Any]) -> Any:
    return sum((outputs[i] * w).square().mean() for i, w in weights.items())


def with_epsilons_of_float32(module: Any) -> Any:
    """Round what ONNX holds as float32: with other values a comparison in float64 would end at 1e-8."""
    for part in module.modules():
        for name in EPSILONS:
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, float(np.float32(getattr(part, name))))
    return module


EPSILONS = ("eps", "variance_epsilon")


def in_double() -> Any:
    """A mode in which what a module computes in float32 whatever its own precision is computed in float64."""
    import torch
    from torch.overrides import TorchFunctionMode

    def wider(value: Any) -> Any:
        return torch.float64 if value is torch.float32 else value

    grouped = (torch._grouped_mm, torch.nn.functional.grouped_mm)

    class InDouble(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.Tensor.float:
                return args[0].double()
            if function in grouped and args[0].dtype is torch.float64:  # which PyTorch has for smaller types alone
                x, weight, ends = *args, kwargs["offs"]
                begins = [0, *ends[:-1].tolist()]
                return torch.cat([x[a:b] @ w for a, b, w in zip(begins, ends.tolist(), weight, strict=True)])
            return function(*map(wider, args), **{k: wider(v) for k, v in (kwargs or {}).items()})

    return InDouble


class KerasOriginal:
    """A model of Keras on TensorFlow."""

    def __init__(self, architecture: Architecture, inputs: Inputs) -> None:
        self.architecture, self.inputs = architecture, inputs
        self.model = build(architecture)

    def forward(self) -> list[np.ndarray]:
        """All outputs in float32, in evaluation mode."""
        return [np.asarray(y) for y in _flat(self.model(*self.inputs.values(), training=False))]

    def parameters(self) -> dict[str, np.ndarray]:
        """Arrays that train, by path."""
        return {v.path: np.asarray(v) for v in self.model.trainable_variables}

    def gradients(self, weights: Mapping[int, np.ndarray]) -> dict[str, np.ndarray]:
        """Of the loss by every parameter, in float64: the model is built once more in that precision."""
        import keras
        import tensorflow as tf

        values = self.model.get_weights()
        keras.config.set_floatx("float64")
        try:
            model = self.architecture.build()
        finally:
            keras.config.set_floatx("float32")
        model.set_weights(values)
        given = [v.astype(np.float64) if v.dtype == np.float32 else v for v in self.inputs.values()]
        with tf.GradientTape() as tape:
            loss = self._loss(_flat(model(*given, training=True)), weights, np.float64)
        variables = model.trainable_variables
        found = tape.gradient(loss, variables)
        names = [v.path for v in self.model.trainable_variables]
        return {name: np.asarray(tf.convert_to_tensor(g)) for name, g in zip(names, found, strict=True)}

    @staticmethod
    def _loss(outputs: Sequence[Any], weights: Mapping[int, np.ndarray], dtype: Any) -> Any:
        import tensorflow as tf

        means = [tf.reduce_mean((outputs[i] * w.astype(np.float32).astype(dtype)) ** 2) for i, w in weights.items()]
        return tf.add_n(means)

    def inference(self) -> Callable[[], object]:
        """One compiled run in evaluation mode, to be timed."""
        import tensorflow as tf

        given = [tf.constant(v) for v in self.inputs.values()]
        return tf.function(lambda: self.model(*given, training=False))  # on the CPU it is done when it returns

    def step(self, weights: Mapping[int, np.ndarray]) -> Callable[[], object]:
        """One compiled training step with gradient descent, to be timed."""
        import keras
        import tensorflow as tf

        given, optimizer = [tf.constant(v) for v in self.inputs.values()], keras.optimizers.SGD(RATE)
        variables = self.model.trainable_variables
        optimizer.build(variables)

        @tf.function
        def run() -> Any:
            with tf.GradientTape() as tape:
                loss = self._loss(_flat(self.model(*given, training=True)), weights, np.float32)
            optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return loss

        return run


class SklearnOriginal:
    """An estimator of scikit-learn that was fitted."""

    def __init__(self, architecture: Architecture, inputs: Inputs) -> None:
        self.model, (self.features,) = build(architecture), inputs.values()

    def forward(self) -> list[np.ndarray]:
        """Classes and their probabilities, in the order of the file's outputs."""
        probabilities = self.model.predict_proba(self.features).astype(np.float32)
        return [self.model.predict(self.features), probabilities]

    def parameters(self) -> dict[str, np.ndarray]:
        """scikit-learn's estimators show no parameters that a gradient belongs to."""
        return {}

    def gradients(self, weights: Mapping[int, np.ndarray]) -> dict[str, np.ndarray]:
        """There are none."""
        raise NotComparable("scikit-learn gives no gradient")

    def inference(self) -> Callable[[], object]:
        """Probabilities, to be timed."""
        return lambda: self.model.predict_proba(self.features)

    def step(self, weights: Mapping[int, np.ndarray]) -> Callable[[], object]:
        """There is none."""
        raise NotComparable("scikit-learn has no training step")


Original = TorchOriginal | KerasOriginal | SklearnOriginal
KINDS = {"legacy": TorchOriginal, "dynamo": TorchOriginal, "keras": KerasOriginal, "sklearn": SklearnOriginal}


def original(architecture: Architecture, inputs: Inputs) -> Original:
    """Build the model that a file was exported from."""
    return KINDS[architecture.exporter](architecture, inputs)  # type: ignore[abstract]
